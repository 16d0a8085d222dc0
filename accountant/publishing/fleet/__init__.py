"""Ledgers as tables of integers, for engines that add up many ledgers (docs/reference/fleet.md)."""
