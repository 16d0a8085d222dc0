"""policy backtest: what another policy would have said to the requests of the last days."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from accountant.budget.apply import apply
from accountant.budget.errors import NotFound
from accountant.budget.policy_file import parse_policy
from accountant.budget.reading import read
from accountant.budget.state import State
from accountant.budget.trials.backtest import Backtest, Compared, Tally, tally, to_json
from accountant.cli import common
from accountant.cli.policies import File, policy
from accountant.cli.progress import progress
from accountant.ledger.events import Event, rfc3339
from accountant.runtime.clock import wall_clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accountant.budget.policy import Policy

_DAY: Final = 86_400 * 1_000_000
_WORDS: Final[dict[str, str]] = {
    "allow": "allowed",
    "flag": "flagged",
    "approve": "left to a person",
    "block": "refused",
}


@policy.command()
def backtest(
    file: File,
    population: common.PopulationOption,
    days: Annotated[int, typer.Option(min=1, help="how many days to go back")] = 30,
    json: common.JsonOption = False,
) -> None:
    """Show what a policy file would have said to the requests of the last days.

    The ledger is read and nothing is recorded. The policy is taken as adopted at the beginning of
    the period, with what had been used then. Clients are taken to ask the same, and what was
    refused and would be granted to run in full.
    """
    other, _ = parse_policy(common.read_bytes(file).decode())
    since = wall_clock() - days * _DAY
    with common.local_service() as service:
        size = service.head(population).size
        if size == 0:
            raise NotFound("unknown-population", f"no population is called {population!r}")
        stored = (row.body for row in islice(service.stream(population), size))
        with progress() as bar:
            events = map(Event.from_bytes, bar.track(stored, total=size, description="deciding"))
            tested, (total, changed) = _tested(population, events, other, since)
    if json:
        common.print_json(_document(tested, total, changed, since))
    else:
        _show(tested, total, changed, days)


def _tested(
    ledger: str, events: Iterator[Event], other: Policy, since: int
) -> tuple[Backtest, tuple[Tally, list[Compared]]]:
    """Fold what was before, adopt, and compare what follows. A batch is never cut."""
    state, first = State(ledger), None
    for event in events:
        if event.time >= since and state.population is not None and state.batch is None:
            first = event
            break
        apply(state, read(state, event))
    tested = Backtest(state)
    tested.adopt(other, since)
    return tested, tally(tested.compare(chain([first] if first else [], events)))


def _document(
    tested: Backtest, total: Tally, changed: list[Compared], since: int
) -> dict[str, Any]:
    return {
        "since": rfc3339(since),
        "requests": total.requests,
        "outcomes": [
            {"then": then, "now": now, "requests": count}
            for (then, now), count in sorted(total.moved.items())
        ],
        "rules": [
            {"rule": rule, "outcome": outcome, "requests": count}
            for (rule, outcome), count in sorted(total.rules.items())
        ],
        "never_fired": never_fired(tested, total),
        "most_used": tested.most_used(),
        "changed": list(map(to_json, changed)),
    }


def never_fired(tested: Backtest, total: Tally) -> list[str]:
    """Return the rules of the policy that decided no request."""
    adopted = tested.state.adopted
    named = [rule.id for rule in adopted.policy.rules] if adopted else []
    return [rule for rule in named if not any(fired == rule for fired, _ in total.rules)]


def _show(tested: Backtest, total: Tally, changed: list[Compared], days: int) -> None:
    if not total.requests:
        common.show(f"the ledger holds no request of the last {days} days")
        return
    common.show(f"{total.requests:,} requests of the last {days} days, decided again:")
    table = Table("then", "under this policy", "requests")
    for (then, now), count in sorted(total.moved.items()):
        table.add_row(
            _WORDS[then], _WORDS[now], f"{count:,}", style=None if then == now else "bold"
        )
    common.show_table(table)
    if changed:
        table = Table("client", "would be", "requests", title="who would be answered otherwise")
        for (by, told), count in total.clients.most_common(common.SHOWN):
            table.add_row(common.plain(by), _WORDS[told], f"{count:,}")
        common.show_table(table)
        table = Table("event", "client", "dataset", "was", "would be", "because of rule")
        for one in changed[: common.SHOWN]:
            cells = one.by, one.dataset, _WORDS[one.then.outcome], _WORDS[one.now.outcome]
            reason = one.now.rule or one.then.rule or ""
            table.add_row(str(one.sequence), *map(common.plain, (*cells, reason)))
        common.show_table(table)
        if len(changed) > common.SHOWN:
            common.show(f"and {len(changed) - common.SHOWN:,} others (--json lists all)")
    for rule, used in tested.most_used().items():
        common.show(f"limit {rule}: at most epsilon {used} used of any person in the end")
    if quiet := never_fired(tested, total):
        common.show(f"rules that decided nothing: {', '.join(quiet)}")
