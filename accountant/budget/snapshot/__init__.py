"""Snapshots: a state as bytes, so that a start does not have to fold every event again.

A snapshot holds the length of the head, the head (``rows.py``, JSON), then the columns: the open
grants and their commands, the entries of windows, the sums of each account, the settled grants,
the answered keys. Capacities and currencies of epochs follow from the policy and are not in it.

It is not checked against the events: its caller has to know that it is authentic, and that the same
code would have folded it (store/snapshots.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import orjson

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.accounts import Accounts
from accountant.budget.accounts.epochs import Adopted, epoch_of
from accountant.budget.accounts.sums import Integers, Sums
from accountant.budget.accounts.window import Window, WindowAccount
from accountant.budget.columns import Take, raw
from accountant.budget.grants import AccountKey, Grant, Grants, Legend
from accountant.budget.idempotency import IdempotencyIndex
from accountant.budget.policy import Policy
from accountant.budget.population.selection import Selection
from accountant.budget.snapshot import rows
from accountant.budget.snapshot.rows import AccountRow, AdoptedRow, EpochRow, Head, Lists
from accountant.budget.state import State
from accountant.privacy.units import Axis, Charge

_LENGTH: Final = 8
_COLUMNS: Final = 12
"""Integers of an open grant: ``_grant_rows`` names them."""
_BREATH: Final = 512
"""Open grants that are written without a break, within a millisecond."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a state, made within a moment, to be dumped while the state goes on."""

    state: State
    """Frozen, but for the settled grants and the answers, which the other fields hold."""
    legend: Legend
    answers: int
    columns: tuple[bytes, ...]

    @classmethod
    def of(cls, state: State) -> Copied:
        """Return a copy of ``state``, which must not change meanwhile."""
        frozen = state.frozen(whole=True)  # at the last stamp, even if it was read at a later one
        sums = (part for account in frozen.accounts.values() for part in account.used.dump())
        columns = *sums, *state.grants.dump(), *state.idempotency.dump()
        return cls(frozen, state.grants.legend(), len(state.idempotency), columns)

    def dump(self, breathe: Callable[[], None] = lambda: None) -> list[bytes]:
        """Return the parts of one file, calling ``breathe`` often, so that other threads run."""
        head, *opened = _head(self.state, self.legend, self.answers, breathe)
        return [len(head).to_bytes(_LENGTH, "little"), head, *opened, *self.columns]


def dump(state: State) -> list[bytes]:
    """Return the state as parts of one file."""
    return Copied.of(state).dump()


def load(ledger: str, data: bytes | memoryview) -> State:
    """Return the state of ``ledger``. Raises ValueError unless ``dump`` writes ``data`` of it."""
    rest = _Rest(memoryview(data))
    try:
        written = bytes(rest.take(int.from_bytes(rest.take(_LENGTH), "little")))
        head = Head.model_validate_json(written)
        grants, commands = rest.take(8 * _COLUMNS * head.open), bytes(rest.take(head.commands))
        lines = commands.split(b"\n") if commands else []  # canonical bytes have no line breaks
        if not all(isinstance(orjson.loads(line), dict) for line in lines):
            raise ValueError("the command of an open grant is no object")
        passing = rest.take(8 * sum(map(_passing_size, head.accounts)))
        state = _state(head, grants, lines, passing, rest.take)
        rest.end()
        again = _head(state, state.grants.legend(), len(state.idempotency), lambda: None)
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"the snapshot of {ledger} is damaged: {error!r}") from error
    if state.ledger != ledger or again != (written, bytes(grants), commands, bytes(passing)):
        raise ValueError(f"a snapshot of {ledger} would be another one")
    return state


class _Rest:
    """The bytes of a snapshot that are not read yet."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes. Raises ValueError if there are fewer."""
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError("the snapshot ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def end(self) -> None:
        """Raise ValueError if there are more."""
        if self._at != len(self._data):
            raise ValueError("the snapshot goes on after its end")


def _head(
    state: State, legend: Legend, answers: int, breathe: Callable[[], None]
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return head, grants, commands and windows. The order of making them numbers the lists."""
    lists = Lists()
    numbers = {key: number for number, key in enumerate(state.accounts)}
    accounts = tuple(_account_row(*item, lists) for item in state.accounts.items())
    passing = bytearray()
    for account in state.accounts.values():
        entries = account.entries() if isinstance(account, WindowAccount) else iter(())
        while some := list(islice(entries, _BREATH)):
            passing += _passing_rows(some, lists)
            breathe()
    opened, grants = bytearray(), iter(state.grants.in_order())
    while few := list(islice(grants, _BREATH)):
        opened += _grant_rows(few, numbers, lists)
        breathe()
    commands = b"\n".join(lists.commands)
    head = Head(
        ledger=state.ledger,
        sequence=state.sequence,
        time=state.time,
        population=state.population,
        datasets=tuple(state.datasets.values()),
        adopted=_adopted_row(state.adopted) if state.adopted else None,
        last_epoch=tuple(state.last_epoch.items()),
        custody=state.custody,
        revalued=tuple(state.revalued.items()),
        memories=tuple(state.memories.items()),
        accounts=accounts,
        open=len(state.open),
        commands=len(commands),
        settled=legend,
        answers=answers,
        **lists.rows(),
    )
    return head.model_dump_json().encode(), bytes(opened), commands, bytes(passing)


def _state(
    head: Head, grants: memoryview, commands: list[bytes], passing: memoryview, take: Take
) -> State:
    axes = [rows.axis_from(names) for names in head.axes]
    charges = [rows.charge_from(row, axes) for row in head.charges]
    shape = head.population.shape if head.population else ()
    selections = [rows.selection_from(row, shape) for row in head.selections]
    accounts = Accounts(dict(_accounts(head, axes, shape, selections, passing, take)))
    accounts.share()
    opened = _opened(head, grants, commands, list(accounts), charges, selections)
    return State(
        ledger=head.ledger,
        sequence=head.sequence,
        time=head.time,
        population=head.population,
        datasets={dataset.id: dataset for dataset in head.datasets},
        adopted=_adopted(head.adopted) if head.adopted else None,
        accounts=accounts,
        grants=Grants.load(take, head.settled, opened),
        idempotency=IdempotencyIndex.load(take, head.answers),
        last_epoch=dict(head.last_epoch),
        custody=head.custody,
        revalued=dict(head.revalued),
        memories=dict(head.memories),
    )


def _account_row(key: AccountKey, account: Account, lists: Lists) -> AccountRow:
    bound, held = tuple(account.bound), tuple(account.held)
    window, passing = None, 0
    if isinstance(account, WindowAccount):
        window = account.window.text
        passing = sum(len(part.charges) for part in account.passing)
    kept = account.used.parts_kept
    return AccountRow(*key, lists.axis(account.axis), bound, held, kept, window, passing)


def _accounts(
    head: Head,
    axes: list[Axis],
    shape: tuple[int, ...],
    selections: list[Selection],
    passing: memoryview,
    take: Take,
) -> Iterator[tuple[AccountKey, Account]]:
    values, first = np.frombuffer(passing, dtype="<i8").astype(np.int64), 0
    for row in head.accounts:
        axis = axes[row.axis]
        if not len(axis) == len(row.bound) == len(row.held):
            raise ValueError("an account is not as long as its axis")
        used = Sums.load(take, len(axis), shape, row.kept)
        key = AccountKey(row.rule, row.epoch, row.dataset, row.client)
        held = axis, used, list(row.bound), list(row.held)
        if row.window is None:
            yield key, Account(*held)
            continue
        account = WindowAccount(*held, Window.read(row.window))
        last = first + _passing_size(row)
        account.entered(_entries(values[first:last], axis, selections))
        first = last
        yield key, account


def _passing_size(row: AccountRow) -> int:
    """Return how many integers an account's entries take: stamp, cells, finite sums, infinities."""
    return row.passing * (2 + 2 * len(row.bound))


def _passing_rows(entries: Sequence[tuple[int, Selection, Charge]], lists: Lists) -> bytes:
    numbers = lists.numbers(lists.selections, [cells for _, cells, _ in entries])
    entered = [
        (ends, number, *charge.finite, *charge.infinite)
        for (ends, _, charge), number in zip(entries, numbers, strict=True)
    ]
    return raw(np.array(entered, dtype=np.int64))


def _entries(
    values: Integers, axis: Axis, selections: list[Selection]
) -> Iterator[tuple[int, Selection, Charge]]:
    n = len(axis)
    for ends, number, *units in values.reshape(-1, 2 + 2 * n).tolist():
        yield ends, selections[number], Charge(axis, tuple(units[:n]), tuple(units[n:]))


def _grant_rows(grants: Sequence[Grant], numbers: dict[AccountKey, int], lists: Lists) -> bytes:
    """Return a row of each grant, made by columns: grant by grant takes four times as long."""
    columns = zip(*grants, strict=True)
    _, by, datasets, selections, commands, totals, opened, expires, sequences, *others = columns
    bookings, sessions, positives, negatives = others
    ordered = (
        sequences,
        lists.numbers(lists.texts, by),
        lists.numbers(lists.texts, datasets),
        lists.numbers(lists.selections, selections),
        lists.numbers(lists.commands, commands),
        lists.numbers(lists.charges, totals),
        opened,
        expires,
        lists.held(bookings, numbers),
        sessions,
        positives,
        negatives,
    )
    return raw(np.array(ordered, dtype=np.int64).T)


def _opened(
    head: Head,
    grants: memoryview,
    commands: list[bytes],
    keys: list[AccountKey],
    charges: list[Charge],
    selections: list[Selection],
) -> Iterable[Grant]:
    """Return the open grants of the rows that ``_grant_rows`` wrote."""
    held = [
        tuple((keys[account], charges[booked]) for account, booked in row) for row in head.bookings
    ]
    columns = np.frombuffer(grants, dtype="<i8").reshape(head.open, _COLUMNS).T.tolist()
    sequences, by, datasets, cells, asked, totals, opened, expires, bookings, *counted = columns
    sessions, positives, negatives = counted
    return map(
        Grant,
        map("g{}".format, sequences),
        map(head.texts.__getitem__, by),
        map(head.texts.__getitem__, datasets),
        map(selections.__getitem__, cells),
        map(commands.__getitem__, asked),
        map(charges.__getitem__, totals),
        opened,
        expires,
        sequences,
        map(held.__getitem__, bookings),
        map(bool, sessions),
        positives,
        negatives,
    )


def _adopted_row(adopted: Adopted) -> AdoptedRow:
    epochs = tuple(
        EpochRow(epoch.number, epoch.since, epoch.limit.chosen, epoch.carried, epoch.whole)
        for rule in adopted.policy.limits
        for epoch in [adopted.epochs[rule.id]]
    )
    return AdoptedRow(adopted.policy.to_json(), adopted.digest, adopted.sequence, epochs)


def _adopted(row: AdoptedRow) -> Adopted:
    policy = Policy.model_validate(row.policy)
    epochs = {
        rule.id: epoch_of(
            rule, each.chosen, each.number, each.since, carried=each.carried, whole=each.whole
        )
        for rule, each in zip(policy.limits, row.epochs, strict=True)
    }
    return Adopted(policy, row.digest, row.sequence, epochs)
