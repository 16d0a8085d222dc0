"""The statement of a dataset in words."""

from __future__ import annotations

from typing import Final

from accountant.budget.outcome import REGISTRATIONS
from accountant.reporting.numbers import NO_BOUND, counted, minute, up
from accountant.reporting.periods.dataset import LineFacts, PartFacts, StandFacts, StatementFacts
from accountant.reporting.periods.document import (
    Document,
    Section,
    Table,
    evidence,
    numbers,
    signatures,
    signed,
    subtitle,
    texts,
)
from accountant.reporting.periods.officer import period_in_words
from accountant.reporting.verdict import in_words

KINDS: Final = {
    "grant.reserved.v1": "granted",
    "grant.admitted.v1": "granted after waiting",
    "invocation.recorded.v1": "recorded after it ran",
    "grant.committed.v1": "reported",
    "grant.released.v1": "given back",
    "grant.expired.v1": "expired, charged in full",
    "sparse_vector.closed.v1": "session closed",
    "charge.revalued.v1": "cost more than was booked",
    **dict.fromkeys(REGISTRATIONS, "charges that came with a registration"),
    "population.extended.v1": "groups added",
    "population.registered.v1": "the population changed",
    "policy.adopted.v1": "the policy changed",
    "ledger.recovered.v1": "recovered: reservations charged in full",
    "ledger.carried_over.v1": "signed totals carried over",
    "time": "no longer counts",
    "other": "not explained by any event",
}
"""What moved a sum, in words."""


def statement_told(facts: StatementFacts) -> Document:
    """Return the statement."""
    head, data = facts.head, facts.dataset
    several = len(facts.parts) > 1
    return Document(
        title=f"Statement of {data}",
        subtitle=f"{facts.name}, in the ledger {head.population}. {subtitle(head)}",
        lede=_lede(facts),
        todo=(),
        nothing="",
        sections=(
            _what(facts),
            *(_part(one, at + 1 if several else 0) for at, one in enumerate(facts.parts)),
            evidence(head),
            signatures(),
        ),
        last=head.last,
    )


def _lede(facts: StatementFacts) -> str:
    if not facts.parts:
        return "Nothing counted on this dataset in the period."
    moved = sum(one.moved for one in facts.parts)
    last = facts.parts[-1].closing.epsilon_used
    on = "on" if facts.head.first == facts.head.last else "from"
    number = counted(moved, "movement") if moved else "No movement"
    text = f"{number} {on} {period_in_words(facts.head)}"
    if last == "infinite":
        return f"{text}; what is spent has no bound."
    of = f" of {facts.parts[-1].limit}" if facts.parts[-1].limit else ""
    return f"{text}; {up(last, 3)}{of} is spent or reserved at the end."


def _what(facts: StatementFacts) -> Section:
    group = "; ".join(f"{name}: {value}" for name, value in facts.group.items())
    found = [("Dataset", facts.dataset), ("Statement of", group or "everyone")]
    found.append(("Counted for", facts.whom))
    if facts.scope != facts.dataset:
        found.append(("Counted over", in_words(facts.scope)))
    said = [
        "Opening and movements add up to the closing, exactly: the amounts are whole numbers of "
        "the ledger’s smallest unit, in the currency in which the limit compares them."
    ]
    if facts.cells > 1:
        said.append(
            "People lie in one group each, and a limit goes by the group that has used most. This "
            "is its statement; charges to other groups only do not move it."
        )
    return Section("What this is", tuple(said), facts=tuple(found))


def _part(part: PartFacts, number: int) -> Section:
    what = (
        f"Rule {part.rule}, limit {part.limit}" if part.rule else "Lifetime total, without a limit"
    )
    heading = f"Part {number}: {what}" if number else what
    said = [f"Amounts are {part.sums}."]
    if part.window:
        said.append(f"The limit counts over {part.window}: what is older no longer counts.")
    if part.event is not None:
        said.append(
            f"It counts from event {part.event} on; what was used before is the opening, as it is "
            "counted now."
        )
    if part.start is not None and part.slope is not None:
        said.append(
            f"In epsilon, what is used is at {up(part.start, 6)} before any charge, and each 1 of "
            f"these amounts adds {up(part.slope, 6)}; where the plain sum of epsilons is smaller, "
            "that counts."
        )
    if part.summed:
        said.append(f"{part.moved:,} movements are added up by {part.summed}.")
    return Section(heading, tuple(said), facts=_converted(part), tables=(_table(part),))


def _converted(part: PartFacts) -> tuple[tuple[str, str], ...]:
    opened, closed = part.opening, part.closing
    return (
        ("Opening in epsilon", _epsilon(opened)),
        ("Closing in epsilon", _epsilon(closed)),
    )


def _epsilon(one: StandFacts) -> str:
    if one.epsilon_used == "infinite":
        return NO_BOUND
    used = up(one.epsilon_used)
    return f"{up(one.epsilon_spent)} spent; {used} with what is reserved"


def _table(part: PartFacts) -> Table:
    unbounded = part.unbounded or part.opening.unbounded or part.closing.unbounded
    columns = (
        *texts("Time", "Event", "What", "Client", "Group and purpose"),
        *numbers("Spent", "Reserved"),
    )
    if unbounded:
        columns = (*columns, *numbers("Without bound"))
    wide = len(columns)
    total: tuple[str, ...] = (
        "",
        "",
        f"Movements: {part.moved:,}",
        "",
        "",
        signed(part.spent),
        signed(part.reserved),
    )
    if unbounded:
        total = (*total, f"{part.unbounded:+,}")
    rows = (
        _stand("Opening", part.opening, wide),
        *(_line(one, wide) for one in part.lines),
        total,
        _stand("Closing", part.closing, wide),
    )
    caption = "Opening, movements, closing"
    return Table(caption, columns, rows, strong=(0, len(rows) - 2, len(rows) - 1))


def _stand(name: str, one: StandFacts, wide: int) -> tuple[str, ...]:
    row = minute(one.time), "", name, "", "", one.spent, one.reserved
    return row if wide == len(row) else (*row, f"{one.unbounded:,}")


def _line(one: LineFacts, wide: int) -> tuple[str, ...]:
    what = KINDS.get(one.kind, one.kind)
    if one.grant and one.kind not in ("grant.reserved.v1", "grant.admitted.v1"):
        what += f" ({one.grant})"
    if one.sequence is None:
        what += f": {one.events:,}"
        when = one.time[:10]
    else:
        when = minute(one.time)
    about = one.subjects + (f", for “{one.purpose}”" if one.purpose else "")
    event = "" if one.sequence is None or one.kind == "time" else str(one.sequence)
    row = when, event, what, one.by, about, signed(one.spent), signed(one.reserved)
    return row if wide == len(row) else (*row, f"{one.unbounded:+,}" if one.unbounded else "0")
