"""Sparse vector sessions: count what was answered, close, give back what was not used."""

from __future__ import annotations

from functools import partial

from accountant.budget.changes import Count
from accountant.budget.commands import (
    CloseSparseVector,
    CountAnswers,
    Envelope,
    OpenSparseVector,
    command_from_json,
)
from accountant.budget.decide.settling import own, settle, still_open
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.outcome import ANSWERED, CLOSED, Outcome, outcome
from accountant.budget.state import Grant, Settled, State
from accountant.privacy.mechanisms import SparseVector
from accountant.privacy.units import Charge, Currency, charge_of


def _session(state: State, asked: Envelope, name: str) -> Grant | Settled:
    grant = own(state, asked, name)
    if not grant.session:
        raise Conflict("not-a-session", f"grant {name} is no sparse vector session; commit it")
    return grant


def _mechanism(grant: Grant) -> SparseVector:
    command = command_from_json(grant.document)
    if not isinstance(command, OpenSparseVector):  # sessions are opened by nothing else
        raise TypeError(f"{grant.id} is a session that {command.command} opened")
    return command.mechanism


def count(state: State, asked: Envelope, command: CountAnswers, now: int) -> list[Outcome]:
    """Counts answers given. Raises Conflict past the cut-off: such answers are no part of it."""
    grant = still_open(_session(state, asked, command.grant), now)
    most = _mechanism(grant).max_positives or 0
    positives = grant.positives + command.positives
    if not (command.positives or command.negatives):
        raise Invalid("nothing-counted", "count at least one answer")
    if grant.positives >= most or positives > most:
        raise Conflict(
            "session-exhausted",
            f"session {grant.id} stops after {most} positives and would have {positives}: give no "
            "further answers, close it, and record any answer given beyond that with POST "
            "…/invocations",
            max_positives=most,
            positives=positives,
        )
    negatives = grant.negatives + command.negatives
    body = {"positives": positives, "negatives": negatives}
    change = Count(grant.id, positives, negatives)
    return [outcome(state, asked, ANSWERED, now, body, change)]


def close(state: State, asked: Envelope, command: CloseSparseVector, now: int) -> list[Outcome]:
    """Ends a session and charges what it has cost."""
    grant = _session(state, asked, command.grant)
    counted = {} if isinstance(grant, Settled) else _counted(grant)
    final = partial(realised, state)
    return settle(state, asked, grant, now, CLOSED, final, counted)


def _counted(grant: Grant) -> dict[str, int]:
    return {"positives": grant.positives, "negatives": grant.negatives}


def realised(state: State, grant: Grant) -> Charge:
    """What a session has cost after its positives.

    The ex-post bound is path-wise, so only the basic currency gives back; the others keep the
    whole charge (theory: mechanisms/selection.py). What is given back is the difference of the
    derived values, also where a larger claim was booked.
    """
    mechanism, relation = _mechanism(grant), state.people().relation
    whole = charge_of(mechanism.loss_after(mechanism.max_positives or 0, relation), 1)
    used = charge_of(mechanism.loss_after(grant.positives, relation), 1)
    before, after = whole.units(Currency.EPSILON), used.units(Currency.EPSILON)
    back = before - after if before is not None and after is not None else 0
    axis = grant.total.axis
    only_epsilon = [back if currency == Currency.EPSILON else 0 for currency in axis]
    return grant.total - Charge.over(axis, only_epsilon)
