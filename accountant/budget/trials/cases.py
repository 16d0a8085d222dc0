"""Cases beside a policy: what it must say to requests, tried on a ledger in memory.

Each case begins with nothing spent. Its requests are asked in order by the same ``decide`` as live;
what is granted is committed in full at once. The last answer is what the case expects, and no
answer before it may be a refusal, or leave it to a person.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, StrictInt

from accountant.budget import commands as ask
from accountant.budget.accounts.spans import Window
from accountant.budget.apply import apply
from accountant.budget.commands import AskGrant, Command, CommitGrant, Envelope, Identifier
from accountant.budget.commands.plain import Listed
from accountant.budget.decide import Repeated, decide, unchecked
from accountant.budget.outcome import RESERVED
from accountant.budget.policy import Policy
from accountant.budget.population.population import LabelText, Membership
from accountant.budget.previewing import ruling_of
from accountant.budget.reach import named_in
from accountant.budget.rules.base import HOLDING, Ruling, Strict
from accountant.budget.state import State
from accountant.budget.trials.backtest import CONFIRMED
from accountant.budget.waiting.queue import Queue
from accountant.ledger.events import Event, microseconds
from accountant.privacy.mechanisms import Relation

_BEGINS: Final = microseconds("2026-01-01T00:00:00.000000Z")
_STEWARD: Final = "steward"
"""Who agrees to what loosens: a limit that refreshes forgets."""


class People(Strict):
    """The population of the cases."""

    neighbouring: Relation = Relation.ADD_OR_REMOVE_ONE
    membership: Membership = Membership.PUBLIC
    dimensions: dict[Identifier, list[str]] = {}  # noqa: RUF012
    units: ask.FurtherUnits = {}  # noqa: RUF012


class Described(Strict):
    """What rules may know of a dataset beside its id."""

    owner: str | None = None
    labels: dict[LabelText, LabelText] | None = None


class Requests(Strict):
    """One request, or the same one again and again; ``every`` says how far apart, as a window."""

    client: str = "client"
    times: Annotated[StrictInt, Field(ge=1, le=100_000)] = 1
    every: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}[hd]$")] | None = None
    ask: AskGrant


class Case(Strict):
    """What the last of some requests must be told, and by which rule."""

    case: Annotated[str, Field(min_length=1, max_length=200)]
    requests: Annotated[list[Requests], Field(min_length=1)]
    expect: Ruling
    rule: str | None = None


class Cases(Strict):
    """A file of cases."""

    population: People = People()
    datasets: dict[Identifier, Described] = {}  # noqa: RUF012
    cases: Annotated[list[Case], Field(min_length=1)]


class Verdict(NamedTuple):
    """What a case came to: ``wrong`` says how it differs from what it expects, if it does."""

    case: str
    outcome: Ruling
    fired: tuple[str, ...]
    wrong: str | None


def try_all(policy: Policy, file: Cases) -> Iterator[Verdict]:
    """Yield the verdict of each case."""
    for case in file.cases:
        yield _try(policy, file, case)


def never_fired(policy: Policy, verdicts: list[Verdict]) -> list[str]:
    """Return the rules that fired in no case: nobody has tried what they are for."""
    fired = {rule for verdict in verdicts for rule in verdict.fired}
    return [rule.id for rule in policy.rules if rule.id not in fired]


def _try(policy: Policy, file: Cases, case: Case) -> Verdict:
    ledger = _Ledger(policy, file, case)
    fired: list[str] = []
    last = len(case.requests) - 1
    for place, requests in enumerate(case.requests):
        asked = requests.ask.model_copy(update={"mechanisms": Listed(requests.ask.mechanisms)})
        for turn in range(requests.times):
            outcome, rules = ledger.ask(requests, asked)
            fired += rules
            if outcome in HOLDING and (place, turn) != (last, requests.times - 1):
                which = f"request {turn + 1} of {requests.times}"
                which += f", part {place + 1}" if last else ""
                wrong = f"{which} was {_HELD[outcome]} already, by {', '.join(rules)}"
                return Verdict(case.case, outcome, tuple(fired), wrong)
    return Verdict(case.case, outcome, tuple(fired), _wrong(case, outcome, rules))


_HELD: Final = {"block": "refused", "approve": "left to a person's approval"}


def _wrong(case: Case, outcome: Ruling, rules: list[str]) -> str | None:
    if outcome != case.expect:
        reason = f" by {', '.join(rules)}" if rules else ""
        return f"the answer is {outcome}{reason}, not {case.expect}"
    if case.rule is not None and case.rule not in rules:
        return f"{case.rule} did not fire; {', '.join(rules) or 'no rule'} did"
    return None


class _Ledger:
    """A ledger in memory with the datasets that a case names."""

    def __init__(self, policy: Policy, file: Cases, case: Case) -> None:
        self.state, self.now, self.asked = State("cases"), _BEGINS, 0
        people = file.population
        self._do(
            ask.RegisterPopulation(
                privacy_unit="person",
                neighbouring=people.neighbouring,
                membership=people.membership,
                dimensions=people.dimensions,
                units=people.units,
            )
        )
        names = {name for each in case.requests for name in named_in(each.ask.dataset)}
        for name in sorted(names):
            facts = file.datasets.get(name, Described()).model_dump(exclude_none=True)
            self._do(ask.RegisterDataset(id=name, namespace="cases", name=name, **facts))
        adopt = ask.AdoptPolicy(policy=policy.to_json(), source_digest="")
        self._do(adopt.model_copy(update={"confirms": CONFIRMED}))

    def ask(self, requests: Requests, asked: AskGrant) -> tuple[Ruling, list[str]]:
        """Ask once, by a command that remembers its price, and commit what is granted. Return the
        answer and the rules that fired.
        """
        [event] = self._do(asked, requests.client)
        if event.type == RESERVED:
            self._do(CommitGrant(grant=f"g{event.sequence}"), requests.client)
        if requests.every is not None:
            self.now = Window.read(requests.every).ends(self.now)
        self.state.waiting = Queue()  # nobody approves, and nothing comes back
        return ruling_of(self.state, event), [rule for rule, _ in event.body.get("fired", [])]

    def _do(self, command: Command, by: str = _STEWARD) -> list[Event]:
        self.asked += 1
        key = f"request-{self.asked}" if command.needs_key else None
        confirmed = getattr(command, "confirms", None) is not None
        outcomes = (unchecked if confirmed else decide)(
            self.state, Envelope(by, command, key), self.now
        )
        if isinstance(outcomes, Repeated):  # keys are counted
            raise AssertionError(f"{key} was used before")
        for one in outcomes:
            apply(self.state, one)
        return [one.event() for one in outcomes]


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict for a program."""
    return {
        "case": verdict.case,
        "outcome": verdict.outcome,
        "fired": sorted(set(verdict.fired)),
        "wrong": verdict.wrong,
    }
