"""What a request would do to each account that it counts in: for the person who is to approve it.

It informs: nothing here is decided, and no event holds it. The date on which a limit would be used
up supposes that the peak cell goes on being charged as fast as it was on average since the rule
began to count; the request itself comes on top, once.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from accountant.budget.apply import drop_journal, keep_journal
from accountant.budget.changes import Reserve
from accountant.budget.commands import DAY, AskGrant, Envelope
from accountant.budget.decide.judging import grant_for
from accountant.budget.facts import SECOND
from accountant.budget.outcome import RESERVED
from accountant.budget.population.selection import Selection
from accountant.budget.request import prepare
from accountant.budget.state import Counted, State
from accountant.ledger.events import Entry, rfc3339
from accountant.privacy.units import INFINITE, Currency, amount
from accountant.reporting.peak_cell import Columns, Ruler

_SHORTEST: Final = DAY * SECOND
"""How long a rule has to have counted before an average says anything, in microseconds."""
_FARTHEST: Final = 100 * 366 * DAY * SECOND
"""Dates that are farther away are not told."""
_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
Line = dict[str, Any]


def effect_of(state: State, by: str, command: AskGrant, now: int) -> list[Line]:
    """Return, for each account of a limit that a request of ``by`` counts in at stamp ``now``, how
    much of the limit is used at the peak of the cells that both are about, before it and with it.
    ``state`` is a copy, which is left as it was. Raise Problem for a request that is malformed for
    this ledger.
    """
    request = prepare(state, by, command, now)
    asked = request.datasets, by, request.purpose, request.allotment
    people = state.people()
    found = ((one, one.rule.cells(people, request.selection)) for one in state.route(*asked).limits)
    about = [(one, cells) for one, cells in found if cells is not None]
    before = [_spent(state, one, cells, now) for one, cells in about]
    grant = grant_for(state, Envelope(by, command), request, command.ttl_seconds, now)
    booked = Reserve(grant, request.purpose, request.allotment)
    keep_journal(state)
    try:
        undoes = booked.fold(state, Entry(state.sequence, RESERVED, now, b""))
        after = [_spent(state, one, cells, now) for one, cells in about]
        booked.undo(state, undoes)
    finally:
        drop_journal(state)
    each = zip(about, before, after, strict=True)
    return [_line(state, counted, was, then, now) for (counted, _), was, then in each]


def _spent(state: State, counted: Counted, selection: Selection, now: int) -> int | None:
    """Return the epsilon that is spent or reserved at the peak of the cells; None is infinite."""
    sums = state.account(counted.key).at(now).used
    asked = state.cells(counted.key.unit, selection)
    few = sums.stacked_apart() if asked.everyone else None  # cells that are alike are one
    cells = sums.stacked() if few is None else few[0]
    if (met := sums.met(asked)) is not None:
        cells = cells[:, met.numbers]
    elif not asked.everyone:
        cells = cells[:, asked.mask(state.people().shape) > 0]
    return Ruler(counted.rule, counted.epoch).worst(Columns.stacked(cells)).epsilon


def _line(state: State, counted: Counted, was: int | None, then: int | None, now: int) -> Line:
    rule, epoch, key = counted
    limit = epoch.capacity.epsilon
    scope = rule.place_in_words((key.dataset, key.client, key.purpose), state.people())
    found: Line = {
        "rule": rule.id,
        "action": rule.action,
        "scope": scope,
        "limit": amount(limit, Currency.EPSILON),
        "spent_before": amount(was, Currency.EPSILON),
        "spent_after": amount(then, Currency.EPSILON),
        "percent_before": _percent(was, limit),
        "percent_after": _percent(then, limit),
    }
    text = f"rule {rule.id} ({scope}): {found['percent_before']} % to {found['percent_after']} %"
    pace = _pace(counted, was, now)
    ends = [_runs_out(pace, units, limit, now) for units in (was, then)]
    if pace is not None and ends[0] is not None and ends[1] is not None:
        found |= {"runs_out_before": rfc3339(ends[0])[:10], "runs_out_after": rfc3339(ends[1])[:10]}
        dates = [_date(stamp) for stamp in ends if stamp is not None]
        text += f"; runs out on {dates[1]}" + (
            f" instead of {dates[0]}" if dates[0] != dates[1] else ""
        )
    return found | {"text": text}


def _percent(units: int | None, limit: int) -> str:
    """Return a share of the limit in per cent, rounded up to a tenth."""
    if units is None or limit <= 0:
        return INFINITE
    tenths = -(-1_000 * units // limit)
    return f"{tenths // 10}.{tenths % 10}" if tenths % 10 else str(tenths // 10)


def _pace(counted: Counted, spent: int | None, now: int) -> Fraction | None:
    """Return how much was charged a microsecond on average since the rule began to count; None
    where that says nothing: of a window or a budget that refreshes, of one that began with what was
    used before, and where it has counted for less than a day, or nothing.
    """
    epoch = counted.epoch
    brought = epoch.carried and epoch.begun >= epoch.since
    since = now - epoch.begun
    if counted.rule.span is not None or brought or since < _SHORTEST or not spent:
        return None
    return Fraction(spent, since)


def _runs_out(pace: Fraction | None, spent: int | None, limit: int, now: int) -> int | None:
    """Return the stamp from which on nothing is left; None beyond a hundred years, or unknown."""
    if pace is None or spent is None:
        return None
    stamp = now + int(max(0, limit - spent) / pace)
    return stamp if stamp - now <= _FARTHEST else None


def _date(stamp: int) -> str:
    year, month, day = map(int, rfc3339(stamp)[:10].split("-"))
    return f"{day} {_MONTHS[month - 1]} {year}"
