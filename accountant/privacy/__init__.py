"""Mathematics: integer units, privacy losses, mechanisms, filters. Pure: no I/O, no clock."""
