"""Decide commands that spend: requests, records, and the settlement of grants and sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from orjson import Fragment

from accountant.budget import commands as ask
from accountant.budget.bill import Bill, bill_of, charge_written
from accountant.budget.changes import NOTHING, Count, End, Note, Record, Reserve, arrival
from accountant.budget.commands import Command, Envelope, command_from_json
from accountant.budget.decide import approving
from accountant.budget.decide.judging import grant_for, judged, listed
from accountant.budget.decide.proposing import client_of, confirmation, second
from accountant.budget.decide.waiting import SYSTEM, cancel, time_out, wait_or_refuse
from accountant.budget.errors import Conflict, Forbidden, Invalid
from accountant.budget.evaluate import returning
from accountant.budget.grants import Grant, Settled
from accountant.budget.outcome import (
    ANSWERED,
    CLOSED,
    COMMITTED,
    EXPIRED,
    NOTED,
    RECORDED,
    REFUSED,
    RELEASED,
    REPUBLISHED,
    RESERVED,
    Body,
    Outcome,
    outcome,
)
from accountant.budget.reach import named_in
from accountant.budget.request import check_classes, price_all, selected
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import State
from accountant.budget.waiting.asked import Waiting
from accountant.ledger.events import rfc3339
from accountant.privacy.losses import Loss
from accountant.privacy.mechanisms import Mechanism, SparseVector, further_units
from accountant.privacy.units import NOTHING as NO_CHARGE
from accountant.privacy.units import Axis, Charge, Currency, charge_of


def ask_grant(
    state: State, asked: Envelope, command: ask.AskGrant | ask.OpenSparseVector, now: int
) -> list[Outcome]:
    """Reserve the cost of a request, or refuse it; either is an event."""
    if isinstance(command, ask.OpenSparseVector) and command.mechanism.count != 1:
        raise Invalid("one-session", "a sparse vector session has count 1; open one for each")
    judged_as = request, judgement, body = judged(
        state, asked.by, command, now, emptied=asked.emptied
    )
    if not asked.again:
        check_classes(state, request)
    unlocks = state.adopted is not None and state.adopted.policy.unlocking
    if isinstance(command, ask.AskGrant) and state.batch is None:
        # What it unlocks may let in those that wait: then it takes its place among them.
        joins = unlocks and command.wait is not None and state.waiting.requests
        if joins or not judgement.granted:
            return [wait_or_refuse(state, asked, command, now, judged_as)]
    elif not judgement.granted:  # no item of a batch waits, nor does a session
        body |= listed(state, request, judgement, body, asked)
        return [outcome(state, asked, REFUSED, now, body, arrival(state, asked.by, [command]))]
    grant = grant_for(state, asked, request, command.ttl_seconds, now)
    arriving = request.selection if unlocks else None
    change = Reserve(grant, request.purpose, request.allotment, arriving)
    return [outcome(state, asked, RESERVED, now, body, change)]


def record(
    state: State, asked: Envelope, command: ask.RecordInvocations, now: int
) -> list[Outcome]:
    """Book invocations that have already run, over budget or not, compared like a request. Where
    the group would make too many classes of cells, everyone is charged: more, and never less, for
    each person. The event says so, and is believed when it is decided again.
    """
    everyone = False
    if state.classes is not None:
        cells = selected(state.people(), command.subjects)
        everyone = asked.everyone if asked.again else state.beyond(cells) is not None
    placed = {"everyone": everyone, "emptied": asked.emptied}
    request, judgement, body = judged(state, asked.by, command, now, **placed)
    if any(one.code == LimitRule.code and one.action == "block" for one in judgement.fired):
        body["overrun"] = True
    if request.unplaced or everyone:
        body["charged_to"] = "everyone"
    about = request.datasets, request.by, request.selection
    asks = request.purpose, request.allotment
    change = Record(*about, request.total, *asks, per=request.costs.bill.per)
    return [outcome(state, asked, RECORDED, now, body, change)]


def commit(state: State, asked: Envelope, command: ask.CommitGrant, now: int) -> list[Outcome]:
    """Charge the mechanisms that ran and give back the rest."""
    grant = _no_longer_waiting(_own(state, asked, command.grant))
    if grant.session:
        raise Conflict("is-a-session", f"grant {grant.id} is a sparse vector session; close it")
    if late := _late(state, asked, grant, now):
        return late
    held = _still_open(grant, now)
    listed = command.mechanisms
    bill = held.bill if listed is None else _part(state, held, listed)
    change, back = End(held.id, "committed", bill.total, bill.per), held.total - bill.total
    body = _charged(bill) | _trusted(state, asked, back, now)
    return [outcome(state, asked, COMMITTED, now, body, change)]


def _trusted(state: State, asked: Envelope, back: Charge, now: int) -> Body:
    """Return the rules that fire on what is given ``back`` on the client's word; what a second
    person confirmed is no one's word alone. Raises SecondNeeded if a rule blocks.
    """
    if confirmation(asked) is not None or not (any(back.finite) or any(back.infinite)):
        return {}
    fired = returning(state, asked.by, back, now)
    if blocked := [one.rule for one, _ in fired if one.action == "block"]:
        second(asked, {"back": back.amount(Currency.EPSILON), "rules": blocked})
    return {"fired": [[one.rule, one.code] for one, _ in fired]} if fired else {}


def _part(state: State, grant: Grant, mechanisms: Sequence[Mechanism]) -> Bill:
    """Return the cost of a listed part of ``grant``. Raises Invalid unless each mechanism was
    reserved, at least as many times: the rules have judged no others.
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
    engine = state.custody.engine_at(grant.sequence)  # the version that priced the reservation
    people = state.people()
    prices = price_all(mechanisms, people.relation, grant.total.orders, engine, people.units)
    return bill_of(prices, people.units)


def _once(mechanism: Mechanism) -> Mechanism:
    return mechanism.model_copy(update={"count": 1})


def release(state: State, asked: Envelope, command: ask.ReleaseGrant, now: int) -> list[Outcome]:
    """Give back all of a grant of which nothing was executed."""
    found = _own(state, asked, command.grant)
    if isinstance(found, Waiting):
        return cancel(state, asked, found, now)
    grant = _still_open(found, now)
    if grant.positives or grant.negatives:
        raise Conflict(
            "session-has-answered",
            f"session {grant.id} has given answers, so it was executed; close it instead",
        )
    change = End(grant.id, "released", NO_CHARGE.on(grant.total.axis))
    body = _trusted(state, asked, grant.total, now)
    return [outcome(state, asked, RELEASED, now, body, change)]


def republish(
    state: State, asked: Envelope, command: ask.RepublishAnswer, now: int
) -> list[Outcome]:
    """Record that an answer is published again, at no charge: what is released is a function of
    what was released before, so nobody loses more. Raises Conflict unless the grant was committed,
    on these datasets. It names no mechanisms: those are what was committed, and no others.
    """
    grant = _own(state, asked, command.grant)
    if not isinstance(grant, Settled) or grant.status != "committed":
        raise Conflict(
            "not-committed",
            f"grant {grant.id} is {grant.status}, not committed: only an answer of a committed "
            "grant can be published again at no charge; ask for a grant of its own",
            state=grant.status,
        )
    if named_in(command.dataset) != grant.on.named:
        raise Conflict(
            "other-datasets",
            f"grant {grant.id} is on {', '.join(grant.on.named)}, not on "
            f"{', '.join(named_in(command.dataset))}: name the grant under which the answer was "
            "made",
            datasets=list(grant.on.named),
        )
    return [outcome(state, asked, REPUBLISHED, now, {}, NOTHING)]


def expire(state: State, asked: Envelope, command: ask.ExpireGrant, now: int) -> list[Outcome]:
    """Charge a grant whose time has passed. Raises Conflict if it has not."""
    grant = state.grant(command.grant)
    if not isinstance(grant, Grant) or not grant.due(now):
        raise Conflict("not-due", f"grant {grant.id} is not open past its time")
    change = End(grant.id, "expired", grant.total, grant.per)
    return [outcome(state, asked, EXPIRED, now, _charged(grant.bill), change)]


def count(state: State, asked: Envelope, command: ask.CountAnswers, now: int) -> list[Outcome]:
    """Count the answers of a session. Raises Conflict past the cut-off, which it does not cover."""
    grant = _still_open(_session(state, asked, command.grant), now)
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


def close(state: State, asked: Envelope, command: ask.CloseSparseVector, now: int) -> list[Outcome]:
    """End a session and charge its cost."""
    grant = _session(state, asked, command.grant)
    if late := _late(state, asked, grant, now):
        return late
    held = _still_open(grant, now)
    bill = _realised(state, held)
    trusted = _trusted(state, asked, held.total - bill.total, now)
    body = _charged(bill) | trusted | {"positives": held.positives, "negatives": held.negatives}
    return [
        outcome(state, asked, CLOSED, now, body, End(held.id, "committed", bill.total, bill.per))
    ]


def _realised(state: State, grant: Grant) -> Bill:
    """Return the cost of a session after its positives.

    The ex-post bound is path-wise, so only the basic currency gives back; the others keep the
    whole charge (theory: mechanisms/selection.py). The difference of the derived values is
    given back, also where a larger claim was booked. What holds along a path for one step holds
    for each of several, so that it adds up for further units, too.
    """
    mechanism, people = _mechanism(grant), state.people()
    most, relation = mechanism.max_positives or 0, people.relation
    both = [mechanism.loss_after(n, relation) for n in (most, grant.positives)]
    each = []
    for unit in people.units:
        stating = further_units.stating(mechanism, unit.name)
        if isinstance(stating, SparseVector):
            losses = [stating.loss_after(n, relation) for n in (most, grant.positives)]
        else:
            losses = [unit.of(loss, relation) for loss in both]
        each.append((unit.name, grant.bill.to(unit.name) - _unused(losses, grant.total.axis)))
    return Bill.of(grant.total - _unused(both, grant.total.axis), each)


def _unused(losses: Sequence[Loss], axis: Axis) -> Charge:
    """Return the epsilon by which a session, of the whole and of the used loss, used less."""
    before, after = (charge_of(loss, 1).units(Currency.EPSILON) for loss in losses)
    back = before - after if before is not None and after is not None else 0
    return Charge.over(axis, [back if currency == Currency.EPSILON else 0 for currency in axis])


def _session(state: State, asked: Envelope, name: str) -> Grant | Settled:
    grant = _own(state, asked, name)
    if isinstance(grant, Waiting) or not grant.session:
        raise Conflict("not-a-session", f"grant {name} is no sparse vector session; commit it")
    return grant


def _mechanism(grant: Grant) -> SparseVector:
    command = command_from_json(grant.document)
    if not isinstance(command, ask.OpenSparseVector):  # sessions are opened by nothing else
        raise TypeError(f"{grant.id} is a session that {command.command} opened")
    return command.mechanism


def _own(state: State, asked: Envelope, name: str) -> Grant | Settled | Waiting:
    """Return a grant of the client. Raises NotFound or Forbidden."""
    grant = state.grant(name)
    if grant.by != client_of(asked):
        raise Forbidden(
            "not-your-grant", f"grant {name} belongs to another client; only that can settle it"
        )
    return grant


def _no_longer_waiting(grant: Grant | Settled | Waiting) -> Grant | Settled:
    """Return the grant. Raises Conflict for a request that waits: nothing may run on it."""
    if isinstance(grant, Waiting):
        raise Conflict(
            "grant-waits",
            f"{grant.id} waits until {rfc3339(grant.expires)}: run nothing before it is "
            "admitted; release it if it is not wanted any more",
            expires=rfc3339(grant.expires),
        )
    return grant


def _still_open(grant: Grant | Settled, now: int) -> Grant:
    """Return the grant. Raises Conflict if it is settled, or past its time."""
    if grant.status == "expired" or grant.due(now):
        raise Conflict(
            "grant-expired",
            f"grant {grant.id} expired at {rfc3339(grant.expires)} and is charged in full",
            expires=rfc3339(grant.expires),
        )
    if isinstance(grant, Settled) and grant.status == "admitted":
        admitted = f"g{grant.settled}"
        raise Conflict(
            "grant-settled",
            f"request {grant.id} was admitted as grant {admitted}: settle that",
            admitted=admitted,
        )
    if isinstance(grant, Settled):
        raise Conflict("grant-settled", f"grant {grant.id} is already {grant.status}")
    return grant


def _late(state: State, asked: Envelope, grant: Grant | Settled, now: int) -> list[Outcome] | None:
    """Note a late commit. Returns None for a grant in time, and from the second note on."""
    if grant.due(now):
        due = ask.ExpireGrant(grant=grant.id)
        [expired] = expire(state, Envelope(SYSTEM, due), due, now)
        return [expired, outcome(state, asked, NOTED, now, {}, Note(grant.id), after=1)]
    if isinstance(grant, Settled) and grant.status == "expired" and not grant.late_note:
        return [outcome(state, asked, NOTED, now, {}, Note(grant.id))]
    return None


def _charged(bill: Bill) -> Body:
    return {"charge": Fragment(charge_written(bill.total))} | bill.written()


SPENDING: Final[dict[type[Command], Callable[[State, Envelope, Any, int], list[Outcome]]]] = {
    ask.AskGrant: ask_grant,
    ask.OpenSparseVector: ask_grant,
    ask.RecordInvocations: record,
    ask.CommitGrant: commit,
    ask.ReleaseGrant: release,
    ask.RepublishAnswer: republish,
    ask.ExpireGrant: expire,
    ask.CountAnswers: count,
    ask.CloseSparseVector: close,
    ask.AdmitGrant: approving.approve,
    ask.DeclineGrant: approving.decline,
    ask.TimeOutGrant: time_out,
}
