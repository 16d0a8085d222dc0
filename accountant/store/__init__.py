"""Storage of ledgers: tables, engines, and appending under the head's lock."""
