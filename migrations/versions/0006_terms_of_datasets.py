"""The index on the terms of a ledger has the registrations of datasets too: which rules a request
was in the scope of depends on what its datasets were then.
"""

from alembic import op

from accountant.store.tables import TERMS

revision = "0006"
down_revision = "0005"
phase = "pre"


def upgrade() -> None:
    op.execute("DROP INDEX event_terms")
    op.execute(f"CREATE INDEX event_terms ON event (ledger, sequence) WHERE {TERMS}")
