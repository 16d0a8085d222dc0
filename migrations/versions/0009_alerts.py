"""Alerts: what was told to whom, and what nobody wants to be told for a while.

A row of ``alert`` stays, since that something was told is why it is not told again. Neither table
holds a secret, an address or a free text of a request.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
phase = "pre"


def _word(length: int) -> sa.types.TypeEngine[str]:
    """Return a text type that orders by bytes, in any language of the server."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "alert",
        sa.Column("ledger", _word(64), primary_key=True, autoincrement=False),
        sa.Column("name", _word(250), primary_key=True, autoincrement=False),
        sa.Column("channel", _word(64), primary_key=True, autoincrement=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("delivered", sa.BigInteger(), nullable=False),
        sa.Column("said", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "alert_mute",
        sa.Column("ledger", _word(64), primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("kind", _word(64), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=False),
        sa.Column("ended_by", sa.Text(), nullable=False),
    )
