"""The HTTP door: thin, no rules of its own."""
