"""Keep a kind of alerts back for a while: with a reason, an end, and the name of who said so."""

from __future__ import annotations

from typing import Final, get_args

from accountant.budget.errors import Invalid
from accountant.config.alerts import Kind
from accountant.ledger.events import rfc3339
from accountant.notifying.alerting import ALL, DAY
from accountant.store.ledgers import Ledgers, Mute

LONGEST: Final = 366
"""Days."""
_MOST_REASON: Final = 500


def mute(ledgers: Ledgers, ledger: str, one: Mute) -> Mute:
    """Keep a mute; its number is given here. Raise Invalid if it has no end in time, or no reason,
    StoreError.
    """
    if one.kind not in (*get_args(Kind), ALL):
        kinds = ", ".join((*get_args(Kind), ALL))
        raise Invalid("invalid-request", f"there is no kind {one.kind!r}; there are: {kinds}")
    if not one.since < one.until <= one.since + LONGEST * DAY:
        raise Invalid(
            "invalid-request",
            f"a mute ends within {LONGEST} days from now, {rfc3339(one.since)}; this one would at "
            f"{rfc3339(one.until)}",
        )
    if not one.reason.strip() or len(one.reason) > _MOST_REASON:
        raise Invalid(
            "invalid-request",
            f"a mute has a reason of 1 to {_MOST_REASON} characters; this one has "
            f"{len(one.reason.strip())}",
        )
    with ledgers.writing(ledger) as writing:
        kept = one._replace(number=len(writing.mutes(ledger)))
        writing.keep_mute(ledger, kept)
        writing.commit()
    return kept


def unmute(ledgers: Ledgers, ledger: str, kind: str, now: int, by: str) -> int:
    """End the mutes of a kind that hold; return how many. Raise Invalid if none does."""
    with ledgers.writing(ledger) as writing:
        holding = [one for one in writing.mutes(ledger) if one.kind == kind and one.holds(now)]
        if not holding:
            raise Invalid("invalid-request", f"alerts of kind {kind} of {ledger} are not muted")
        for one in holding:
            writing.end_mute(ledger, one.number, now, by)
        writing.commit()
    return len(holding)
