"""The index on the terms of a ledger has the registrations of datasets too: which rules a request
was in the scope of depends on what its datasets were then.
"""

from alembic import op

revision = "0006"
down_revision = "0005"
phase = "pre"

TERMS = (
    "type IN ('population.registered.v1', 'population.extended.v1', 'dataset.registered.v1', "
    "'engine.adopted.v1')"
)


def upgrade() -> None:
    op.execute("DROP INDEX event_terms")
    op.execute(f"CREATE INDEX event_terms ON event (ledger, sequence) WHERE {TERMS}")
