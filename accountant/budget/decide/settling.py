"""What becomes of a grant: committed, released, or expired and charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from orjson import Fragment

from accountant.budget.changes import End, Note
from accountant.budget.commands import (
    CommitGrant,
    Envelope,
    ExpireGrant,
    ReleaseGrant,
    command_from_json,
)
from accountant.budget.errors import Conflict, Forbidden, Invalid
from accountant.budget.outcome import COMMITTED, EXPIRED, NOTED, RELEASED, Outcome, outcome
from accountant.budget.request import price_all
from accountant.budget.state import Grant, Settled, State
from accountant.ledger.events import rfc3339, written
from accountant.privacy.mechanisms import Mechanism
from accountant.privacy.units import NOTHING, Charge, total

SYSTEM: Final = ":accountant"
"""Who asks for expiries. (No key's name begins with a colon.)"""


def own(state: State, asked: Envelope, name: str) -> Grant | Settled:
    """A grant of whoever asks. Raises NotFound or Forbidden."""
    grant = state.grant(name)
    if grant.by != asked.by:
        raise Forbidden(
            "not-your-grant",
            f"grant {name} belongs to another client; only that can settle it",
        )
    return grant


def still_open(grant: Grant | Settled, now: int) -> Grant:
    """The grant. Raises Conflict if it is settled, or past its time."""
    if grant.status == "expired" or grant.due(now):
        raise Conflict(
            "grant-expired",
            f"grant {grant.id} expired at {rfc3339(grant.expires)} and is charged in full",
            expires=rfc3339(grant.expires),
        )
    if isinstance(grant, Settled):
        raise Conflict("grant-settled", f"grant {grant.id} is already {grant.status}")
    return grant


def commit(state: State, asked: Envelope, command: CommitGrant, now: int) -> list[Outcome]:
    """Charges what was run and gives back the rest."""
    grant = own(state, asked, command.grant)
    if grant.session:
        raise Conflict("is-a-session", f"grant {grant.id} is a sparse vector session; close it")

    def final(held: Grant) -> Charge:
        listed = command.mechanisms
        return held.total if listed is None else _part(state, held, listed)

    return settle(state, asked, grant, now, COMMITTED, final, {})


def _part(state: State, grant: Grant, mechanisms: Sequence[Mechanism]) -> Charge:
    """What a listed part of ``grant`` costs. Raises Invalid if it is no part: only what was judged
    may be committed, so each mechanism must have been asked for, at least as many times.
    """
    left: Counter[Mechanism] = Counter()
    for mechanism in getattr(command_from_json(grant.document), "mechanisms", ()):
        left[_once(mechanism)] += mechanism.count
    for mechanism in mechanisms:
        reserved = left[_once(mechanism)]
        if mechanism.count > reserved:
            raise Invalid(
                "commit-exceeds-reservation",
                f"grant {grant.id} reserved {reserved} of this {mechanism.kind}, not "
                f"{mechanism.count}: list mechanisms as they were asked for, with the same or a "
                "smaller count, and record anything else that ran with POST …/invocations",
                reserved=reserved,
                committed=mechanism.count,
            )
        left[_once(mechanism)] -= mechanism.count
    engine = state.custody.engine_at(grant.sequence)  # what was reserved is what comes back
    prices = price_all(mechanisms, state.people().relation, grant.total.orders, engine)
    return total(p.charge for p in prices)


def _once(mechanism: Mechanism) -> Mechanism:
    return mechanism.model_copy(update={"count": 1})


def settle(
    state: State,
    asked: Envelope,
    grant: Grant | Settled,
    now: int,
    kind: str,
    final: Callable[[Grant], Charge],
    extra: dict[str, Any],
) -> list[Outcome]:
    """A grant past its time is charged in full, noticed or not; then a commit is only a note."""
    if grant.due(now):
        due = ExpireGrant(grant=grant.id)
        [expired] = expire(state, Envelope(SYSTEM, due), due, now)
        return [expired, outcome(state, asked, NOTED, now, {}, Note(grant.id), after=1)]
    if isinstance(grant, Settled) and grant.status == "expired" and not grant.late_note:
        return [outcome(state, asked, NOTED, now, {}, Note(grant.id))]
    held = still_open(grant, now)
    charge = final(held)
    body = {"charge": _written(charge), **extra}
    return [outcome(state, asked, kind, now, body, End(held.id, "committed", charge))]


def release(state: State, asked: Envelope, command: ReleaseGrant, now: int) -> list[Outcome]:
    """Gives back all of a grant of which nothing was executed."""
    grant = still_open(own(state, asked, command.grant), now)
    if grant.positives or grant.negatives:
        raise Conflict(
            "session-has-answered",
            f"session {grant.id} has given answers, so it was executed; close it instead",
        )
    nothing = NOTHING.on(grant.total.axis)
    return [outcome(state, asked, RELEASED, now, {}, End(grant.id, "released", nothing))]


def expire(state: State, asked: Envelope, command: ExpireGrant, now: int) -> list[Outcome]:
    """Charges a grant whose time has passed. Raises Conflict if it has not."""
    grant = state.grant(command.grant)
    if isinstance(grant, Settled) or not grant.due(now):
        raise Conflict("not-due", f"grant {grant.id} is not open past its time")
    body = {"charge": _written(grant.total)}
    return [outcome(state, asked, EXPIRED, now, body, End(grant.id, "expired", grant.total))]


def _written(charge: Charge) -> Fragment:
    return Fragment(written(charge.to_json()))
