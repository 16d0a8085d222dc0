"""The custody of a ledger: keys, alarms, recovery, publication, corrections."""
