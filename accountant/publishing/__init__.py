"""The ledger as evidence: signed heads, witnesses, the log as tiles, receipts, bundles."""
