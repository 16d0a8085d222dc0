"""One decision: what was asked, which comparison failed first, what would fit, every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from msgspec import Struct

from accountant.budget import batches, outcome
from accountant.budget.explain import Decision
from accountant.budget.facts import client_in
from accountant.budget.grants import Status
from accountant.budget.reach import reach_in
from accountant.budget.rules.base import Finding
from accountant.console.amounts import up
from accountant.console.facts.asked import Line, asked, cost
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import INFINITE, Charge, Currency
from accountant.reporting.numbers import minute, places
from accountant.reporting.words import shortened, sums_of

REFUSING: Final = frozenset({outcome.REFUSED, batches.REFUSED, outcome.TIMED_OUT})
MOST: Final = 60
"""Rules whose answers are listed, those that fired first."""
MOST_USED: Final = 4
"""Limits of which those who used them up are told."""
_SHORT: Final = 600
"""Characters of a finding's text in a table."""


class Count(Struct, frozen=True):
    """One inequality, used + charge <= allowed, by what it adds up."""

    name: str
    used: str
    charge: str
    would: str
    allowed: str
    holds: bool


class Quoted(Struct, frozen=True, kw_only=True):
    """What a limit compared: in which account, at which group, in which ways of counting. A
    threshold compares a share of the limit of rule ``of``: an epsilon ``at`` which it fires.
    """

    rule: str
    place: str
    limit: str
    of: str
    at: str
    before: str
    after: str
    counts: tuple[Count, ...]
    beside: tuple[str, ...]
    more: int


class Answer(Struct, frozen=True):
    """What one rule found, and what it answered."""

    rule: str
    text: str
    answer: str
    tone: str


class Option(Struct, frozen=True):
    """Something that would fit."""

    what: str
    text: str


class DecisionFacts(Struct, frozen=True, kw_only=True):
    """A decision. ``said`` is the answer in a word or two, with its ``tone``; ``grant``: the grant
    or waiting request that came of it, and what has become of that.
    """

    population: str
    sequence: int
    time: str
    client: str
    datasets: tuple[str, ...]
    said: str
    tone: str
    headline: str
    lede: str
    effect: str
    failed: Quoted | None
    reason: str
    answers: tuple[Answer, ...]
    more: int
    """Rules whose answers are not listed."""
    options: tuple[Option, ...]
    request: tuple[Line, ...]
    epsilon: str
    grant: str | None
    became: str
    waited: str | None
    policy: int | None


def decision(
    event: Event,
    decided: Decision,
    command: Mapping[str, Any],
    advice: Mapping[str, Any],
    status: Status | str | None = None,
) -> DecisionFacts:
    """Return a judged event in words. ``command``: its request, with texts and names; ``advice``:
    what would fit now; ``status``: of the grant that came of it.
    """
    body, client = event.body, client_in(event)
    charge = Charge.from_json(body["total"])
    epsilon, named = charge.amount(Currency.EPSILON), reach_in(batches.as_single(event).body).named
    said, tone = _said(event, decided)
    costs = cost(charge, command, places_of(epsilon))
    told = _Told(event, decided, client, costs, ", ".join(named), said)
    failed = _first(decided)
    opened = event.type in (outcome.RESERVED, outcome.WAITING, outcome.ADMITTED)
    waited = body["command"].get("grant") if "request" in body["command"] else None
    return DecisionFacts(
        population=event.ledger,
        sequence=event.sequence,
        time=rfc3339(event.time),
        client=client,
        datasets=named,
        said=said,
        tone=tone,
        headline=_headline(told, failed),
        lede=_lede(told, failed),
        effect=_effect(event, status),
        failed=failed,
        reason=decided.findings[0].rule if decided.findings and decided.findings[0].fired else "",
        answers=tuple(_answer(one, event.type) for one in decided.findings[:MOST]),
        more=max(0, len(decided.findings) - MOST),
        options=tuple(options(advice)),
        request=(*asked(client, command), Line("Cost", _cost(charge))),
        epsilon=epsilon,
        grant=f"g{event.sequence}" if opened else None,
        became=str(status or ""),
        waited=waited,
        policy=body.get("policy"),
    )


class _Told(Struct, frozen=True):
    event: Event
    decided: Decision
    client: str
    cost: str
    data: str
    said: str


def places_of(amount: str) -> int:
    """Return how many decimals to print of a cost: three, more of a small one, of which two digits
    are left.
    """
    return 3 if amount == INFINITE else min(9, max(3, 1 - Decimal(amount).adjusted()))


def quoted(one: Finding) -> Quoted | None:
    """Return what a limit compared; None of the finding of another kind of rule."""
    numbers = one.numbers
    if "comparisons" not in numbers:
        return None
    of = numbers.get("of", one.rule)
    return Quoted(
        rule=one.rule,
        place=_place(numbers),
        limit=numbers["limit"]["epsilon"],
        of="" if of == one.rule else of,
        at=numbers["comparisons"][0]["capacity"],
        before=numbers["spent_before"],
        after=numbers["spent_after"],
        counts=tuple(_count(each) for each in numbers["comparisons"]),
        beside=tuple(_place(each) for each in numbers.get("beside", ())),
        more=numbers.get("more", 0),
    )


def options(advice: Mapping[str, Any]) -> list[Option]:
    """Return in words what would be granted now in place of a refused request."""
    found = []
    if "count" in advice:
        number = advice["count"]
        found.append(Option("Fewer times.", f"{number:,} of them instead of all would fit now."))
    if "delta" in advice:
        text = f"Stated with a delta of {advice['delta']}"
        if "scale" in advice:
            text += f" and a scale of {advice['scale']} or more"
        found.append(Option("With a delta.", f"{text} it would fit now."))
    elif "scale" in advice:
        text = f"With a scale of {advice['scale']} or more it would just fit now."
        found.append(Option("The same with more noise.", text))
    if advice.get("times") == "1":
        found.append(Option("As it is.", "Budget has come back since: it would fit now."))
    elif "times" in advice:
        text = f"With all noise scales times {advice['times']} it would just fit now."
        found.append(Option("The same with more noise.", text))
    if "from" in advice:
        text = f"From {minute(advice['from'])} on it fits as it is, by time alone."
        found.append(Option("Later.", text))
    if "requests" in advice:
        number = advice["requests"]
        text = f"After {number:,} more requests about the same people it fits as it is."
        found.append(Option("Later.", text))
    return found


def _first(decided: Decision) -> Quoted | None:
    """Return the comparison of the first rule that fired; where none did, of the first limit."""
    fired = [one for one in decided.findings if one.fired]
    if fired:
        return quoted(fired[0])
    return next((found for one in decided.findings if (found := quoted(one))), None)


def _place(numbers: Mapping[str, Any]) -> str:
    where = ", ".join(f"{name} {value}" for name, value in numbers["group"].items())
    return f"{numbers['scope']}; {where}" if where else str(numbers["scope"])


def _count(one: Mapping[str, Any]) -> Count:
    amounts = one["used"], one["charge"], one.get("kept", "0")
    would = INFINITE
    if INFINITE not in amounts:
        would = format(sum(map(Decimal, amounts), Decimal(0)), "f")
    return Count(_name(one["currency"]), amounts[0], one["charge"], would, *_right(one))


def _right(one: Mapping[str, Any]) -> tuple[str, bool]:
    return one["capacity"], one["holds"]


def _name(currency: str) -> str:
    if currency == Currency.EPSILON:
        return "Plain sum of epsilons"
    if currency == Currency.DELTA:
        return "Own deltas of the mechanisms"
    text = sums_of(Currency(currency))
    return f"{text[0].upper()}{text[1:]}"


def _said(event: Event, decided: Decision) -> tuple[str, str]:
    kind = event.type
    if kind in REFUSING:
        return "Refused", "over"
    if kind == outcome.WAITING:
        person = any(one.action == "approve" for one in decided.holding)
        return ("Left to a person" if person else "Waits for budget"), "info"
    if kind == outcome.RECORDED:
        over = bool(event.body.get("overrun"))
        return ("Ran against a rule" if over else "Recorded"), "over" if over else _flagged(decided)
    if kind == outcome.ADMITTED:
        approved = "approval" in event.body["command"]
        return ("Approved" if approved else "Let in"), _flagged(decided)
    flagged = decided.outcome != "allow"
    return ("Let through and flagged" if flagged else "Let through"), _flagged(decided)


def _flagged(decided: Decision) -> str:
    return "within" if decided.outcome == "allow" else "near"


def _headline(told: _Told, failed: Quoted | None) -> str:
    """Return the sentence that could be the whole page."""
    kind, client = told.event.type, told.client
    asks = f"{client} asked for {told.cost} on {told.data}"
    if kind == outcome.TIMED_OUT:
        return f"Refused: {client} waited in vain for {told.cost} on {told.data}"
    if kind in REFUSING:
        return _refused(told, failed, asks)
    if kind == outcome.RECORDED:
        return f"{told.said}: {client} had run {told.cost} on {told.data}"
    if kind == outcome.ADMITTED and "approval" in told.event.body["command"]:
        return f"Approved by {told.event.by}: {asks}"
    return f"{told.said}: {asks}"


def _refused(told: _Told, failed: Quoted | None, asks: str) -> str:
    if failed is not None:
        epsilon, own, *_ = failed.counts
        digits = places(failed.limit)
        if own.holds and INFINITE not in (failed.before, epsilon.charge):
            left = max(Decimal(failed.limit) - Decimal(failed.before), Decimal(0))
            if left < Decimal(epsilon.charge):
                left = left.quantize(Decimal(1).scaleb(-digits), "ROUND_FLOOR")
                rest = f"only {left:f} is left" if left else "nothing is left"
                return f"Refused: {asks}, and {rest}"
        if not own.holds:
            return f"Refused: {asks}, and its delta does not fit"
        return f"Refused: {asks}, which does not fit"
    rule = told.decided.findings[0].rule.removeprefix("built-in:")
    return f"Refused by rule {rule}: {asks}"


def _lede(told: _Told, failed: Quoted | None) -> str:
    first = told.decided.findings[0] if told.decided.findings else None
    if failed is not None:
        digits = places(failed.limit)
        before, after = up(failed.before, digits), up(failed.after, digits)
        verb = "would make it" if told.event.type in REFUSING else "made it"
        if told.event.type == outcome.WAITING:
            verb = "would make it"
        allows = f"allows {failed.limit}"
        if failed.of:
            at = up(failed.at, digits)
            allows = f"fires beyond {at}, of the {failed.limit} that rule {failed.of} allows,"
        return (
            f"Rule {failed.rule} {allows} on {failed.place}: {before} was spent or reserved, and "
            f"this request {verb} {after}."
        )
    if first is None or not first.fired:
        return "No rule had anything against it."
    text = shortened(first.text, _SHORT).removesuffix(".")
    return f"{text[:1].upper()}{text[1:]}."


def _effect(event: Event, status: Status | str | None) -> str:
    """Return what followed from the decision."""
    if event.type == batches.REFUSED:
        place = batches.first_of(event) + event.body["item"]
        size = event.body["command"]["size"]
        text = f"It is item {place} of a batch of {size}, counted from 0, of which nothing ran."
        return f"{text} Nothing was spent."
    if event.type in REFUSING:
        return "Nothing was released and nothing was spent."
    if event.type == outcome.RECORDED:
        return "It had run before it was recorded, so it is charged in full."
    return _BECAME.get(str(status), "")


_BECAME: Final = {
    "reserved": "It holds its budget until it is reported, or expires and is charged in full.",
    "committed": "It was reported: what ran is charged, and what did not run came back.",
    "released": "Nothing of it ran, by its client’s word: all of it came back.",
    "expired": "It was never reported, so it is charged in full.",
    "waiting": "It waits, and holds no budget meanwhile.",
    "admitted": "It waited, and was let in.",
    "timed out": "It waited in vain: nothing was spent.",
    "cancelled": "Its client cancelled it: nothing was spent.",
    "declined": "A person declined it: nothing was spent.",
}


def _answer(one: Finding, kind: str) -> Answer:
    if not one.fired:
        said, tone = "Let through", "within"
    elif one.action == "flag":
        said, tone = "Flagged", "near"
    elif kind == outcome.RECORDED:
        said, tone = "Ran against it", "over"
    elif one.action == "approve":
        said, tone = ("Refused" if kind in REFUSING else "Left to a person"), "info"
    else:
        said, tone = "Refused" if kind != outcome.WAITING else "Does not fit now", "over"
    return Answer(one.rule.removeprefix("built-in:"), shortened(one.text, _SHORT), said, tone)


def _cost(charge: Charge) -> str:
    epsilon, delta = charge.amount(Currency.EPSILON), charge.amount(Currency.DELTA)
    said = "no epsilon by itself" if epsilon == INFINITE else f"epsilon {epsilon}"
    return said if delta == "0" else f"{said}, delta {delta}"


class Charged(Struct, frozen=True):
    """A charge that used a limit up; ``share`` of what is used, in per cent."""

    sequence: int
    client: str
    dataset: str
    purpose: str
    state: str
    epsilon: str
    share: str | None


class UsedUp(Struct, frozen=True):
    """The charges that used up a limit on which a rule fired, the largest first."""

    rule: str
    sums: str
    charges: tuple[Charged, ...]
    left_out: int


def used_up(found: Sequence[Mapping[str, Any]]) -> tuple[UsedUp, ...]:
    """Return in words what ``reporting.contributors`` found."""
    return tuple(
        UsedUp(
            one["rule"],
            sums_of(Currency(one["currency"])),
            tuple(
                Charged(
                    sequence=each["sequence"],
                    client=each["client"],
                    dataset=each["dataset"]
                    if isinstance(each["dataset"], str)
                    else ", ".join(each["dataset"]),
                    purpose=shortened(each["purpose"] or "", 120),
                    state=each["state"],
                    epsilon=each["epsilon"],
                    share=each["share"],
                )
                for each in one["events"]
            ),
            one["left_out"],
        )
        for one in found[:MOST_USED]
        if one["events"]
    )
