"""Accounts: exact sums per cell, and the epochs that say what they are compared with."""
