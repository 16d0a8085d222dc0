"""Which datasets of which ledgers are the same data, by the digest of their normal form.

The rows follow from the ledgers: a service enters at its start what is missing here, and so fills
the table the first time. The key is what keeps two services from registering the same data at once.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
phase = "pre"
_REFUSED = "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
_SQLITE = (
    f"CREATE TRIGGER data_use_no_update BEFORE UPDATE ON data_use {_REFUSED}",
    f"CREATE TRIGGER data_use_no_delete BEFORE DELETE ON data_use {_REFUSED}",
    "CREATE TRIGGER data_use_no_replace BEFORE INSERT ON data_use WHEN EXISTS (SELECT 1 FROM"  # noqa: S608 (words of our own)
    f" data_use WHERE digest = NEW.digest AND number = NEW.number) {_REFUSED}",
)
_POSTGRESQL = [
    statement
    for verb, each in (("UPDATE", "ROW"), ("DELETE", "ROW"), ("TRUNCATE", "STATEMENT"))
    for name in [f"data_use_no_{verb.lower()}"]
    for statement in (
        f"CREATE TRIGGER {name} BEFORE {verb} ON data_use FOR EACH {each}"
        " EXECUTE FUNCTION accountant_append_only()",
        f"ALTER TABLE data_use ENABLE ALWAYS TRIGGER {name}",
    )
]


def _word(length: int) -> sa.types.TypeEngine[str]:
    """Return a text type that orders by bytes, in any language of the server."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "data_use",
        sa.Column("digest", sa.LargeBinary(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("ledger", _word(64), nullable=False),
        sa.Column("dataset", _word(64), nullable=False),
    )
    op.create_index("data_use_ledger", "data_use", ["ledger"])
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in _SQLITE if sqlite else _POSTGRESQL:
        op.execute(statement)
