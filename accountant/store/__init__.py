"""Where ledgers are kept: tables, engines, and appending under the head's lock."""
