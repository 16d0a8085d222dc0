"""Ledgers: append-only events and one head row each.

There is no downgrade: a ledger is never taken apart.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
phase = "pre"

# Beside UPDATE and DELETE, an INSERT over an existing row is refused by itself: INSERT OR REPLACE
# fires no DELETE trigger on a connection without recursive_triggers.
_GUARDS = {
    "event_no_update": "BEFORE UPDATE ON event",
    "event_no_delete": "BEFORE DELETE ON event",
    "event_no_replace": (
        "BEFORE INSERT ON event WHEN EXISTS (SELECT 1 FROM event"
        " WHERE ledger = NEW.ledger AND sequence = NEW.sequence)"
    ),
    "head_no_delete": "BEFORE DELETE ON ledger_head",
    "head_no_rewind": "BEFORE UPDATE ON ledger_head WHEN NEW.sequence <= OLD.sequence",
    "head_no_replace": (
        "BEFORE INSERT ON ledger_head WHEN EXISTS (SELECT 1 FROM ledger_head"
        " WHERE ledger = NEW.ledger)"
    ),
}


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return  # no other database ever was at this version; the next one makes all tables
    op.create_table(
        "event",
        sa.Column("ledger", sa.String(64), primary_key=True),
        sa.Column("sequence", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("link", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("typeof(body) = 'blob' AND length(body) <= 65535", name="event_body"),
        sa.CheckConstraint("typeof(link) = 'blob' AND length(link) = 32", name="event_link"),
    )
    op.create_table(
        "ledger_head",
        sa.Column("ledger", sa.String(64), primary_key=True),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("link", sa.LargeBinary(), nullable=False),
    )
    for name, when in _GUARDS.items():
        op.execute(
            f"CREATE TRIGGER {name} {when} "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )


def downgrade() -> None:
    raise RuntimeError("a ledger is never taken apart")
