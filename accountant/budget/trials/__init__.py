"""What would happen: other policies, cases, choices among requests. Nothing here decides."""
