"""The workloads that other budget schedulers published, run against this service.

``python -m bench.peers`` (``make peers``) makes the requests with seeds of our own, asks for them
over HTTP, and writes the table of docs/explanation/against-its-peers.md. The generators follow the
distributions and parameters that each module names; nothing is copied from the peers.
"""
