"""Reads of registered data, as OpenLineage events tell of them.

A row is a run that read a dataset: who told so, when it read first and last, and the grant that it
had, empty if none was found. It decides nothing. The oldest rows of a ledger go where there are too
many.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
phase = "pre"


def _word(length: int) -> sa.types.TypeEngine[str]:
    """Return a text type that orders by bytes, in any language of the server."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "data_read",
        sa.Column("ledger", _word(64), primary_key=True, autoincrement=False),
        sa.Column("dataset", _word(64), primary_key=True, autoincrement=False),
        sa.Column("run", _word(64), primary_key=True, autoincrement=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("granted", _word(64), nullable=False),
    )
