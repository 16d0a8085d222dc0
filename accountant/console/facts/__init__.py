"""What each page shows: functions of a ledger that was followed. They decide nothing."""
