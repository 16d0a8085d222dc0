"""Facts: events, their canonical bytes and the Merkle tree over them. Pure: no I/O, no clock."""
