"""Evidence: a Merkle tree in place of the hash chain, checkpoints, cosignatures, erasable texts.

The events are copied byte for byte into a table of the new shape: an append-only table lets no
column be filled. The hash chain is checked on the way: what was changed before must not get hashes
that fit. A database that is damaged is refused, and left as it was.

PostgreSQL begins here, with the same tables; where the two differ, ``dialects.py`` has the words.
"""

from hashlib import sha256

import sqlalchemy as sa
from alembic import op

from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store.dialects import (
    dialect_of,
    guards,
    head_guards,
    preparations,
    sized,
    word,
    words,
)

revision = "0002"
down_revision = "0001"

_PAGE = 1_000
_APPEND_ONLY = {
    "event": ("sequence",),
    "node": ("level", "number"),
    "checkpoint": ("number",),
    "cosignature": ("number", "witness"),
}


def _key(name: str, kind: sa.types.TypeEngine) -> sa.Column:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def upgrade() -> None:
    dialect = dialect_of(op.get_bind())
    if dialect == "sqlite":
        for table in ("event", "ledger_head"):
            op.rename_table(table, f"{table}_0001")
    _create(dialect)
    if dialect == "sqlite":
        _copy_all(op.get_bind())
    statements = [*preparations(dialect), *head_guards(dialect)]
    for table, places in _APPEND_ONLY.items():
        statements += guards(dialect, table, places, erasable=False)
    statements += guards(dialect, "text", ("sequence", "field"), erasable=True)
    for statement in statements:
        op.execute(statement)


def _create(dialect: str) -> None:
    op.create_table(
        "event",
        _key("ledger", word(64)),
        _key("sequence", sa.BigInteger()),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("leaf", sa.LargeBinary(), nullable=False),
        sized(dialect, "event_body", "body", "<= 65535"),
        sized(dialect, "event_leaf", "leaf", "= 32"),
    )
    op.create_table(
        "node",
        _key("ledger", word(64)),
        _key("level", sa.Integer()),
        _key("number", sa.BigInteger()),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sized(dialect, "node_hash", "hash", "= 32"),
    )
    op.create_table(
        "ledger_head",
        _key("ledger", word(64)),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("peaks", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "checkpoint",
        _key("ledger", word(64)),
        _key("number", sa.BigInteger()),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "cosignature",
        _key("ledger", word(64)),
        _key("number", sa.BigInteger()),
        _key("witness", words()),
        sa.Column("line", sa.Text(), nullable=False),
    )
    op.create_table(
        "text",
        _key("ledger", word(64)),
        _key("sequence", sa.BigInteger()),
        _key("field", word(64)),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
    )


def _copy_all(connection: sa.Connection) -> None:
    ledgers = connection.execute(
        sa.text("SELECT ledger, sequence, link FROM ledger_head_0001 ORDER BY ledger")
    ).all()
    for ledger, end, link in ledgers:
        _copy(connection, ledger, end, link)
    events = connection.execute(sa.text("SELECT count(*) FROM event_0001")).scalar_one()
    if events != sum(end for _, end, _ in ledgers):
        raise ValueError("events stand beyond the end of their ledger")
    for table in ("event", "ledger_head"):
        op.drop_table(f"{table}_0001")


def _copy(connection: sa.Connection, ledger: str, end: int, head: bytes) -> None:
    """Copies one ledger's events, and grows its tree. Raises ValueError if it is damaged."""
    tree, last = Tree(), bytes(32)
    page = sa.text(
        "SELECT sequence, type, time, body, link FROM event_0001"
        " WHERE ledger = :ledger AND sequence >= :first ORDER BY sequence LIMIT :page"
    )
    while tree.size < end:
        where = {"ledger": ledger, "first": tree.size, "page": _PAGE}
        rows = [dict(row._mapping) for row in connection.execute(page, where)]
        if [row["sequence"] for row in rows] != list(range(tree.size, tree.size + len(rows))):
            raise ValueError(f"ledger {ledger} has a gap after event {tree.size - 1}")
        if not rows:
            raise ValueError(f"ledger {ledger} ends with event {tree.size - 1}, before its head")
        for row in rows:
            last = sha256(last + row["body"]).digest()
            if last != row.pop("link"):
                raise ValueError(f"event {row['sequence']} of {ledger} is not what was chained")
            row |= {"ledger": ledger, "leaf": leaf_hash(row["body"])}
        tree, nodes = tree.grown(row["leaf"] for row in rows)
        connection.execute(
            sa.text(
                "INSERT INTO event (ledger, sequence, type, time, body, leaf)"
                " VALUES (:ledger, :sequence, :type, :time, :body, :leaf)"
            ),
            rows,
        )
        if nodes:
            connection.execute(
                sa.text(
                    "INSERT INTO node (ledger, level, number, hash)"
                    " VALUES (:ledger, :level, :number, :hash)"
                ),
                [{"ledger": ledger, **node._asdict()} for node in nodes],
            )
    if (tree.size, last) != (end, head):
        raise ValueError(f"ledger {ledger} does not end at its head")
    connection.execute(
        sa.text("INSERT INTO ledger_head (ledger, sequence, peaks) VALUES (:ledger, :end, :peaks)"),
        {"ledger": ledger, "end": end, "peaks": b"".join(tree.peaks)},
    )


def downgrade() -> None:
    raise RuntimeError("a ledger is never taken apart")
