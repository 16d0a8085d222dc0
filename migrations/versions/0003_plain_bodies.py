"""PostgreSQL no longer compresses events that fit into a page. Those that are there stay."""

from alembic import op

from accountant.store.dialects import PLAIN_BODIES, dialect_of

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    if dialect_of(op.get_bind()) == "postgresql":
        op.execute(PLAIN_BODIES)
