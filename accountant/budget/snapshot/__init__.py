"""Snapshots: a state as bytes, so that a start does not have to fold every event again.

``load(ledger, b"".join(dump(state)))`` is ``state``: every later decision is the same, to the byte.
A snapshot holds the head (``rows.py``, JSON) with its length before it, then the columns: the open
grants and their commands, what is to pass from windows, the sums of each account, the settled
grants, the answered keys.
Capacities and currencies of epochs are not in it: they follow from the policy. It is believed as it
stands, so whoever reads one has to know first that nobody changed it, and that the same code would
have folded it (store/snapshots.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import numpy as np
import orjson

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.accounts import Accounts
from accountant.budget.accounts.epochs import Adopted, epoch_of
from accountant.budget.accounts.sums import Integers, Sums
from accountant.budget.accounts.window import Window, WindowAccount
from accountant.budget.columns import Take, raw
from accountant.budget.grants import Grant, Grants, Legend
from accountant.budget.idempotency import IdempotencyIndex
from accountant.budget.policy import Policy
from accountant.budget.population.selection import Selection
from accountant.budget.snapshot.rows import (
    AccountRow,
    AdoptedRow,
    EpochRow,
    GrantColumns,
    Head,
    Lists,
    axis_from,
    charge_from,
    selection_from,
)
from accountant.budget.state import AccountKey, State
from accountant.privacy.units import Axis, Charge

T = TypeVar("T")
_LENGTH: Final = 8
_ROW: Final = 8 * len(GrantColumns._fields)
"""Bytes of an open grant."""
_BREATH: Final = 512
"""Open grants that are written without a break: a millisecond."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A state as it was, to be dumped while that goes on: copied within a moment, for what is long
    in it are columns.
    """

    state: State
    """Frozen, but for the settled grants and the answers: what is needed of these is beside it."""
    legend: Legend
    answers: int
    columns: tuple[bytes, ...]

    @classmethod
    def of(cls, state: State) -> Copied:
        """A copy of ``state``, which nobody may change meanwhile."""
        frozen = state.frozen(whole=True)  # at the last stamp, whoever has looked further since
        sums = (part for account in frozen.accounts.values() for part in account.used.dump())
        columns = *sums, *state.grants.dump(), *state.idempotency.dump()
        return cls(frozen, state.grants.legend(), len(state.idempotency), columns)

    def dump(self, breathe: Callable[[], None] = lambda: None) -> list[bytes]:
        """The parts of one file. ``breathe`` is called now and then, to let others go on."""
        head, *opened = _head(self.state, self.legend, self.answers, breathe)
        return [len(head).to_bytes(_LENGTH, "little"), head, *opened, *self.columns]


def dump(state: State) -> list[bytes]:
    """The state as parts of one file."""
    return Copied.of(state).dump()


def load(ledger: str, data: bytes | memoryview) -> State:
    """The state of ``ledger`` that ``dump`` wrote. Raises ValueError if this is not one: then it is
    not exactly what ``dump`` would write of any state.
    """
    rest = _Rest(memoryview(data))
    try:
        written = bytes(rest.take(int.from_bytes(rest.take(_LENGTH), "little")))
        head = Head.model_validate_json(written)
        rows, commands = rest.take(_ROW * head.open), rest.take(head.commands)
        passing = rest.take(8 * sum(map(_passing_size, head.accounts)))
        state = _state(head, rows, _commands(bytes(commands)), passing, rest.take)
        rest.end()
        again = _head(state, state.grants.legend(), len(state.idempotency), lambda: None)
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"the snapshot of {ledger} is damaged: {error!r}") from error
    if state.ledger != ledger or again != (written, bytes(rows), bytes(commands), bytes(passing)):
        raise ValueError(f"a snapshot of {ledger} would be another one")
    return state


class _Rest:
    """What of a snapshot was not read yet."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes. Raises ValueError if there are fewer."""
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError("the snapshot ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def end(self) -> None:
        """Raises ValueError if there is more."""
        if self._at != len(self._data):
            raise ValueError("the snapshot goes on after its end")


def _head(
    state: State, legend: Legend, answers: int, breathe: Callable[[], None]
) -> tuple[bytes, bytes, bytes, bytes]:
    """The head, the rows of the open grants, their commands, and what is to pass."""
    lists = Lists()
    numbers = {key: number for number, key in enumerate(state.accounts)}
    # The order of these two decides about the numbers in the lists.
    accounts = tuple(_account_row(*item, lists) for item in state.accounts.items())
    passing = bytearray()
    for account in state.accounts.values():
        if isinstance(account, WindowAccount):
            for entries in _batched(account.entries()):
                passing += _passing_rows(entries, lists)
                breathe()
    opened, named = bytearray(), []
    grants = state.grants.in_order()
    for first in range(0, len(grants), _BREATH):
        some = grants[first : first + _BREATH]
        opened += _rows_of(some, numbers, lists)
        for number, grant in enumerate(some, first):
            if grant.id != _called(grant.sequence):
                named.append((number, grant.id))
        breathe()
    commands = lists.all_commands()
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
        named=tuple(named),
        settled=legend,
        answers=answers,
        **lists.rows(),
    )
    return head.to_bytes(), bytes(opened), commands, bytes(passing)


def _state(
    head: Head, rows: memoryview, commands: list[bytes], passing: memoryview, take: Take
) -> State:
    axes = [axis_from(names) for names in head.axes]
    charges = [charge_from(row, axes) for row in head.charges]
    shape = head.population.shape if head.population else ()
    accounts = Accounts(dict(_accounts(head, axes, shape, passing, take)))
    accounts.share()
    opened = _opened(head, rows, commands, list(accounts), charges)
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


def _passing_size(row: AccountRow) -> int:
    """How many integers its entries take: when one ends, its cells, finite sums, infinities."""
    return row.passing * (2 + 2 * len(row.bound))


def _passing_rows(entries: Sequence[tuple[int, Selection, Charge]], lists: Lists) -> bytes:
    numbers = lists.selections([cells for _, cells, _ in entries])
    rows = [
        (ends, number, *charge.finite, *charge.infinite)
        for (ends, _, charge), number in zip(entries, numbers, strict=True)
    ]
    return raw(np.array(rows, dtype=np.int64))


def _entries(
    values: Integers, axis: Axis, selections: list[Selection]
) -> Iterator[tuple[int, Selection, Charge]]:
    n = len(axis)
    for ends, number, *units in values.reshape(-1, 2 + 2 * n).tolist():
        yield ends, selections[number], Charge(axis, tuple(units[:n]), tuple(units[n:]))


def _batched(items: Iterable[T]) -> Iterator[list[T]]:
    """The items, some at a time."""
    all_of = iter(items)
    while some := list(islice(all_of, _BREATH)):
        yield some


def _accounts(
    head: Head, axes: list[Axis], shape: tuple[int, ...], passing: memoryview, take: Take
) -> Iterator[tuple[AccountKey, Account]]:
    selections = [selection_from(row, shape) for row in head.selections]
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


def _rows_of(grants: Sequence[Grant], numbers: dict[AccountKey, int], lists: Lists) -> bytes:
    """A row of each grant, by columns: one grant after another would take four times as long."""
    (
        _,
        by,
        datasets,
        selections,
        commands,
        totals,
        opened,
        expires,
        sequences,
        bookings,
        sessions,
        positives,
        negatives,
    ) = zip(*grants, strict=True)
    columns = GrantColumns(
        sequence=sequences,
        by=lists.texts(by),
        dataset=lists.texts(datasets),
        selection=lists.selections(selections),
        command=lists.commands(commands),
        total=lists.charges(totals),
        opened=opened,
        expires=expires,
        bookings=lists.bookings(bookings, numbers),
        session=sessions,
        positives=positives,
        negatives=negatives,
    )
    return raw(np.array(columns, dtype=np.int64).T)


def _opened(
    head: Head,
    rows: memoryview,
    commands: list[bytes],
    keys: list[AccountKey],
    charges: list[Charge],
) -> Iterable[Grant]:
    shape = head.population.shape if head.population else ()
    selections = [selection_from(row, shape) for row in head.selections]
    bookings = [
        tuple((keys[account], charges[booked]) for account, booked in row) for row in head.bookings
    ]
    columns = np.frombuffer(rows, dtype="<i8").reshape(head.open, len(GrantColumns._fields)).T
    of = GrantColumns(*columns.tolist())
    names = list(map(_called, of.sequence))
    for number, name in head.named:
        names[number] = name
    return map(
        Grant,
        names,
        map(head.texts.__getitem__, of.by),
        map(head.texts.__getitem__, of.dataset),
        map(selections.__getitem__, of.selection),
        map(commands.__getitem__, of.command),
        map(charges.__getitem__, of.total),
        of.opened,
        of.expires,
        of.sequence,
        map(bookings.__getitem__, of.bookings),
        map(bool, of.session),
        of.positives,
        of.negatives,
    )


def _commands(lines: bytes) -> list[bytes]:
    """The commands of the open grants: canonical bytes have no line breaks. Raises ValueError if
    one is no object.
    """
    found = lines.split(b"\n") if lines else []
    if not all(isinstance(orjson.loads(line), dict) for line in found):
        raise ValueError("the command of an open grant is no object")
    return found


def _called(sequence: int) -> str:
    """What the grant is called that the event at ``sequence`` reserved."""
    return f"g{sequence}"


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
