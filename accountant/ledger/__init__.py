"""Facts: events, their canonical bytes and the chain that binds them. Pure: no I/O, no clock."""
