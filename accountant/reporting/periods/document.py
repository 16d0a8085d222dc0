"""A report as it is read, on paper or on a screen: headings, sentences, facts and tables, in words.

Amounts are written here once for every format (numbers.py): what is spent is rounded up, what is
left down. CSV and JSON have the exact ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import NO_BOUND, counted, minute, up
from accountant.reporting.periods.head import HeadFacts
from accountant.reporting.periods.officer import period_in_words

Pairs = tuple[tuple[str, str], ...]


class Column(Struct, frozen=True):
    """A column of a table, with numbers or texts."""

    name: str
    number: bool = False


class Table(Struct, frozen=True):
    """A table. ``more`` says what it leaves out. The first column names the row. ``strong``: the
    rows, by place, that open or close.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""
    strong: tuple[int, ...] = ()


class Section(Struct, frozen=True):
    """A part under a heading."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    facts: Pairs = ()
    tables: tuple[Table, ...] = ()


class Document(Struct, frozen=True):
    """A report. ``lede``: the sentence that could be all of it; ``todo``: what to do now."""

    title: str
    subtitle: str
    lede: str
    todo: tuple[str, ...]
    nothing: str
    """What is said where there is nothing to do."""
    sections: tuple[Section, ...]
    last: str
    """The last day of the period, RFC 3339: the date that a PDF has."""


def texts(*names: str) -> tuple[Column, ...]:
    """Return columns of texts."""
    return tuple(Column(name) for name in names)


def numbers(*names: str) -> tuple[Column, ...]:
    """Return columns of numbers."""
    return tuple(Column(name, number=True) for name in names)


def table(
    caption: str,
    columns: Iterable[Column],
    rows: Iterable[tuple[str, ...]],
    more: str = "",
    strong: tuple[int, ...] = (),
) -> tuple[Table, ...]:
    """Return a table, none without rows."""
    found = tuple(rows)
    return (Table(caption, tuple(columns), found, more, strong),) if found else ()


def subtitle(head: HeadFacts) -> str:
    """Return what the report is of."""
    text = f"{period_in_words(head)} (UTC). What is protected: {head.unit}."
    if not head.finished:
        text += f" The period is not over: this is how it stood on {minute(head.as_of)}."
    return text


def evidence(head: HeadFacts) -> Section:
    """Return by what an auditor can prove what the report rests on."""
    if not head.events:
        return Section("Evidence", ("The ledger had no events before the end of the period.",))
    found: list[tuple[str, str]] = [
        ("Events", f"the first {counted(head.events, 'event')} of the ledger {head.population}"),
        ("Of these in the period", f"{head.inside:,}" + _from(head)),
        ("Root of their tree", head.root),
    ]
    if (checkpoint := head.checkpoint) is None:
        found.append(("Checkpoint", "none is published yet that covers them"))
    else:
        names = ", ".join(checkpoint.witnesses) or "no witness"
        found += [
            ("Checkpoint", f"number {checkpoint.number} of {checkpoint.origin}"),
            ("Its events", f"{checkpoint.size:,}"),
            ("Its root", checkpoint.root),
            ("Confirmed by", names),
        ]
    said = (
        "This report is a function of these events. Whoever verifies the bundle of the ledger "
        "(accountant verify) proves that they are those of the checkpoint, and decides every "
        "request again; whoever makes the report again from them gets the same bytes."
    )
    return Section("Evidence", (said,), facts=tuple(found))


def _from(head: HeadFacts) -> str:
    return f", from event {head.first_event} on" if head.first_event is not None else ""


def signatures() -> Section:
    """Return the place where people sign."""
    rows = (("Prepared by", "", "", ""), ("Approved by", "", "", ""))
    columns = texts("", "Name", "Date", "Signature")
    return Section("Signatures", tables=table("", columns, rows))


def loss(amount: str | None, digits: int | None = 3) -> str:
    """Return an epsilon, rounded up; a dash without one."""
    return "–" if amount is None else up(amount, digits)


def signed(amount: str | None, digits: int | None = None) -> str:
    """Return a change with its sign, rounded up; a dash without one."""
    if amount is None:
        return "–"
    if amount == INFINITE:
        return NO_BOUND
    text = up(amount, digits)
    if text.lstrip("-").strip("0.") == "":
        return "0"
    return f"−{text[1:]}" if text.startswith("-") else f"+{text}"
