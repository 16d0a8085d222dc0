"""Settings, logs, and where shipped files are."""
