"""Messages that the service sends: signed, to hosts that a setting names, at least once.

``webhook.py`` signs and posts one message (Standard Webhooks) and knows nothing of its subject;
``callbacks.py`` tells clients what became of requests that waited; ``alerting.py`` tells people
what needs them, each alert once, through ``channels.py``. Nothing here takes part in a decision,
and no lock is held while something is sent.
"""
