"""What is decided about a ledger itself: keys, alarms, recovery, publication, corrections."""
