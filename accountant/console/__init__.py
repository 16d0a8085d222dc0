"""The officer's pages: server-rendered, for people who signed in.

``facts/`` says what a page shows, as functions of a ledger that was followed; ``pages/`` answers
requests; ``rendering.py`` turns facts into HTML by the templates. ``access.py`` knows who looks,
and which forms are taken; ``framing.py`` is what handlers share; ``signing_in.py`` lets people in
and out, at the address of ``place.py``.
"""
