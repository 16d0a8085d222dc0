"""What must have happened, read from the ledger itself: no pipeline is believed.

Noise is random, decisions are not: which requests are allowed, flagged or refused follows from the
parameters alone. The one exception is how many positives the sparse vector session found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Events = Sequence[dict[str, Any]]

Happening = tuple[str, str, str]
"""Who, which type of event, and its outcome where it has one."""

EXPECTED: Final[dict[Happening, int]] = {
    # 7 refreshes of 6 counts at epsilon 0.25, beside the survey's 1.02, fill marriages up to 2.77
    # of 3; from 2.4 on (refreshes 6 and 7) they are flagged; the eighth would reach 3.02.
    ("dashboard", "grant.reserved.v1", "allow"): 30,
    ("dashboard", "grant.reserved.v1", "flag"): 12,
    ("dashboard", "grant.committed.v1", ""): 42,
    ("dashboard", "grant.refused.v1", "lifetime"): 1,
    ("survey-team", "grant.reserved.v1", "allow"): 3,
    ("survey-team", "grant.committed.v1", ""): 2,
    ("survey-team", "sparse_vector.closed.v1", ""): 1,
    ("careless", "grant.refused.v1", "built-in:claim-understated"): 1,
    ("careless", "grant.refused.v1", "reasons"): 1,
    ("careless", "grant.refused.v1", "no-bare-answers"): 1,
    ("careless", "grant.refused.v1", "built-in:sparse-vector-broken"): 1,
    # One that was asked for twice with one key, and one that was open at the crash.
    ("careless", "grant.reserved.v1", "allow"): 2,
    ("careless", "grant.committed.v1", ""): 1,
    ("careless", "invocation.recorded.v1", "overrun"): 1,
    (":accountant", "grant.expired.v1", ""): 1,
}
_SPENDING: Final = ("grant.", "invocation.", "sparse_vector.closed.")


def happened_in_order(events: Events) -> dict[Happening, tuple[dict[str, Any], int]]:
    """Everything that happened: its first event, and how often; in the order of the first."""
    found: dict[Happening, tuple[dict[str, Any], int]] = {}
    for event in events:
        key = (event["by"], event["type"], _outcome(event))
        first, times = found.get(key, (event, 0))
        found[key] = first, times + 1
    return found


def differences(events: Events) -> list[str]:
    """Every way in which the ledger tells another story than it must."""
    found = {
        key: times
        for key, (_, times) in happened_in_order(events).items()
        if key[1].startswith(_SPENDING)
    }
    return [
        f"{' '.join(key).rstrip()} happened {found.get(key, 0)} times, not {EXPECTED.get(key, 0)}"
        for key in sorted(EXPECTED.keys() | found.keys())
        if found.get(key, 0) != EXPECTED.get(key, 0)
    ]


def session(events: Events) -> dict[str, Any]:
    """The closed sparse vector session: its positives, negatives, and what came back."""
    return next(e for e in events if e["type"] == "sparse_vector.closed.v1")


def _outcome(event: dict[str, Any]) -> str:
    fired = event.get("fired", [])
    match event["type"]:
        case "grant.refused.v1":
            return str(fired[0][0])  # a rule that blocks comes first
        case "invocation.recorded.v1" if event.get("overrun"):
            return "overrun"
        case "invocation.recorded.v1" | "grant.reserved.v1":
            return "flag" if fired else "allow"
    return ""
