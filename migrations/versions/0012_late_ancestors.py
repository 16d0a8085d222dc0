"""Registrations of datasets say what they charge late ancestors with (ADR 0066).

No table changes. A service of 0.2 would pass over that and grant what is used up, so that none may
run beside one of 0.3: this is what stops an upgrade that would let both serve.
"""

revision = "0012"
down_revision = "0011"
phase = "stopped"


def upgrade() -> None:
    """Change nothing."""
