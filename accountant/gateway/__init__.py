"""HTTP, spoken with clients in a process of its own.

Python runs one thread of a process at a time, and on a busy ledger reading requests and writing
responses costs as much as deciding. So there are two processes: ``outside`` speaks HTTP, ``inside``
holds the ledgers and decides. What passes between them are whole requests and whole answers
(``frames``), over a pair of sockets that nobody else has; if one of them ends, so does the other.
"""
