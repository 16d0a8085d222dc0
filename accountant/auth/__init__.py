"""Who may ask: API keys, as events of a ledger of their own."""
