"""The HTTP API: thin, without rules of its own."""
