"""Snapshots: a state as bytes, so that a start does not have to fold every event again.

``load(ledger, b"".join(dump(state)))`` is ``state``: every later decision is the same, to the byte.
A snapshot holds the head (``rows.py``, JSON) with its length before it, then the columns: the open
grants and their commands, the sums of each account, the settled grants, the answered keys.
Capacities and currencies of epochs are not in it: they follow from the policy. It is believed as it
stands, so whoever reads one has to know first that nobody changed it, and that the same code would
have folded it (store/snapshots.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from accountant.budget.accounts import Account
from accountant.budget.answers import Answers
from accountant.budget.epochs import Adopted, epoch_of
from accountant.budget.grants import Grant, Grants, Legend
from accountant.budget.meter import Meter
from accountant.budget.policy import Policy
from accountant.budget.raw import Take, raw
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
        sums = (
            part
            for account in state.accounts.values()
            for meter in (account.used, account.reserved)
            for part in meter.dump()
        )
        columns = *sums, *state.grants.dump(), *state.answers.dump()
        return cls(state.frozen(), state.grants.legend(), len(state.answers), columns)

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
        state = _state(head, rows, orjson.loads(commands), rest.take)
        rest.end()
        again = _head(state, state.grants.legend(), len(state.answers), lambda: None)
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"the snapshot of {ledger} is damaged: {error!r}") from error
    if state.ledger != ledger or again != (written, bytes(rows), bytes(commands)):
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
) -> tuple[bytes, bytes, bytes]:
    """The head, the rows of the open grants, and their commands."""
    lists = Lists()
    numbers = {key: number for number, key in enumerate(state.accounts)}
    # The order of these two decides about the numbers in the lists.
    accounts = tuple(_account_row(*item, lists) for item in state.accounts.items())
    opened, named = bytearray(), []
    grants = list(state.open.values())
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
    return head.to_bytes(), bytes(opened), commands


def _state(head: Head, rows: memoryview, commands: list[Any], take: Take) -> State:
    axes = [axis_from(names) for names in head.axes]
    charges = [charge_from(row, axes) for row in head.charges]
    shape = head.population.shape if head.population else ()
    accounts = dict(_accounts(head, axes, shape, take))
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
        answers=Answers.load(take, head.answers),
        last_epoch=dict(head.last_epoch),
        custody=head.custody,
        revalued=dict(head.revalued),
        memories=dict(head.memories),
    )


def _account_row(key: AccountKey, account: Account, lists: Lists) -> AccountRow:
    bound, held = tuple(account.bound), tuple(account.held)
    flat = account.used.flat, account.reserved.flat
    return AccountRow(*key, lists.axis(account.axis), bound, held, flat)


def _accounts(
    head: Head, axes: list[Axis], shape: tuple[int, ...], take: Take
) -> Iterator[tuple[AccountKey, Account]]:
    for row in head.accounts:
        axis = axes[row.axis]
        if not len(axis) == len(row.bound) == len(row.held):
            raise ValueError("an account is not as long as its axis")
        used, reserved = (Meter.load(take, 2 * len(axis), shape, flat=flat) for flat in row.flat)
        key = AccountKey(row.rule, row.epoch, row.dataset, row.client)
        yield key, Account(axis, used, reserved, list(row.bound), list(row.held))


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
    head: Head, rows: memoryview, commands: list[Any], keys: list[AccountKey], charges: list[Charge]
) -> Iterable[Grant]:
    shape = head.population.shape if head.population else ()
    selections = [selection_from(row, shape) for row in head.selections]
    bookings = [
        tuple((keys[account], charges[booked]) for account, booked in row) for row in head.bookings
    ]
    columns = np.frombuffer(rows, dtype="<i8").reshape(head.open, len(GrantColumns._fields)).T
    of = GrantColumns(*columns.tolist())
    if not all(isinstance(command, dict) for command in commands):
        raise ValueError("a command is no object")
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
