"""Makes the report of a period from the ledger: the same bytes from the same events.

``now`` only tells whether the period is over. Of other ledgers only that of keys is read, up to the
end of the period too, and the checkpoint that covers the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

from accountant.auth.ring import LEDGER as SERVICE
from accountant.budget.errors import Invalid
from accountant.budget.policy import NO_WITNESSES
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.reporting.periods.account import Place, Statement, subject_of
from accountant.reporting.periods.collecting import Collected
from accountant.reporting.periods.dataset import StatementFacts, statement_facts
from accountant.reporting.periods.document import Document
from accountant.reporting.periods.head import head_of
from accountant.reporting.periods.officer import OfficerFacts, officer_facts
from accountant.reporting.periods.people import PeopleFacts, people_facts
from accountant.reporting.periods.period import Period
from accountant.reporting.periods.service_keys import keys_of
from accountant.reporting.periods.told import officer_told, people_told
from accountant.reporting.periods.told_dataset import statement_told
from accountant.reporting.periods.walk import Walked, walk
from accountant.reporting.progress import Progress, silent
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Ledgers, Signed

Kind = Literal["officer", "statement", "population"]
KINDS: Final[tuple[Kind, ...]] = ("officer", "statement", "population")
FORMATS: Final = ("html", "pdf", "csv", "json")
MEDIA: Final = {
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
}
Facts = OfficerFacts | StatementFacts | PeopleFacts


class AskedReport(NamedTuple):
    """Which report of which period; ``dataset``: of a statement. ``now``: the present stamp."""

    kind: Kind
    period: Period
    dataset: str | None
    now: int

    @classmethod
    def of(cls, kind: str, period: Period, dataset: str | None, now: int) -> AskedReport:
        """Return what is asked for. Raise Invalid for an unknown kind, and for a statement without
        a dataset.
        """
        if kind not in KINDS:
            raise Invalid("unknown-report", f"no report is called {kind!r}: {', '.join(KINDS)}")
        found: Kind = next(one for one in KINDS if one == kind)
        if (found == "statement") != bool(dataset):
            text = (
                "name the dataset of the statement"
                if not dataset
                else (f"a report of the kind {kind} is about all datasets: name none")
            )
            raise Invalid("unknown-report", text)
        return cls(found, period, dataset or None, now)

    @property
    def name(self) -> str:
        """The name of its file, without population and ending."""
        return "-".join(filter(None, (self.kind, self.dataset, self.period.name)))


def facts_of(
    ledgers: Ledgers,
    population: str,
    asked: AskedReport,
    published: Signed | None = None,
    progress: Progress = silent,
    likely: Place | None = None,
) -> Facts:
    """Return the report. ``published`` is the last published checkpoint; ``likely`` is where the
    statement of a dataset probably reads, which saves reading the ledger twice if it does. Raise
    StoreError, Invalid for an unknown dataset, or ValueError for a damaged ledger.
    """
    kind, period, dataset, now = asked
    read = partial(walk, population, period=period, now=now, progress=progress)
    texts = Texts(partial(ledgers.texts, population))
    if kind == "statement" and dataset is not None:
        statement = None if likely is None else Statement(likely, texts)
        walked = read(ledgers.stream(population), reader=statement)
        subject = subject_of(walked.state, dataset)
        if statement is not None and subject.place == likely:
            progress(walked.size)  # they need not be read again
        else:
            statement = Statement(subject.place, texts)
            walked = read(ledgers.stream(population), reader=statement)
        statement.close(walked.state)
        head = head_of(kind, period, walked, _covering(ledgers, walked, published))
        state = walked.state
        return statement_facts(head, subject, statement, state.people(), state.datasets)
    found = Collected(texts, by_group=kind == "population")
    walked = read(ledgers.stream(population), reader=found)
    head = head_of(kind, period, walked, _covering(ledgers, walked, published))
    if kind == "population":
        return people_facts(head, walked, found)
    return officer_facts(head, walked, found, keys_of(ledgers.stream(SERVICE), period))


def events_read(ledgers: Ledgers, population: str, asked: AskedReport) -> int:
    """Return how many events are read for a report, at most: those up to the end of its period, as
    far as there are any yet; for a statement twice.
    """
    low, high = 0, ledgers.head(population).size
    while low < high:  # stamps never go back
        middle = (low + high) // 2
        [one] = ledgers.read(population, middle, 1)
        ended = Event.from_bytes(one.body).time >= asked.period.end
        low, high = (low, middle) if ended else (middle + 1, high)
    return 2 * low if asked.kind == "statement" else low


def document_of(facts: Facts) -> Document:
    """Return a report in words."""
    if isinstance(facts, StatementFacts):
        return statement_told(facts)
    return officer_told(facts) if isinstance(facts, OfficerFacts) else people_told(facts)


def _covering(ledgers: Ledgers, walked: Walked, published: Signed | None) -> Signed | None:
    """Return the earliest checkpoint that covers the events and was confirmed as the policy asks;
    None if none is published that does.
    """
    if published is None or published.size < walked.size or not walked.size:
        return None
    low, high = 0, published.number
    while low < high:  # sizes grow with the numbers
        middle = (low + high) // 2
        [one] = _numbered(ledgers, walked.state, middle)
        low, high = (low, middle) if one.size >= walked.size else (middle + 1, high)
    asks = walked.state.adopted.policy.publication if walked.state.adopted else NO_WITNESSES
    for number in range(low, min(low + _LOOKED_AT, published.number)):
        [one] = _numbered(ledgers, walked.state, number)
        if one.size >= walked.size and asks.met_by(name for name, _ in one.cosignatures):
            return one
    return published


_LOOKED_AT: Final = 100
"""Checkpoints that are looked at for one that enough witnesses have confirmed."""


def _numbered(ledgers: Ledgers, state: State, number: int) -> Sequence[Signed]:
    return ledgers.signed(state.ledger, number, number + 1)
