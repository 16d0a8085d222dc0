"""What the page of an account says in words."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NamedTuple

from accountant.budget.state import ALL
from accountant.console.amounts import grouped
from accountant.console.facts.account import AccountFacts, Limit
from accountant.console.facts.accounts import UsualFacts
from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import (
    NO_BOUND,
    counted,
    day,
    down,
    even_chance,
    percent_of,
    places,
    up,
)
from accountant.reporting.verdict import in_words, is_over

MOST_STEPS: Final = 40
"""Rows of the table beside the picture."""
_STEPS: Final = (Decimal("0.4"), Decimal("0.6"), Decimal("0.8"))
"""The parts of a limit from which on a place is drawn darker."""
_LOW: Final = Decimal("0.05")


class Figure(NamedTuple):
    """A number with its name and what it is compared with; ``exact``: in full, where rounded."""

    name: str
    value: str
    beside: str
    exact: str = ""


def headline(facts: AccountFacts) -> str:
    """Return the sentence that could be the whole page."""
    limit = facts.limit
    if limit is None:
        return f"No limit covers {in_words(facts.dataset)}"
    if limit.status in ("over", "over_if_reservations_run"):
        return _over(facts.dataset, limit)
    if limit.total.remaining == "0" or limit.total.together == "0":
        some = "Nothing is left of" if limit.total.remaining == "0" else "Nothing was spent of"
        return f"{some} {grouped(limit.epsilon)}"
    left = (
        f"{down(limit.total.remaining, places(limit.epsilon))} of {grouped(limit.epsilon)} is left"
    )
    if facts.usual is None or limit.action != "block":
        return left
    if more := facts.usual.more:
        enough = f"enough for about {counted(more, 'usual request')}"
    elif _costs_more(facts.usual, limit):
        enough = "too little for a usual request"
    else:
        enough = "and yet a usual request is refused"
    return f"{left}, {enough}"


def _cost(usual: UsualFacts, limit: Limit) -> str:
    """Return what a usual request costs, and whether the next one is refused."""
    text = f"A usual request costs {up(usual.epsilon, places(limit.epsilon))}"
    if usual.more or limit.action != "block":
        return f"{text}, the median of the latest ones."
    if _costs_more(usual, limit):
        return f"{text}, so the next one about everyone is refused."
    return f"{text}. The next one about everyone is refused, by this rule or another one."


def _costs_more(usual: UsualFacts, limit: Limit) -> bool:
    """Return whether a usual request costs more than is left, as far as its epsilon tells."""
    if usual.epsilon == INFINITE:
        return True
    return Decimal(usual.epsilon) > Decimal(limit.total.remaining)


def _over(dataset: str, limit: Limit) -> str:
    if limit.status == "over":
        return is_over(dataset, limit.total.spent, limit.epsilon, grouped)
    held = up(limit.total.together, places(limit.epsilon))
    goes = "go over their limit" if dataset == ALL else "goes over its limit"
    name = in_words(dataset)
    return f"{name} {goes} if what is reserved runs: {held} of {grouped(limit.epsilon)}"


def lede(facts: AccountFacts) -> str:
    """Return what the first sentence leaves open."""
    limit = facts.limit
    if limit is None:
        why = "no policy is in force" if not facts.adopted else "no limit of the policy covers it"
        return f"Requests on it are not bounded by an amount: {why}."
    said = []
    if limit.status == "over":
        holds = up(limit.total.sum_of_epsilons, places(limit.epsilon))
        said.append(
            f"The promise of rule {limit.rule} no longer holds"
            + ("; nothing is promised." if holds == NO_BOUND else f"; that of {holds} does.")
        )
    if facts.usual is not None:
        said.append(_cost(facts.usual, limit))
    if limit.worst:
        said.append(f"Most was spent on {group(limit.worst)}; the numbers are theirs.")
    if limit.window:
        until = f", next on {day(limit.ends)}" if limit.ends else ""
        said.append(f"It is counted over {limit.window}: budget comes back with time{until}.")
    if limit.shared:
        said.append("The dataset has no limit of its own: this one is on all data together.")
    if limit.action != "block":
        said.append("What goes beyond this limit is not refused, only flagged or left to a person.")
    if not said and limit.total.together == "0":
        said.append("Nothing was spent on it yet.")
    return " ".join(said)


def group(worst: dict[str, str]) -> str:
    """Return a group of people in words."""
    return " and ".join(f"{name} {values}" for name, values in worst.items())


def figures(facts: AccountFacts, limit: Limit) -> tuple[Figure, ...]:
    """Return the four numbers below the first sentence."""
    total, digits = limit.total, places(limit.epsilon)
    held = facts.reservations
    grants = counted(held.open, "open grant") if held.open else "no open grant"
    if held.epsilon != INFINITE and up(held.epsilon, digits) != up(total.reserved, digits):
        grants += f", {up(held.epsilon, digits)} about all groups"
    kept = f", {down(total.kept, digits)} kept by allotments" if total.kept != "0" else ""
    usual = "of epsilon" if limit.action == "block" else "this limit refuses nothing"
    if facts.usual is not None and limit.action == "block":
        each = up(facts.usual.epsilon, digits)
        more = counted(facts.usual.more, "usual request")
        usual = f"about {more} of {each}" if facts.usual.more else f"no usual request of {each}"
    return (
        Figure(
            "Spent",
            up(total.spent, digits),
            f"{percent_of(total.spent, limit.epsilon)} of the limit",
            total.spent,
        ),
        Figure(
            "Reserved",
            up(total.reserved, digits),
            grants,
            total.reserved,
        ),
        Figure("Left", down(total.remaining, digits), usual + kept, total.remaining),
        _runs_out(limit),
    )


def _runs_out(limit: Limit) -> Figure:
    forecast = limit.forecast
    long, short = forecast.paces
    if limit.status == "over":
        since = f"since {day(forecast.over_since)}" if forecast.over_since else "more than allowed"
        return Figure("Runs out", "Over", since)
    if limit.total.remaining == "0":
        return Figure("Runs out", "Used up", "nothing is left now")
    if long.runs_out is None:
        return Figure("Runs out", "No date", forecast.why or "not known")
    beside = "at the pace of 28 days"
    if short.runs_out is not None and short.runs_out[:10] != long.runs_out[:10]:
        beside = f"{day(short.runs_out)} at this week’s pace"
    return Figure("Runs out", day(long.runs_out), beside)


def chances(limit: Limit) -> str:
    """Return what the amounts mean for an even chance."""
    spent, most = even_chance(limit.total.spent), even_chance(limit.largest or limit.epsilon)
    return (
        f"At what is spent, an even chance about {limit.unit} becomes at most {spent}; at the "
        f"limit, at most {most}."
    )


def gates_said(limit: Limit) -> tuple[str, bool]:
    """Return what the ways of adding up come to, and whether they agree."""
    digits = places(limit.epsilon)
    known = {up(gate.used, digits) for gate in limit.gates}
    number = len(limit.gates)
    if number == 1:
        return f"One way of counting: {known.pop()}", True
    if len(known) == 1:
        return f"{number} ways of counting agree: {known.pop()}", True
    here = next((g for g in limit.gates if g.used_here), limit.gates[0])
    name = f"{here.name[:1].lower()}{here.name[1:]}"
    return f"{number} ways of counting differ; this limit uses {name}", False
