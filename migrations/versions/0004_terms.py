"""An index on the few events that say on what terms a ledger counts: who its people are, and which
bounds decide. A decision is explained without reading the events between.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
phase = "pre"

TERMS = "type IN ('population.registered.v1', 'population.extended.v1', 'engine.adopted.v1')"


def upgrade() -> None:
    op.execute(f"CREATE INDEX event_terms ON event (ledger, sequence) WHERE {TERMS}")
