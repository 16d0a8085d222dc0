"""${message}"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
phase = "pre"  # or "post": see accountant/store/migrate.py


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
