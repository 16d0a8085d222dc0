"""The index on the terms of a ledger has the registrations that charge, too (ADR 0068).

No service of 0.2 may run meanwhile, or go on after it: it stops at the first such registration, and
registers data of its own that it charges with nothing (ADR 0066).
"""

from alembic import op

revision = "0012"
down_revision = "0011"
phase = "stopped"

TERMS = (
    "type IN ('population.registered.v1', 'population.extended.v1', 'engine.adopted.v1', "
    "'dataset.registered.v1', 'dataset.registered.v2')"
)


def upgrade() -> None:
    op.execute("DROP INDEX event_terms")
    op.execute(f"CREATE INDEX event_terms ON event (ledger, sequence) WHERE {TERMS}")
