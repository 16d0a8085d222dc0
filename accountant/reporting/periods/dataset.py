"""The statement of a dataset as facts: parts, each with opening, lines and closing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from accountant.ledger.events import rfc3339
from accountant.privacy.units import Currency, amount, show
from accountant.reporting.periods.account import Movement, Part, Statement, Subject
from accountant.reporting.periods.cell import Held
from accountant.reporting.periods.head import HeadFacts
from accountant.reporting.words import groups_in_words, sums_of

MOST_LINES: Final = 2_000
"""Movements that are listed singly; more of them are added up."""


class StandFacts(Struct, frozen=True):
    """What the group had spent and reserved at a moment: in the currency that counts, and what that
    comes to in epsilon. ``unbounded``: charges without any bound among them.
    """

    time: str
    spent: str
    reserved: str
    unbounded: int
    epsilon_spent: str
    epsilon_used: str


class LineFacts(Struct, frozen=True):
    """Movements: one, with its event, or ``events`` of them added up. Signed amounts, in the
    currency that counts.
    """

    time: str
    sequence: int | None
    kind: str
    by: str
    grant: str
    dataset: str
    subjects: str
    purpose: str
    events: int
    spent: str
    reserved: str
    unbounded: int


class PartFacts(Struct, frozen=True):
    """One epoch of the limit within the period. ``rule`` is empty for the lifetime total.
    ``slope`` and ``start``: what is spent is at ``start`` of epsilon before any charge, and rises
    by ``slope`` with each of the currency; None where the sum itself is the epsilon, or where
    nothing of that kind holds. ``summed``: by what the movements are added up, empty if they are
    listed singly.
    """

    rule: str
    epoch: int | None
    limit: str | None
    window: str | None
    currency: str
    sums: str
    slope: str | None
    start: str | None
    event: int | None
    opening: StandFacts
    lines: tuple[LineFacts, ...]
    summed: str
    moved: int
    spent: str
    reserved: str
    unbounded: int
    closing: StandFacts


class StatementFacts(Struct, frozen=True):
    """The statement of a dataset. ``scope``: the dataset of the limit, which may be all ("*").
    ``whom``: one of the units of privacy that it is for. ``group``: the values of the cell whose
    statement it is; empty if there is only one.
    """

    head: HeadFacts
    dataset: str
    name: str
    scope: str
    whom: str
    group: dict[str, str]
    cells: int
    parts: tuple[PartFacts, ...]


def statement_facts(
    head: HeadFacts, subject: Subject, read: Statement, people: Any, datasets: Mapping[str, Any]
) -> StatementFacts:
    """Return the statement. ``people``: the population at the closing."""
    return StatementFacts(
        head=head,
        dataset=subject.dataset,
        name=datasets[subject.dataset].name,
        scope=subject.counted.key.dataset if subject.counted else subject.dataset,
        whom=people.called(subject.counted.rule.unit if subject.counted else None),
        group=people.describe(subject.cell) if subject.cell else {},
        cells=people.cells,
        parts=tuple(map(_part, read.parts)),
    )


def _part(part: Part) -> PartFacts:
    line, capped = part.line()
    currency = Currency.EPSILON if line is None else line.currency
    row = part.axis.index(currency)
    lines, summed = _lines(part, row, currency)
    spent, reserved, unbounded = _change(part.movements, row, len(part.axis))
    slope = start = None
    if line is not None and not capped:
        slope, start = _decimal(line.a, line.d, currency), show(-(-line.b // line.d), _EPSILON)
    return PartFacts(
        rule=part.rule.id if part.rule else "",
        epoch=part.epoch.number if part.epoch else None,
        limit=f"{part.rule.limit.epsilon:f}" if part.rule else None,
        window=part.epoch.window.words if part.epoch and part.epoch.window else None,
        currency=str(currency),
        sums=sums_of(currency),
        slope=slope,
        start=start,
        event=part.event,
        opening=_stand(part, part.opening, part.since, row, currency),
        lines=lines,
        summed=summed,
        moved=len(part.movements),
        spent=show(spent, currency),
        reserved=show(reserved, currency),
        unbounded=unbounded,
        closing=_stand(part, part.closing, part.until, row, currency),
    )


_EPSILON: Final = Currency.EPSILON


def _decimal(a: int, d: int, currency: Currency) -> str:
    """Return the epsilon that one of the currency adds along a line, rounded up."""
    return show(-(-a * currency.per_one // d), _EPSILON)


def _stand(part: Part, held: Held, time: int, row: int, currency: Currency) -> StandFacts:
    return StandFacts(
        time=rfc3339(time),
        spent=show(held.spent[row], currency),
        reserved=show(held.reserved[row], currency),
        unbounded=held.used[len(part.axis) + row],
        epsilon_spent=amount(part.epsilon(held, spent=True), _EPSILON),
        epsilon_used=amount(part.epsilon(held, spent=False), _EPSILON),
    )


def _change(moved: Iterable[Movement], row: int, rows: int) -> tuple[int, int, int]:
    """Return what movements add up to, in units: spent, reserved, and charges without a bound."""
    spent = reserved = unbounded = 0
    for one in moved:
        spent += one.spent[row]
        reserved += one.reserved[row]
        unbounded += one.spent[rows + row] + one.reserved[rows + row]
    return spent, reserved, unbounded


Groups = dict[tuple[str, str, str], list[Movement]]
_SUMMED: Final[dict[str, Callable[[Movement], tuple[str, str, str]]]] = {
    "day, client and kind": lambda one: (rfc3339(one.time)[:10], one.asked.by, one.kind),
    "day and kind": lambda one: (rfc3339(one.time)[:10], "", one.kind),
    "month and kind": lambda one: (rfc3339(one.time)[:7] + "-01", "", one.kind),
}
"""By what movements are added up: the first by which there are few enough, else the last."""


def _lines(part: Part, row: int, currency: Currency) -> tuple[tuple[LineFacts, ...], str]:
    moved, rows = part.movements, len(part.axis)
    if len(moved) <= MOST_LINES:
        return tuple(_single(one, row, rows, currency) for one in moved), ""
    groups: Groups = {}
    summed = ""
    for name, of in _SUMMED.items():
        groups, summed = _grouped(moved, of), name
        if len(groups) <= MOST_LINES:
            break
    return tuple(_sums(groups, row, rows, currency)), summed


def _grouped(moved: Iterable[Movement], of: Callable[[Movement], tuple[str, str, str]]) -> Groups:
    groups: Groups = {}
    for one in moved:
        groups.setdefault(of(one), []).append(one)
    return groups


def _single(one: Movement, row: int, rows: int, currency: Currency) -> LineFacts:
    spent, reserved, unbounded = _change([one], row, rows)
    asked = one.asked
    return LineFacts(
        time=rfc3339(one.time),
        sequence=one.sequence,
        kind=one.kind,
        by=asked.by,
        grant=one.grant,
        dataset=asked.dataset,
        subjects=groups_in_words(asked.subjects) if asked.dataset else "",
        purpose=asked.purpose,
        events=1,
        spent=show(spent, currency),
        reserved=show(reserved, currency),
        unbounded=unbounded,
    )


def _sums(groups: Groups, row: int, rows: int, currency: Currency) -> Iterator[LineFacts]:
    for (day, by, kind), moved in sorted(groups.items()):
        spent, reserved, unbounded = _change(moved, row, rows)
        yield LineFacts(
            time=f"{day}T00:00:00Z",
            sequence=None,
            kind=kind,
            by=by,
            grant="",
            dataset="",
            subjects="",
            purpose="",
            events=len(moved),
            spent=show(spent, currency),
            reserved=show(reserved, currency),
            unbounded=unbounded,
        )
