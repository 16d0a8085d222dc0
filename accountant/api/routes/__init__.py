"""The calls, by what they are about. Each reads, asks the service, and renders."""
