"""Evidence: a Merkle tree in place of the hash chain, checkpoints, cosignatures, erasable texts.

The events are copied byte for byte into a table of the new shape: an append-only table lets no
column be filled. The hash chain is checked on the way: what was changed before must not get hashes
that fit. A database that is damaged is refused, and left as it was.
"""

from hashlib import sha256

import sqlalchemy as sa
from alembic import op

from accountant.ledger.merkle import Tree, leaf_hash

revision = "0002"
down_revision = "0001"

_PAGE = 1_000
_APPEND_ONLY = {
    "event": ("sequence",),
    "node": ("level", "number"),
    "checkpoint": ("number",),
    "cosignature": ("number", "witness"),
}


def _there(table: str, places: tuple[str, ...]) -> str:
    same = " AND ".join(f"{place} = NEW.{place}" for place in ("ledger", *places))
    return f"BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE {same})"  # noqa: S608


# Beside UPDATE and DELETE, an INSERT over an existing row is refused by itself: INSERT OR REPLACE
# fires no DELETE trigger on a connection without recursive_triggers.
_GUARDS = {
    f"{table}_no_{verb}": when
    for table, places in _APPEND_ONLY.items()
    for verb, when in (
        ("update", f"BEFORE UPDATE ON {table}"),
        ("delete", f"BEFORE DELETE ON {table}"),
        ("replace", _there(table, places)),
    )
} | {
    "head_no_delete": "BEFORE DELETE ON ledger_head",
    "head_no_rewind": "BEFORE UPDATE ON ledger_head WHEN NEW.sequence <= OLD.sequence",
    "head_no_replace": (
        "BEFORE INSERT ON ledger_head WHEN EXISTS (SELECT 1 FROM ledger_head"
        " WHERE ledger = NEW.ledger)"
    ),
    "text_no_update": "BEFORE UPDATE ON text",
    "text_no_replace": _there("text", ("sequence", "field")),
}


def _key(name: str, kind: sa.types.TypeEngine) -> sa.Column:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def upgrade() -> None:
    for table in ("event", "ledger_head"):
        op.rename_table(table, f"{table}_0001")
    op.create_table(
        "event",
        _key("ledger", sa.String(64)),
        _key("sequence", sa.BigInteger()),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("leaf", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("typeof(body) = 'blob' AND length(body) <= 65535", name="event_body"),
        sa.CheckConstraint("typeof(leaf) = 'blob' AND length(leaf) = 32", name="event_leaf"),
    )
    op.create_table(
        "node",
        _key("ledger", sa.String(64)),
        _key("level", sa.Integer()),
        _key("number", sa.BigInteger()),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("typeof(hash) = 'blob' AND length(hash) = 32", name="node_hash"),
    )
    op.create_table(
        "ledger_head",
        _key("ledger", sa.String(64)),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("peaks", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "checkpoint",
        _key("ledger", sa.String(64)),
        _key("number", sa.BigInteger()),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "cosignature",
        _key("ledger", sa.String(64)),
        _key("number", sa.BigInteger()),
        _key("witness", sa.Text()),
        sa.Column("line", sa.Text(), nullable=False),
    )
    op.create_table(
        "text",
        _key("ledger", sa.String(64)),
        _key("sequence", sa.BigInteger()),
        _key("field", sa.String(64)),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
    )
    connection = op.get_bind()
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
    for name, when in _GUARDS.items():
        op.execute(
            f"CREATE TRIGGER {name} {when} "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )


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
