"""The HTTP door: HTTP/1.1, spoken by the process that decides. See docs/adr/0002-http-door.md.

``server`` accepts connections, each a ``connection``; ``reading`` reads requests, ``messages``
writes replies. ``places`` bounds what clients may hold, ``keys`` checks keys before bodies. The API
is passed in: the hot path, and an ASGI application (``asgi``) for all other requests.
"""
