"""The HTTP door: HTTP/1.1 spoken by the process that decides.

``server`` accepts connections, each a ``connection``; ``reading`` reads requests, ``messages``
writes replies. ``places`` bounds what clients may hold, ``keys`` who may send a body. The API is
handed in: what answers pipelines directly, and an ASGI application (``asgi``) for all else. See
docs/adr/0002-http-door.md.
"""
