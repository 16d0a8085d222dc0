"""Ledgers as tables of whole numbers, for engines that add up many of them (docs/fleet.md)."""
