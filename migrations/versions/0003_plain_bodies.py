"""PostgreSQL no longer compresses events that fit into a page. Those that are there stay.

Events of up to 8 KB stand in their table as they are: compressing one takes the server as long as
all the rest of inserting it.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
phase = "pre"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE event SET (toast_tuple_target = 8160)")
