"""The running service: use cases, command queues, units of work, projections, the clock."""
