"""The handlers of the calls. Each parses a request, asks the service, and renders the answer."""
