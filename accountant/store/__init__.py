"""Storage of ledgers: a database, and files beside it.

* ``ledgers``: ``Ledgers``, all ledgers of a database; ``sqlite`` and ``postgres`` are its engines;
* ``queries``: the reads of ``Ledgers`` (outside of a transaction) and ``Writing`` (inside);
* ``writing``: ``Writing``, a transaction that appends to one ledger;
* ``projection``: the fold of one ledger in memory, compared with the database at every step;
* ``tables``, ``dialects``, ``migrate``: the schema;
* ``arrays``: columns for PostgreSQL; ``backfill``: the write-ahead log of SQLite;
* ``vault``, ``snapshots``, ``whole``: files that are replaced whole or not at all.
"""
