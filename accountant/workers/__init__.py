"""Work that other processes do: what does not depend on the order of events uses every core."""
