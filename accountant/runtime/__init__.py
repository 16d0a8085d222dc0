"""The running service: commands in, events committed, projections kept in step."""
