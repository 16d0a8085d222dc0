"""When keys were last used, to the minute.

A row is there once a key was used. It has the digest of the key, which the ledger has too, and
decides nothing: who reads it learns which keys nobody needs.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
phase = "pre"


def _word(length: int) -> sa.types.TypeEngine[str]:
    """Return a text type that orders by bytes, in any language of the server."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "key_use",
        sa.Column("ledger", _word(64), primary_key=True, autoincrement=False),
        sa.Column("digest", sa.LargeBinary(), primary_key=True, autoincrement=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
    )
