"""The summary at the top of the report: a level, a headline, and the points behind it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from accountant.budget.state import ALL, State
from accountant.privacy.units import INFINITE
from accountant.reporting.custody import LedgerFacts, RecoveryFacts
from accountant.reporting.history import History
from accountant.reporting.numbers import places, up
from accountant.reporting.schema import DatasetFacts, Level, Standing, Summary
from accountant.reporting.words import shortened

_MOST_NAMED: Final = 5
_MOST_WORDS: Final = 300
"""Characters of what somebody found, in their words."""
_TO_LOOK_AT: Final = ("overrun", "against_rule", "unverifiable")
"""Spent against a rule, or on a claim that nothing verifies. A blocked request or an
expired reservation only shows that the rules work."""
_VOID: Final = "Do not rely on the numbers below until the cause is known."
_EVENTS: Final = (
    ("overrun", "request", "ran over a limit"),
    ("against_rule", "request", "ran against a rule"),
    ("unverifiable", "request", "made a claim that nothing verifies"),
    ("understated", "request", "claimed too little"),
    ("expired", "reservation", "expired and {was} charged in full"),
    ("blocked", "request", "{was} blocked"),
)


def verdict(
    state: State,
    ledger: LedgerFacts,
    data: tuple[DatasetFacts, ...],
    limits: tuple[Standing, ...],
    history: History,
) -> Summary:
    """Return the headline and the points behind it, the gravest first."""
    if state.population is None:
        return Summary("watch", f"No population called {state.ledger} is registered.", ())
    doubted, main = doubts(ledger), [s for s in limits if not s.divides]
    grave = [_over(s) for s in main if s.status == "over"]
    watched = [*_recovery(ledger), *_watch(limits, main, data)]
    level: Level = "good"
    if doubted or grave:
        level = "bad"
    elif watched or any(history.counts[sort].total() for sort in _TO_LOOK_AT):
        level = "watch"
    headline = _headline(state, data, main)
    if doubted:
        headline = f"{next(iter(doubted))} By its numbers: {headline[0].lower()}{headline[1:]}"
    points = [*doubted.values(), *_cut(grave), *watched, *_open(data), *_events(history)]
    return Summary(level, headline, tuple(points))


def doubts(ledger: LedgerFacts) -> dict[str, str]:
    """Return every reason to distrust the ledger, the plainest first: a headline and its text."""
    found = {}
    if (event := ledger.broken_at) is not None:
        found["An event of the ledger was changed."] = (
            f"Event {event} does not match the hash that was stored with it. {_VOID}"
        )
    if (checkpoint := ledger.checkpoint) is not None and not checkpoint.continued:
        found["The ledger is not the one that was published."] = (
            f"The first {checkpoint.size} events are not those that were signed and published: "
            f"some were changed or removed. {_VOID}"
        )
    if (alarm := ledger.alarm) is not None:
        found["A witness contradicts this ledger."] = (
            f"The witness {alarm.witness} was shown the ledger and refused to confirm it, as it "
            "contradicts what the witness had confirmed before: the ledger may have been "
            "rewritten, or restored from an older copy. Nothing has been published since event "
            f"{alarm.sequence}. {_VOID}"
        )
    for one in ledger.verified:
        if one.findings:
            said = f" In their words: “{shortened(one.reason, _MOST_WORDS)}”." if one.reason else ""
            number = f"{one.findings} finding{'s' if one.findings > 1 else ''}"
            found[f"{one.by} verified this ledger and found something wrong."] = (
                f"{number} in the first {one.size} events, by what {one.by} stated in event "
                f"{one.sequence}.{said} This stands until {one.by} states a verification without "
                "a finding."
            )
    return found


def _recovery(ledger: LedgerFacts) -> list[str]:
    if not ledger.recovered:
        return []
    last = ledger.recoveries[0]
    times = f" ({ledger.recovered} times so far)" if ledger.recovered > 1 else ""
    spent = " All that was signed as spent still counts." if last.lost else ""
    return [f"The ledger was recovered at event {last.sequence}{times}: {lost(last)}.{spent}"]


def lost(one: RecoveryFacts) -> str:
    """Return the loss before a recovery in words."""
    if not one.lost:
        return "its signing key was lost"
    signed = max(head.size for head in one.lost)
    if signed <= one.left:
        return f"its first {signed} events were no longer those that had been signed"
    return f"{signed - one.left} of {signed} signed events were lost"


def _headline(state: State, data: tuple[DatasetFacts, ...], main: list[Standing]) -> str:
    n = len(data)
    if not n:
        return "No dataset is registered yet; nothing has been spent."
    if state.adopted is None:
        covered = "The dataset has" if n == 1 else f"The {n} datasets have"
        return f"{covered} no limit: no policy is adopted, so every request is refused."
    over = sum(d.status == "over" and d.rule_scope != ALL for d in data)
    unlimited = sum(d.status == "no_limit" for d in data)
    said = []
    if over:
        said.append(f"{_of(over, n)} over {'its' if over == 1 else 'their'} limit")
    if any(s.status == "over" and s.dataset == ALL for s in main):
        said.append("the total over all datasets is over its limit")
    if unlimited:
        said.append(f"{_of(unlimited, n)} without any limit")
    if said:
        text = "; ".join(said)
        return text[0].upper() + text[1:] + "."
    if pending := sum(d.status == "over_if_reservations_run" for d in data):
        which = "The dataset" if n == 1 else f"{pending} of {n} datasets"
        limit = "its limit if its" if pending == 1 else "their limits if their"
        return f"{which} will exceed {limit} open reservations are charged."
    if n == 1:
        return "The dataset is within its limit."
    return f"All {n} datasets are within their limits."


def _of(some: int, n: int) -> str:
    return f"{some} of {n} datasets {'is' if some == 1 else 'are'}" if n > 1 else "the dataset is"


def _over(standing: Standing) -> str:
    total = standing.total
    if total.sum_of_epsilons == INFINITE:
        left = f"rule “{standing.rule}” guarantees nothing any more (epoch {standing.epoch})"
    else:
        held = "" if total.reserved == "0" else ", reservations included"
        left = f"the guarantee is now epsilon {total.sum_of_epsilons}{held} (the plain sum)"
    return f"{_scope(standing)}: {exceeded(standing)}; {left}."


def exceeded(standing: Standing) -> str:
    """Return what of a limit that is over was exceeded, with both sides, as part of a sentence."""
    total, limit, found = standing.total, standing.limit, []
    if total.spent == INFINITE:
        found.append("a release without any bound on its loss was booked")
    elif Decimal(total.spent) > Decimal(limit.epsilon):
        found.append(f"epsilon {total.spent} is spent of the limit of {limit.epsilon}")
    if total.own_delta == INFINITE or Decimal(total.own_delta) > Decimal(limit.own_delta):
        kept = f"of the {limit.own_delta} that the limit keeps for it"
        found.append(f"own delta {total.own_delta} is spent or reserved {kept}")
    return " and ".join(found) or "the limit was exceeded"


def is_over(dataset: str, spent: str, limit: str, written: Callable[[str], str] = str) -> str:
    """Return that an account is over its limit, by what, rounded, without a full stop; amounts as
    ``written`` writes them.
    """
    its = "are over their limit" if dataset == ALL else "is over its limit"
    over = f"{in_words(dataset)} {its}"
    if spent == INFINITE:
        return f"{over}: a loss without any bound was booked, {written(limit)} allowed"
    if Decimal(spent) > Decimal(limit):
        return f"{over}: {written(up(spent, places(limit)))} spent, {written(limit)} allowed"
    return f"{over}: more delta is spent than it keeps"


def _watch(
    limits: tuple[Standing, ...], main: list[Standing], data: tuple[DatasetFacts, ...]
) -> list[str]:
    pending = [s for s in main if s.status == "over_if_reservations_run"]
    exceeds = "will be exceeded if open reservations are charged"
    points = _cut([f"{_scope(s)}: the limit of rule “{s.rule}” {exceeds}." for s in pending])
    if used_up := [_name(s) for s in main if s.status == "used_up"]:
        points.append(f"Nothing is left for {_listed(used_up)}.")
    if near := [_name(s) for s in main if s.status == "near"]:
        points.append(f"At least 80 % of the epsilon is spent or reserved for {_listed(near)}.")
    if clients := len({s.client for s in limits if s.client and s.status == "over"}):
        one = "1 client is over its own limit."
        points.append(one if clients == 1 else f"{clients} clients are over their own limits.")
    parts = (s for s in limits if s.divides and not s.client and s.status == "over")
    if shares := list(dict.fromkeys(f"“{s.rule}”" for s in parts)):
        points.append(f"More was used than rule {_listed(shares)} leaves its clients or purposes.")
    if unlimited := [d.id for d in data if d.status == "no_limit"]:
        points.append(f"No limit covers {_listed(unlimited)}.")
    return points


def _open(data: tuple[DatasetFacts, ...]) -> list[str]:
    held = [d for d in data if d.reservations.open]
    count = sum(d.reservations.open for d in held)
    what = "reservation holds" if count == 1 else "reservations hold"
    return [f"{count} open {what} budget on {_listed([d.id for d in held])}."] if held else []


def _events(history: History) -> list[str]:
    said = []
    for sort, noun, what in _EVENTS:
        if count := history.counts[sort].total():
            some, was = ("", "was") if count == 1 else ("s", "were")
            said.append(f"{count} {noun}{some} {what.format(was=was)}")
    return [f"In the ledger so far: {'; '.join(said)}."] if said else []


def _scope(standing: Standing) -> str:
    return "All datasets together" if standing.dataset == ALL else f"Dataset {standing.dataset}"


def in_words(dataset: str) -> str:
    """Return the id of a dataset, or what stands for all of them."""
    return "all datasets together" if dataset == ALL else dataset


def _name(standing: Standing) -> str:
    return f"{in_words(standing.dataset)} (rule “{standing.rule}”)"


def _listed(names: list[str]) -> str:
    """Return names, not empty, as a part of a sentence."""
    more = len(names) - _MOST_NAMED
    *shown, last = [*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    return f"{', '.join(shown)} and {last}" if shown else last


def _cut(points: list[str]) -> list[str]:
    more = len(points) - _MOST_NAMED
    rest = [f"{more} more limits are in the same state."] if more > 0 else []
    return points[:_MOST_NAMED] + rest
