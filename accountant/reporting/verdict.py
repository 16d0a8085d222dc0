"""The first lines of the report: what somebody with ten seconds has to know."""

from __future__ import annotations

from typing import Final, Literal

from accountant.budget.state import ALL, State
from accountant.reporting.history import History
from accountant.reporting.ledger_facts import LedgerFacts
from accountant.reporting.shape import DatasetFacts, Standing, Verdict
from accountant.reporting.trust import Doubt, doubts, recovery

Level = Literal["good", "watch", "bad"]
_MOST_NAMED: Final = 5
_TO_LOOK_AT: Final = ("overrun", "against_rule", "unverifiable")
"""What has been spent without a rule's consent, or on somebody's word. That a request was blocked,
or a reservation expired, only shows that the rules work."""


def verdict(
    state: State,
    ledger: LedgerFacts,
    data: tuple[DatasetFacts, ...],
    limits: tuple[Standing, ...],
    history: History,
) -> Verdict:
    """The headline and the points that back it, the gravest first."""
    if state.population is None:
        return Verdict("watch", f"No population called {state.ledger} is registered.", ())
    doubted = doubts(ledger)
    level: Level = "good"
    if not data:
        level = "bad" if doubted else "watch" if ledger.recovered else "good"
        points = [doubt.text for doubt in doubted] + recovery(ledger)
        said = "No dataset is registered yet; nothing has been spent."
        return Verdict(level, _with(doubted, said), tuple(points))
    grave = [_over(s) for s in limits if s.status == "over" and not s.client]
    watched = [*recovery(ledger), *_watch(limits, data)]
    if doubted or grave:
        level = "bad"
    elif watched or any(history.seen[sort].total for sort in _TO_LOOK_AT):
        level = "watch"
    shown = [doubt.text for doubt in doubted]
    shown += [*_cut(grave), *watched, *_open(data), *_events(history)]
    return Verdict(level, _with(doubted, _headline(state, data, limits)), tuple(shown))


def _with(doubted: list[Doubt], headline: str) -> str:
    if not doubted:
        return headline
    return f"{doubted[0].headline} By its numbers: {headline[0].lower()}{headline[1:]}"


def _headline(state: State, data: tuple[DatasetFacts, ...], limits: tuple[Standing, ...]) -> str:
    n = len(data)
    if state.adopted is None:
        covered = "The dataset has" if n == 1 else f"The {n} datasets have"
        return f"{covered} no limit: no policy is adopted, so every request is refused."
    over = [d for d in data if d.status == "over" and d.rule_scope != ALL]
    unlimited = [d for d in data if d.status == "no_limit"]
    together = any(s.status == "over" and s.dataset == ALL and not s.client for s in limits)
    said = []
    if over:
        said.append(f"{_of(over, n)} over {'its' if len(over) == 1 else 'their'} limit")
    if together:
        said.append("the total over all datasets is over its limit")
    if unlimited:
        said.append(f"{_of(unlimited, n)} without any limit")
    if said:
        text = "; ".join(said)
        return text[0].upper() + text[1:] + "."
    pending = [d for d in data if d.status == "over_if_reservations_run"]
    if pending:
        then = "will be over its limit" if len(pending) == 1 else "will be over their limits"
        which = "The dataset" if n == 1 else f"{len(pending)} of {n} datasets"
        return f"{which} {then} if what is reserved runs."
    if n == 1:
        return "The dataset is within its limit."
    return f"All {n} datasets are within their limits."


def _of(some: list[DatasetFacts], n: int) -> str:
    if n == 1:
        return "the dataset is"
    return f"{len(some)} of {n} datasets {'is' if len(some) == 1 else 'are'}"


def _over(standing: Standing) -> str:
    data = _scope(standing)
    if standing.total.spent == "infinite":
        amount = "a release without any bound on its loss was booked"
    else:
        amount = f"epsilon {standing.total.spent} is spent, {standing.limit.epsilon} was the limit"
        if _within_epsilon(standing):
            amount = "more delta is spent than was kept for it"
    sum_of = standing.total.sum_of_epsilons
    held = "" if standing.total.reserved == "0" else ", reservations included"
    if sum_of == "infinite":
        left = f"rule “{standing.rule}” guarantees nothing any more (epoch {standing.epoch})"
    else:
        left = f"the guarantee is now epsilon {sum_of}{held} (the plain sum)"
    return f"{data}: {amount}. The limit was exceeded; {left}."


def _within_epsilon(standing: Standing) -> bool:
    return float(standing.total.spent) <= float(standing.limit.epsilon)


def _watch(limits: tuple[Standing, ...], data: tuple[DatasetFacts, ...]) -> list[str]:
    points = []
    main = [s for s in limits if not s.client]
    pending = [s for s in main if s.status == "over_if_reservations_run"]
    points += _cut(
        [
            f"{_scope(s)}: over the limit of rule “{s.rule}” if what is reserved runs."
            for s in pending
        ]
    )
    used_up = _names([s for s in main if s.status == "used_up"])
    near = _names([s for s in main if s.status == "near"])
    if used_up:
        points.append(f"Nothing is left for {used_up}.")
    if near:
        points.append(f"At least 80 % of the limit is used for {near}.")
    clients = len({s.client for s in limits if s.client and s.status == "over"})
    if clients:
        points.append(
            "1 client is over its own limit."
            if clients == 1
            else f"{clients} clients are over their own limits."
        )
    unlimited = [d.id for d in data if d.status == "no_limit"]
    if unlimited:
        points.append(f"No limit covers {_listed(unlimited)}.")
    return points


def _open(data: tuple[DatasetFacts, ...]) -> list[str]:
    held = [d for d in data if d.reservations.open]
    if not held:
        return []
    count = sum(d.reservations.open for d in held)
    what = "reservation holds" if count == 1 else "reservations hold"
    return [f"{count} open {what} budget on {_listed([d.id for d in held])}."]


def _events(history: History) -> list[str]:
    texts = (
        (
            "overrun",
            "{} ran although it was over a limit",
            "{} ran although they were over a limit",
        ),
        ("against_rule", "{} ran against a rule", "{} ran against a rule"),
        (
            "unverifiable",
            "{} rests on the client’s word alone",
            "{} rest on the client’s word alone",
        ),
        ("understated", "{} claimed too little", "{} claimed too little"),
        ("expired", "{} expired and was charged in full", "{} expired and were charged in full"),
        ("blocked", "{} was blocked", "{} were blocked"),
    )
    said = []
    for sort, one, many in texts:
        count = history.seen[sort].total
        if count:
            what = "reservation" if sort == "expired" else "request"
            said.append((one if count == 1 else many).format(f"{count} {what}{'s' * (count > 1)}"))
    return [f"In the ledger so far: {'; '.join(said)}."] if said else []


def _scope(standing: Standing) -> str:
    return "All datasets together" if standing.dataset == ALL else f"Dataset {standing.dataset}"


def _names(standings: list[Standing]) -> str:
    names = []
    for s in standings:
        data = "all datasets together" if s.dataset == ALL else s.dataset
        names.append(f"{data} (rule “{s.rule}”)")
    return _listed(names)


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    shown = names[:_MOST_NAMED] + ([f"{more} more"] if more > 0 else [])
    return (
        shown[0]
        if len(shown) == 1
        else ", ".join(shown[:-1]) + " and " + shown[-1]
        if shown
        else ""
    )


def _cut(points: list[str]) -> list[str]:
    more = len(points) - _MOST_NAMED
    return points[:_MOST_NAMED] + (
        [f"{more} more limits are in the same state."] if more > 0 else []
    )
