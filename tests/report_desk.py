"""A desk at which tests of the report write real ledgers and read reports of them."""

from __future__ import annotations

from typing import Any

from support import Clock, by_two, make

from accountant.budget.commands import AdoptPolicy, Envelope
from accountant.budget.policy_file import parse_policy
from accountant.ledger.events import Event
from accountant.reporting import desk as answering
from accountant.reporting.files import report_of
from accountant.reporting.schema import DatasetFacts, Report, Standing
from accountant.runtime.service import Service
from accountant.store.ledgers import Stored, Text
from accountant.store.opening import open_ledgers

DAY = 86_400


class Desk:
    """A service on a database file, with a clock that a test moves."""

    def __init__(self, url: str, name: str = "clinic") -> None:
        self.name, self.clock = name, Clock()
        self.ledgers = open_ledgers(url)
        self.service = Service(self.ledgers, self.clock, ticks=self.clock.ticks)
        self.answers = answering.Desk(self.ledgers)
        self.keys = 0

    def do(self, kind: str, by: str = "pipe", **fields: Any) -> Event:
        """The event that answers a command."""
        return self.all([(kind, by, fields)])[-1]

    def all(self, commands: list[tuple[str, str, dict[str, Any]]]) -> list[Event]:
        """The events that answer commands, in one commit."""
        asked = []
        for kind, by, fields in commands:
            command = make(kind, **fields)
            self.keys += 1
            asked.append(Envelope(by, command, f"key-{self.keys}" if command.needs_key else None))
        answers = self.service.execute_all(self.name, asked)
        return [answer.events[-1] for answer in answers]

    def population(self, dimensions: dict[str, list[str]] | None = None, **more: Any) -> None:
        """Registers the population, or extends it, by two people if it takes two."""
        stated = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
        command = make("register_population", dimensions=dimensions or {}, **(stated | more))
        by_two(self.service, self.name, Envelope("admin", command))

    def dataset(self, *names: str, **more: Any) -> None:
        """Registers datasets."""
        for name in names:
            self.do(
                "register_dataset", "admin", **({"namespace": "n", "name": name} | more), id=name
            )

    def policy(self, rules: str, confirmed_by: str = "officer") -> None:
        """Adopts a policy of the given rules (YAML list items), by two people if it takes two."""
        policy, digest = parse_policy("policy: p\nrules:\n" + rules)
        command = AdoptPolicy(policy=policy.to_json(), source_digest=digest)
        by_two(self.service, self.name, Envelope("admin", command), confirmed_by)

    def hospital(
        self,
        rules: str = "  - {id: a, limit: {epsilon: 1}}\n",
        dimensions: dict[str, list[str]] | None = None,
        **more: Any,
    ) -> Desk:
        """A population, the dataset ``d`` and a policy of ``rules``; returns itself."""
        self.population(dimensions, **more)
        self.dataset("d")
        self.policy(rules)
        return self

    def grant(self, *mechanisms: dict[str, Any], dataset: str = "d", **more: Any) -> Event:
        """Asks for a grant."""
        return self.do("ask_grant", dataset=dataset, mechanisms=list(mechanisms), **more)

    def record(self, *mechanisms: dict[str, Any], dataset: str = "d", **more: Any) -> Event:
        """Records what has already run."""
        return self.do("record_invocations", dataset=dataset, mechanisms=list(mechanisms), **more)

    def forward(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.forward(seconds)

    def stored(self) -> list[Stored]:
        """Every event as it is kept."""
        return list(self.service.stream(self.name))

    def texts(self) -> list[Text]:
        """Every text that is kept beside the events."""
        return self.service.texts(self.name, 0, 2**53)

    def report(self) -> Report:
        """The report of everything so far, with its texts."""
        return report_of(self.ledgers, self.name, None)


def limit_of(report: Report, rule: str = "a", dataset: str = "d", client: str = "") -> Standing:
    """Where a rule stands."""
    [found] = [s for s in report.limits if (s.rule, s.dataset, s.client) == (rule, dataset, client)]
    return found


def data_of(report: Report, dataset: str = "d") -> DatasetFacts:
    """A dataset's facts."""
    [found] = [d for d in report.datasets if d.id == dataset]
    return found
