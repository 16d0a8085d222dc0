"""Evidence: a Merkle tree in place of the hash chain, checkpoints, cosignatures, erasable texts.

The events are copied byte for byte into a table of the new shape: an append-only table lets no
column be filled. The hash chain is checked on the way: what was changed before must not get hashes
that fit. A database that is damaged is refused, and left as it was.

PostgreSQL begins here, with the same tables. Triggers are a second fence. The first: the service
only appends, and on PostgreSQL its role has no right to do anything else.
"""

from collections.abc import Sequence
from hashlib import sha256

import sqlalchemy as sa
from alembic import op

from accountant.ledger.merkle import Tree, leaf_hash

revision = "0002"
down_revision = "0001"
phase = "stopped"

_PAGE = 1_000
_APPEND_ONLY = {
    "event": ("sequence",),
    "node": ("level", "number"),
    "checkpoint": ("number",),
    "cosignature": ("number", "witness"),
}
_REFUSAL = "the ledger is append-only"
_FUNCTION = f"""
CREATE OR REPLACE FUNCTION accountant_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'restrict_violation';
END $$
"""
_VACUUM = """
ALTER TABLE text SET (
    autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 0, toast.autovacuum_vacuum_scale_factor = 0
)
"""
"""An erased text is a dead row until the table is vacuumed: one is reason enough."""


def _key(name: str, kind: sa.types.TypeEngine) -> sa.Column:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    if dialect == "sqlite":
        for table in ("event", "ledger_head"):
            op.rename_table(table, f"{table}_0001")
    _create(dialect)
    if dialect == "sqlite":
        _copy_all(op.get_bind())
    statements = [*_preparations(dialect), *_head_guards(dialect)]
    for table, places in _APPEND_ONLY.items():
        statements += _guards(dialect, table, places, erasable=False)
    statements += _guards(dialect, "text", ("sequence", "field"), erasable=True)
    for statement in statements:
        op.execute(statement)


def _create(dialect: str) -> None:
    op.create_table(
        "event",
        _key("ledger", _word(64)),
        _key("sequence", sa.BigInteger()),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("leaf", sa.LargeBinary(), nullable=False),
        _sized(dialect, "event_body", "body", "<= 65535"),
        _sized(dialect, "event_leaf", "leaf", "= 32"),
    )
    op.create_table(
        "node",
        _key("ledger", _word(64)),
        _key("level", sa.Integer()),
        _key("number", sa.BigInteger()),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        _sized(dialect, "node_hash", "hash", "= 32"),
    )
    op.create_table(
        "ledger_head",
        _key("ledger", _word(64)),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("peaks", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "checkpoint",
        _key("ledger", _word(64)),
        _key("number", sa.BigInteger()),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "cosignature",
        _key("ledger", _word(64)),
        _key("number", sa.BigInteger()),
        _key("witness", _words()),
        sa.Column("line", sa.Text(), nullable=False),
    )
    op.create_table(
        "text",
        _key("ledger", _word(64)),
        _key("sequence", sa.BigInteger()),
        _key("field", _word(64)),
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


def _word(length: int) -> sa.types.TypeEngine[str]:
    """Return a text type that orders by bytes, in any language of the server."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _words() -> sa.types.TypeEngine[str]:
    """Return such a type of any length."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _sized(dialect: str, name: str, column: str, condition: str) -> sa.CheckConstraint:
    """Return the constraint that ``column`` holds bytes whose number meets ``condition``."""
    if dialect == "postgresql":
        return sa.CheckConstraint(f"octet_length({column}) {condition}", name=name)
    return sa.CheckConstraint(f"typeof({column}) = 'blob' AND length({column}) {condition}", name)


def _guards(dialect: str, table: str, places: Sequence[str], *, erasable: bool) -> list[str]:
    """Return statements that make a table append-only; an erasable one may lose rows."""
    verbs = ["UPDATE"] if erasable else ["UPDATE", "DELETE"]
    names = {verb: f"{table}_no_{verb.lower()}" for verb in (*verbs, "TRUNCATE")}
    if dialect == "postgresql":
        return [text for verb in names for text in _refuse(dialect, names[verb], verb, table)]
    refused = [text for verb in verbs for text in _refuse(dialect, names[verb], verb, table)]
    return [*refused, *_no_replace(f"{table}_no_replace", table, places)]


def _head_guards(dialect: str) -> list[str]:
    """Return statements that let a head only go forward."""
    table, rewinds = "ledger_head", "NEW.sequence <= OLD.sequence"
    if dialect == "postgresql":
        rewinds += " OR NEW.ledger <> OLD.ledger"
        last = _refuse(dialect, "head_no_truncate", "TRUNCATE", table)
    else:
        last = _no_replace("head_no_replace", table, ())
    return [
        *_refuse(dialect, "head_no_delete", "DELETE", table),
        *_refuse(dialect, "head_no_rewind", "UPDATE", table, rewinds),
        *last,
    ]


def _preparations(dialect: str) -> list[str]:
    """Return the statements that come before the guards."""
    return [_FUNCTION, _VACUUM] if dialect == "postgresql" else []


def _no_replace(name: str, table: str, places: Sequence[str]) -> list[str]:
    """Refuse an INSERT OR REPLACE, which fires no DELETE trigger on some connections."""
    same = " AND ".join(f"{place} = NEW.{place}" for place in ("ledger", *places))
    there = f"EXISTS (SELECT 1 FROM {table} WHERE {same})"  # noqa: S608 (names of our own)
    return _refuse("sqlite", name, "INSERT", table, there)


def _refuse(dialect: str, name: str, verb: str, table: str, when: str = "") -> list[str]:
    """Return statements for a trigger that refuses ``verb``; in a replica's session too."""
    if dialect == "sqlite":
        when = f" WHEN {when}" if when else ""
        refused = f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        return [f"CREATE TRIGGER {name} BEFORE {verb} ON {table}{when} {refused}"]
    each = "STATEMENT" if verb == "TRUNCATE" else "ROW"
    condition = f"WHEN ({when}) " if when else ""
    return [
        f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH {each} {condition}"
        "EXECUTE FUNCTION accountant_append_only()",
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
    ]


def downgrade() -> None:
    raise RuntimeError("a ledger is never taken apart")
