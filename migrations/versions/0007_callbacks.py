"""The addresses to which the service tells what became of requests that wait.

A row is there from the commit of the event that lets the request wait until the message was taken,
or given up. No event holds an address: it decides nothing, and may hold a secret of the receiver's.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
phase = "pre"


def _word(length: int) -> sa.types.TypeEngine[str]:
    """Return a text type that orders by bytes, in any language of the server."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "callback",
        sa.Column("ledger", _word(64), primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
    )
