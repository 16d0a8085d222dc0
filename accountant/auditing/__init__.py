"""Checking a ledger offline, from its bundle alone; nothing is believed that can be derived."""
