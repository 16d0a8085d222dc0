"""The statement of a dataset: opening and movements are the closing, to the unit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, ledger, ops
from report_desk import DAY, Desk
from support import SECOND, START, Book, gaussian, laplace

from accountant.budget.apply import apply
from accountant.budget.errors import Invalid
from accountant.budget.outcome import CHARGING
from accountant.budget.reading import read
from accountant.budget.state import AccountKey, State, lifetime
from accountant.ledger.events import Event
from accountant.ledger.merkle import leaf_hash
from accountant.reporting.making import likely_place
from accountant.reporting.periods import dataset
from accountant.reporting.periods.account import OTHER, TIME, Part, Statement, Subject, subject_of
from accountant.reporting.periods.cell import Held
from accountant.reporting.periods.dataset import StatementFacts
from accountant.reporting.periods.making import AskedReport, events_read, facts_of
from accountant.reporting.periods.period import Period
from accountant.reporting.periods.told_dataset import statement_told
from accountant.reporting.periods.walk import walk
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Stored

FIRST = datetime.fromtimestamp(START / SECOND, UTC).date()
"""The day on which every test begins."""


def _days(first: int, last: int) -> Period:
    return Period(FIRST + timedelta(days=first), FIRST + timedelta(days=last))


def _state_at(book: Book, stamp: int) -> State:
    """The ledger as of the events before a stamp, folded by other code."""
    state = State(book.name)
    for body in book.stored:
        event = Event.from_bytes(body)
        if event.time >= stamp:
            break
        apply(state, read(state, event))
    return state


def _held(state: State, subject: Subject, part: Part) -> Held:
    """What the cell holds by the arrays of all cells, where the values of the cell are there."""
    key = subject.counted.key if subject.counted else lifetime(subject.dataset)
    if part.epoch is not None:
        key = key._replace(epoch=part.epoch.number)
    return _held_of(state, key, subject)


def _held_of(state: State, key: AccountKey, subject: Subject) -> Held:
    sums = state.seen(key).used
    nothing = (0,) * 2 * sums.rows
    if any(at >= size for at, size in zip(subject.cell, sums.shape, strict=True)):
        return Held(nothing, nothing)
    reserved = state.reserved().get(key)
    place = (slice(None), *subject.cell)
    used = tuple(sums.stacked()[place].tolist())
    return Held(used, nothing if reserved is None else tuple(reserved.stacked()[place].tolist()))


def _moves(book: Book, period: Period, subject: Subject) -> dict[int, list[tuple[int, ...]]]:
    """By event, how much it changes what the cell holds, by the arrays of all cells: spent, then
    reserved. An event that begins another epoch is none; nor is what time changes.
    """
    state, found = State(book.name), dict[int, list[tuple[int, ...]]]()
    for body in book.stored:
        event = Event.from_bytes(body)
        if event.time >= period.end:
            break
        state.now = event.time
        before = _reading(state, subject)
        state.now = 0
        apply(state, read(state, event))
        after = _reading(state, subject)
        if event.time < period.start or before is None or after is None or before[0] != after[0]:
            continue
        was, then = before[1], after[1]
        if was != then:
            pairs = ((was.spent, then.spent), (was.reserved, then.reserved))
            found[event.sequence] = [
                tuple(b - a for a, b in zip(*pair, strict=True)) for pair in pairs
            ]
    return found


def _reading(state: State, subject: Subject) -> tuple[int | None, Held] | None:
    """The epoch that counts, and what the cell holds; None where nothing counts."""
    counted = subject.counted
    if state.population is None:
        return None
    if counted is None:
        return None, _held_of(state, lifetime(subject.dataset), subject)
    if state.adopted is None or (epoch := state.adopted.epochs.get(counted.rule.id)) is None:
        return None
    key = counted.key._replace(epoch=epoch.number)
    return epoch.number, _held_of(state, key, subject)


@pytest.mark.parametrize("gate", ["renyi", "zcdp"])
@settings(max_examples=examples(30))
@given(todo=ops, first=st.integers(0, 1), more=st.integers(0, 2), name=st.sampled_from("de"))
def test_opening_and_movements_are_the_closing(
    gate: str, todo: Ops, first: int, more: int, name: str
) -> None:
    """In every currency of the account, for what is spent, for what is reserved and for charges
    without a bound; opening and closing are what the arrays of all cells hold at these moments, and
    each movement is what its event changes there. So it is across policies, recoveries and added
    groups.
    """
    book = ledger(gate, True, todo)
    period = _days(first, first + more)
    stored = [Stored(i, body, leaf_hash(body)) for i, body in enumerate(book.stored)]
    now = period.end
    subject = subject_of(walk(book.name, stored, period, now).state, name)
    statement = Statement(subject.place, Texts())
    end = walk(book.name, stored, period, now, statement)
    statement.close(end.state)
    for part in statement.parts:
        spent = np.array([part.opening.spent, *(one.spent for one in part.movements)])
        held = np.array([part.opening.reserved, *(one.reserved for one in part.movements)])
        assert tuple(spent.sum(axis=0)) == part.closing.spent
        assert tuple(held.sum(axis=0)) == part.closing.reserved
        assert all(one.kind != OTHER for one in part.movements)
    listed = [one for part in statement.parts for one in part.movements if one.kind != TIME]
    moved = {one.sequence: [one.spent, one.reserved] for one in listed}
    assert moved == _moves(book, period, subject)
    at_start = _state_at(book, period.start)
    at_start.now = period.start
    if statement.parts and statement.parts[0].event is None:
        assert statement.parts[0].opening == _held(at_start, subject, statement.parts[0])
    at_end = _state_at(book, period.end)
    at_end.now = period.end - 1
    assert statement.parts[-1].closing == _held(at_end, subject, statement.parts[-1])


def _statement(desk: Desk, period: Period, name: str = "d") -> StatementFacts:
    found = facts_of(
        desk.ledgers, desk.name, AskedReport.of("statement", period, name, desk.clock())
    )
    assert isinstance(found, StatementFacts)
    return found


def _adds_up(found: StatementFacts) -> None:
    """Opening, lines and closing add up as decimals, too: as they are printed."""
    for part in found.parts:
        for name in ("spent", "reserved"):
            moved = sum((Decimal(getattr(one, name)) for one in part.lines), Decimal(0))
            assert moved == Decimal(getattr(part, name))
            opened = Decimal(getattr(part.opening, name))
            assert opened + moved == Decimal(getattr(part.closing, name))


def test_a_statement_is_of_the_group_that_has_used_most(desk: Desk) -> None:
    """Charges to other groups only are not in it, and its closing is what the limit says."""
    desk.hospital(dimensions={"sex": ["f", "m"]})
    desk.record(laplace("0.1"))
    desk.forward(DAY)
    desk.record(laplace("0.2"), subjects={"sex": ["f"]})
    desk.record(laplace("0.3"), subjects={"sex": ["m"]}, purpose="wages")
    found = _statement(desk, _days(1, 1))
    [part] = found.parts
    assert found.group == {"sex": "m"}
    assert (part.opening.spent, part.closing.epsilon_spent) == ("0.1", "0.4")
    [line] = part.lines
    assert (line.by, line.subjects, line.purpose, line.spent) == ("pipe", "sex: m", "wages", "0.3")
    _adds_up(found)


def test_a_limit_that_converts_says_by_how_much(desk: Desk) -> None:
    """Amounts are those that the limit adds up; the slope and the start of its line are told, and
    give what opening and closing come to in epsilon.
    """
    desk.hospital("  - {id: a, limit: {epsilon: 4, delta: 1e-6}, gate: zcdp}\n")
    for _ in range(40):
        desk.record(gaussian("0.1"))
    [part] = _statement(desk, _days(0, 0)).parts
    assert part.currency == "rho"
    assert part.slope is not None
    assert part.start is not None
    along = Decimal(part.start) + Decimal(part.slope) * Decimal(part.closing.spent)
    assert 0 <= along - Decimal(part.closing.epsilon_spent) < Decimal("1e-8")


def test_a_changed_limit_begins_another_part(desk: Desk) -> None:
    """It says by which event, and opens with what was used, as the new limit counts it."""
    desk.hospital()
    desk.record(laplace("0.25"))
    desk.forward(DAY)
    desk.policy("  - {id: a, limit: {epsilon: 2}}\n")
    desk.record(laplace("0.5"))
    first, second = _statement(desk, _days(1, 1)).parts
    assert (first.event, first.limit, first.closing.spent) == (None, "1", "0.25")
    assert (second.limit, second.opening.spent, second.closing.spent) == ("2", "0.25", "0.75")
    assert second.event is not None


def test_what_leaves_a_window_is_a_movement(desk: Desk) -> None:
    """It takes the day on which it was seen to be gone, and no event."""
    desk.hospital("  - {id: a, window: 2d, limit: {epsilon: 1}}\n")
    desk.record(laplace("0.25"))
    desk.forward(5 * DAY)
    found = _statement(desk, _days(0, 4))
    [part] = found.parts
    assert [(one.kind, one.spent) for one in part.lines][-1] == ("time", "-0.25")
    assert part.closing.spent == "0"
    _adds_up(found)


def test_an_expired_grant_moves_from_reserved_to_spent(desk: Desk) -> None:
    """With the client that had asked for it."""
    desk.hospital()
    desk.grant(laplace("0.5"), ttl_seconds=60, purpose="ops")
    desk.forward(61)
    desk.service.expire_due()
    [part] = _statement(desk, _days(0, 0)).parts
    _, line = part.lines
    assert (line.kind, line.by, line.purpose) == ("grant.expired.v1", "pipe", "ops")
    assert (line.spent, line.reserved) == ("0.5", "-0.5")


def test_a_late_ancestor_is_charged_in_one_line(desk: Desk) -> None:
    """What data made from it had used comes with its registration, what grants held of these too;
    they end there line by line.
    """
    desk.hospital()
    desk.dataset("e", parents=["n/x"])
    desk.record(laplace("0.25"), dataset="e")
    opened = desk.grant(laplace("0.125", 2), dataset="e")
    desk.dataset("x")
    desk.do("commit_grant", grant=f"g{opened.sequence}", mechanisms=[laplace("0.125")])
    found = _statement(desk, _days(0, 0), "x")
    [part] = found.parts
    assert [(one.kind, one.spent, one.reserved) for one in part.lines] == [
        (CHARGING, "0.25", "0.25"),
        ("grant.committed.v1", "0.125", "-0.25"),
    ]
    assert "charges that came with a registration" in str(statement_told(found))
    _adds_up(found)


def test_without_a_limit_the_lifetime_total_is_stated(desk: Desk) -> None:
    """In plain epsilons, also of charges without any bound."""
    desk.population()
    desk.dataset("d")
    desk.record(laplace("0.5"))
    desk.record({"kind": "non_private"})
    [part] = _statement(desk, _days(0, 0)).parts
    assert (part.rule, part.limit, part.currency) == ("", None, "epsilon")
    assert (part.closing.spent, part.closing.unbounded) == ("0.5", 1)
    assert part.closing.epsilon_spent == "infinite"


def test_a_period_without_events_closes_as_it_opened(desk: Desk) -> None:
    """Also one before anything was registered, which has no part: then it has no dataset either."""
    desk.hospital()
    desk.record(laplace("0.5"))
    desk.forward(3 * DAY)
    [part] = _statement(desk, _days(1, 2)).parts
    assert (part.opening.spent, part.lines, part.closing.spent) == ("0.5", (), "0.5")
    with pytest.raises(Invalid, match="no dataset"):
        _statement(desk, Period(date(2020, 1, 1), date(2020, 1, 31)))


def test_many_movements_are_added_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """By as little as it takes to be few enough, and to the same sums."""
    desk.hospital("  - {id: a, limit: {epsilon: 100}}\n")
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("record_invocations", by, {"dataset": "d", "mechanisms": [laplace("0.001")]})
        for by in ("one", "two", "three") * 4
    ]
    for _ in range(2):
        desk.all(asked)
        desk.forward(DAY)
    each = _statement(desk, _days(0, 2))
    for most, lines, summed in (
        (24, 24, ""),
        (6, 6, "day, client and kind"),
        (2, 2, "day and kind"),
    ):
        monkeypatch.setattr(dataset, "MOST_LINES", most)
        found = _statement(desk, _days(0, 2))
        assert (len(found.parts[0].lines), found.parts[0].summed) == (lines, summed)
        assert found.parts[0].spent == each.parts[0].spent
        _adds_up(found)


def test_a_limit_for_a_group_of_people_is_stated_as_it_counts(desk: Desk) -> None:
    """A household of three has three times what one of them is charged."""
    rules = (
        "  - {id: a, limit: {epsilon: 9}}\n  - {id: home, limit: {epsilon: 2.5}, unit: household}\n"
    )
    units = {"household": {"group_of": "person", "at_most": 3}}
    desk.hospital(rules, {"sex": ["f", "m"]}, units=units)
    desk.record(laplace("0.25"), subjects={"sex": ["f"]})
    found = _statement(desk, _days(0, 0))
    [part] = found.parts
    assert (part.rule, part.closing.epsilon_spent) == ("home", "0.75")
    assert found.whom == "one household"
    _adds_up(found)


def test_a_guess_saves_time_and_changes_nothing(desk: Desk) -> None:
    """Wherever a statement was thought to read, it is the same; where that was right the events are
    read once.
    """
    desk.hospital(
        "  - {id: a, limit: {epsilon: 1}}\n  - {id: b, limit: {epsilon: 9}}\n",
        dimensions={"sex": ["f", "m"]},
    )
    desk.dataset("e")
    for sex, epsilon in (("f", "0.2"), ("m", "0.3"), ("f", "0.05")):
        desk.forward(DAY)
        desk.record(laplace(epsilon), subjects={"sex": [sex]}, purpose="wages")
    asked = AskedReport.of("statement", _days(1, 2), "d", desk.clock())
    expected = _statement(desk, _days(1, 2))
    end = walk(desk.name, desk.ledgers.stream(desk.name), _days(1, 2), asked.now)
    right = subject_of(end.state, "d").place
    others = [
        right._replace(cell=(0,)),
        right._replace(cell=(5,)),
        right._replace(key=right.key._replace(rule="b")),
        right._replace(key=right.key._replace(rule="gone")),
        right._replace(key=lifetime("d")),
        right._replace(dataset="e", key=right.key._replace(dataset="e")),
    ]
    assert right.cell == (1,)
    for likely in (right, *others):
        seen = list[int]()
        found = facts_of(desk.ledgers, desk.name, asked, progress=seen.append, likely=likely)
        assert found == expected
        assert sum(seen) == events_read(desk.ledgers, desk.name, asked)
    assert likely_place(desk.service, desk.name, asked) == right
    assert likely_place(desk.service, desk.name, asked._replace(dataset="no")) is None
