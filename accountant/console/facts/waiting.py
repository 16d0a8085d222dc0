"""Requests that wait: for a person first, then for budget; and what one of them would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from accountant.budget.decide.approving import asking, looked_at
from accountant.budget.errors import Problem
from accountant.budget.explain import in_words
from accountant.budget.proposals import digest_of
from accountant.budget.reach import reach_in
from accountant.budget.rules.base import Finding
from accountant.budget.state import State
from accountant.budget.waiting.asked import Waiting
from accountant.budget.waiting.due import place_of
from accountant.console.facts.asked import Line, asked, cost
from accountant.console.facts.decision import places_of
from accountant.console.facts.proposal import Closing
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import INFINITE, Charge, Currency
from accountant.reporting.effect import effect_of
from accountant.reporting.numbers import day, minute
from accountant.reporting.texts import Texts
from accountant.reporting.words import shortened

MOST: Final = 60
"""Requests that one page lists."""
JUDGED: Final = 200
"""Requests of which it is looked whether a person has to decide them: each is judged for that."""
ORDERED: Final = 500
"""Requests that are put in the order of a policy: each is priced for that."""
_LONGEST: Final = 300


class Waits(Struct, frozen=True, kw_only=True):
    """A request that waits. ``person``: whether a rule leaves it to one; ``held_up``: the rules
    that do, or that block it for now, and in words why.
    """

    id: str
    client: str
    datasets: tuple[str, ...]
    epsilon: str
    purpose: str
    since: str
    until: str
    person: bool
    held_up: tuple[str, ...]
    text: str


class Effect(Struct, frozen=True, kw_only=True):
    """What a request would do to one account of a limit."""

    rule: str
    scope: str
    limit: str
    before: str
    after: str
    runs_out: str
    """When nothing is left, in words."""


class RequestFacts(Struct, frozen=True, kw_only=True):
    """A request that waits, or has waited. ``stage``: person, budget, stuck, lapsed, or how
    it ended.
    """

    headline: str
    lede: str

    id: str
    sequence: int
    client: str
    datasets: tuple[str, ...]
    epsilon: str
    since: str
    until: str | None
    digest: str
    stage: str
    request: tuple[Line, ...]
    asks: tuple[Finding, ...]
    blocked: tuple[Finding, ...]
    effects: tuple[Effect, ...]
    closing: Closing | None
    grant: str | None
    """The grant that it was let in as."""


class Queue(Struct, frozen=True):
    """A page of the requests that wait. ``people``: how many of the first ``judged`` wait for a
    person; ``total``: all that wait.
    """

    listed: tuple[Waits, ...]
    people: int
    judged: int
    total: int


def waiting(state: State, texts: Texts, now: int, skip: int = 0) -> Queue:
    """Return at most ``MOST`` requests that wait, from the ``skip``-th on: those that wait for a
    person first, then the others in the order in which they would be let in. Beyond ``ORDERED``
    they are taken as they came.
    """
    found = state.waiting.in_order()
    if len(found) <= ORDERED and state.adopted and state.adopted.policy.order != "arrival":
        found = sorted(found, key=lambda one: place_of(state, one))
    people = [one for one in found[:JUDGED] if _is_for_a_person(state, one, now)]
    names = {one.id for one in people}
    found = [*people, *(one for one in found if one.id not in names)]
    shown = (_waits(state, one, texts, now) for one in found[skip : skip + MOST])
    return Queue(tuple(shown), len(people), min(JUDGED, len(found)), len(found))


def _is_for_a_person(state: State, one: Waiting, now: int) -> bool:
    """Return whether a person has to decide a request."""
    rules = state.adopted.policy.rules if state.adopted else ()
    if one.due(now) or all(rule.action != "approve" for rule in rules):
        return False
    try:
        return bool(asking(looked_at(state, one, now)[1]))
    except Problem:  # the terms have changed: it can only time out
        return False


def _waits(state: State, one: Waiting, texts: Texts, now: int) -> Waits:
    command = texts.open(one.sequence, one.document)
    epsilon, person, rules, text = INFINITE, False, tuple[str, ...](), ""
    try:
        request, judged = looked_at(state, one, now)
    except Problem as problem:  # the terms have changed: it can only time out
        text = problem.detail
    else:
        epsilon = request.total.amount(Currency.EPSILON)
        decision = in_words(state, request, judged, one.asks().to_json())
        person = bool(asking(judged)) and not one.due(now)
        rules = tuple(each.rule for each in decision.holding)
        blocking = [each.text for each in decision.holding if each.action == "block"]
        text = "; ".join(blocking or [each.text for each in decision.holding])
    if one.due(now):
        text = "its time has passed: it is refused with the next event"
    return Waits(
        id=one.id,
        client=one.by,
        datasets=one.on.named,
        epsilon=epsilon,
        purpose=shortened(command.get("purpose") or "", 120),
        since=rfc3339(one.opened),
        until=rfc3339(one.expires),
        person=person,
        held_up=rules,
        text=shortened(text or "nothing: it is let in with the next event", _LONGEST),
    )


def effects(state: State, one: Waiting, now: int) -> tuple[Effect, ...]:
    """Return what a request that waits would do to each account, the fullest first; nothing if it
    cannot be judged as things are.
    """
    try:
        found = effect_of(state, one.by, one.asks(), now)
    except Problem:
        return ()
    return tuple(sorted(map(_effect, found), key=_fullness, reverse=True))


def _effect(line: Mapping[str, Any]) -> Effect:
    return Effect(
        rule=line["rule"],
        scope=line["scope"],
        limit=line["limit"],
        before=line["spent_before"],
        after=line["spent_after"],
        runs_out=_runs_out(line),
    )


def _runs_out(line: Mapping[str, Any]) -> str:
    used = line["spent_before"]
    if used == INFINITE or float(used) >= float(line["limit"]):
        return "used up already"
    if "runs_out_before" not in line:
        return "no date"
    before, after = (day(line[f"runs_out_{name}"]) for name in ("before", "after"))
    return after if before == after else f"{after} instead of {before}"


def _fullness(one: Effect) -> float:
    if one.after == INFINITE:
        return float("inf")
    return float(one.after) / max(float(one.limit), 1e-30)


def request(
    event: Event,
    command: Mapping[str, Any],
    stage: str,
    until: str | None = None,
    holding: Sequence[Finding] = (),
    effect: tuple[Effect, ...] = (),
    *,
    closing: Closing | None = None,
    grant: str | None = None,
    why: str = "",
) -> RequestFacts:
    """Return a request that waits, or has waited, by the event with which that began. ``command``:
    its request, with texts and names; ``why`` it cannot be judged, if so.
    """
    named = reach_in(event.body).named
    asks = tuple(each for each in holding if each.action == "approve")
    blocked = tuple(each for each in holding if each.action == "block")
    total = Charge.from_json(event.body["total"])
    epsilon = total.amount(Currency.EPSILON)
    return RequestFacts(
        headline=_headline(
            stage, event.by, epsilon, cost(total, command, places_of(epsilon)), ", ".join(named)
        ),
        lede=_lede(stage, asks, blocked, closing, why),
        id=f"g{event.sequence}",
        sequence=event.sequence,
        client=event.by,
        datasets=named,
        epsilon=epsilon,
        since=rfc3339(event.time),
        until=until,
        digest=digest_of(event.to_bytes()),
        stage=stage,
        request=asked(event.by, command),
        asks=asks,
        blocked=blocked,
        effects=effect,
        closing=closing,
        grant=grant,
    )


def _headline(stage: str, client: str, epsilon: str, costs: str, data: str) -> str:
    if stage == "person":
        return f"Let {client} {'run' if epsilon == INFINITE else 'spend'} {costs} on {data}?"
    if stage in ("budget", "stuck"):
        return f"{client} waits for {costs} on {data}"
    return f"{client} asked for {costs} on {data}"


def _lede(
    stage: str,
    asks: Sequence[Finding],
    blocked: Sequence[Finding],
    closing: Closing | None,
    why: str,
) -> str:
    if stage == "person":
        rules = [one.rule for one in asks]
        plural = len(rules) > 1
        text = "It fits."
        if blocked:
            text = f"It does not fit now, whoever approves: rule {blocked[0].rule}."
        leaves = "rules {} leave" if plural else "rule {} leaves"
        return f"{text} It waits because {leaves.format(' and '.join(rules))} it to a person."
    if stage == "stuck":
        return f"It cannot be let in as things are now: {why}."
    if stage == "budget":
        return "It is let in as soon as it fits. No person can let it in."
    if closing is None:
        return "Its time has passed: it is refused. Nothing was spent."
    when = minute(closing.time)
    return {
        "approved": f"{closing.by} approved it on {when}, event {closing.sequence}.",
        "admitted": f"It was let in on {when}, event {closing.sequence}, when it fitted.",
        "declined": f"{closing.by} refused it on {when}, event {closing.sequence}. "
        "Nothing was spent.",
        "cancelled": f"{closing.by} cancelled it on {when}. Nothing was spent.",
    }.get(stage, f"It waited in vain until {when}. Nothing was spent.")
