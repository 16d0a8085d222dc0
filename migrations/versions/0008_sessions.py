"""The sessions of people who have signed in.

A row is there from the commit of the sign-in's event until the session was ended or is over. It
holds no token, only its digest: whoever reads the database cannot use a session. Whose it is and
with which role, only the ledger says.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
phase = "pre"


def _word(length: int) -> sa.types.TypeEngine[str]:
    """Return a text type that orders by bytes, in any language of the server."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "session",
        sa.Column("ledger", _word(64), primary_key=True, autoincrement=False),
        sa.Column("digest", sa.LargeBinary(), primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
    )
