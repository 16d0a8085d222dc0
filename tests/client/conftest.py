"""The fixtures of these tests: a real service, and a network that can misbehave."""

from served import Network, Served, network, served

__all__ = ["Network", "Served", "network", "served"]
