"""Whether the ledger itself can be believed, in words."""

from __future__ import annotations

from typing import Final, NamedTuple

from accountant.reporting.ledger_facts import LedgerFacts, RecoveryFacts


class Doubt(NamedTuple):
    """A reason to doubt the ledger itself."""

    headline: str
    text: str


_VOID: Final = "The numbers below cannot be relied on until somebody has found out why."


def doubts(ledger: LedgerFacts) -> list[Doubt]:
    """Every reason, the plainest first."""
    found = []
    if (event := ledger.broken_at) is not None:
        text = f"Event {event} is not what was hashed when it was written. {_VOID}"
        found.append(Doubt("An event of the ledger was changed.", text))
    if (checkpoint := ledger.checkpoint) is not None and not checkpoint.continued:
        text = (
            f"The first {checkpoint.size} events are not those that were signed and published: "
            f"some were changed or removed since. {_VOID}"
        )
        found.append(Doubt("The ledger is not the one that was published.", text))
    if (alarm := ledger.alarm) is not None:
        text = (
            f"The witness {alarm.witness} was shown the ledger and does not find in it what it had "
            "confirmed before: the ledger may have been rewritten, or put back to an older state. "
            f"Nothing is published since event {alarm.sequence}. {_VOID}"
        )
        found.append(Doubt("A witness contradicts this ledger.", text))
    return found


def recovery(ledger: LedgerFacts) -> list[str]:
    """The last recovery as one sentence, if there was any."""
    if not ledger.recovered:
        return []
    last = ledger.recoveries[0]
    times = f" ({ledger.recovered} times so far)" if ledger.recovered > 1 else ""
    spent = " What was signed as spent stays spent." if last.lost else ""
    said = f"The ledger was recovered at event {last.sequence}{times}: {lost(last)}.{spent}"
    return [said]


def lost(one: RecoveryFacts) -> str:
    """What a recovery did without."""
    if not one.lost:
        return "its signing key was lost"
    signed = max(head.size for head in one.lost)
    if signed <= one.left:
        return f"its first {signed} events were no longer those that had been signed"
    gone = signed - one.left
    return f"{gone} of {signed} signed events were gone"
