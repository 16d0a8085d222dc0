"""Who may come in: API keys for programs; one-time links, sessions and roles for people."""
