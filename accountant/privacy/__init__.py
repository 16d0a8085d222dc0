"""Mathematics: integer units, privacy losses, mechanisms, gates. Pure: no I/O, no clock."""
