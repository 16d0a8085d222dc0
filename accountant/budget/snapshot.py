"""Snapshots: a state as bytes, so that a start does not have to fold every event again.

A snapshot holds the length of the head, the head (``Head``, JSON), then columns: the open grants
and their commands, the entries of windows, the requests that wait, the lists that these refer to
(lists.py), the classes of cells if there are many cells, the sums of each account, the settled
grants, the answered keys. Capacities and currencies of epochs follow from the policy. A snapshot is
not checked against the events: the caller has to know that it is authentic, and that the same code
folded it (store/snapshots.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Final, TypeVar

import numpy as np
import orjson
from msgspec.structs import astuple
from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer

from accountant.budget.accounts import runs
from accountant.budget.accounts.account import Account
from accountant.budget.accounts.accounts import Accounts
from accountant.budget.accounts.classes import Space
from accountant.budget.accounts.epochs import Adopted, epoch_of
from accountant.budget.accounts.growing import many, merged
from accountant.budget.accounts.spans import Window
from accountant.budget.accounts.sums import Sums
from accountant.budget.accounts.unlocking import (
    Arrivals,
)
from accountant.budget.accounts.window import (
    WindowAccount,
)
from accountant.budget.bill import Bill, Per
from accountant.budget.columns import Take, raw
from accountant.budget.custody.custody import Custody
from accountant.budget.grants import AccountKey, Grant, Grants, Legend
from accountant.budget.idempotency import IdempotencyIndex
from accountant.budget.lists import (
    Lines,
    Lists,
    Number,
    bookings_in,
    charges_in,
    per_in,
    pieces,
    selections_in,
)
from accountant.budget.policy import Policy
from accountant.budget.population.population import Dataset, Population
from accountant.budget.population.selection import Selection
from accountant.budget.proposals import Proposal
from accountant.budget.reach import Reach
from accountant.budget.state import State
from accountant.budget.waiting.asked import Waiting, waiting_for
from accountant.budget.waiting.queue import queue_of
from accountant.privacy.curves import order_of
from accountant.privacy.units import FIXED, Axis, Charge, Currency

K = TypeVar("K")
T = TypeVar("T")
_LENGTH: Final = 8
_COLUMNS: Final = 13
"""Integers of an open grant: the fields of ``Grant`` but for its name, which is its sequence."""
Big = Annotated[
    int,
    BeforeValidator(lambda value: int(value) if isinstance(value, str) else value),
    PlainSerializer(str, return_type=str),
]
"""A whole number of any size: a string, as in events."""
EpochRow = tuple[int, Big, tuple[Fraction, Fraction] | None, tuple[Fraction, ...], bool, bool, Big]
"""The facts of an epoch beside its rule: number, since, chosen, orders, carried, whole, begun."""
WaitingRow = tuple[str, str, str, Big, Big, Number, str, Number, Number]
"""A request that waits: client, datasets, command, since when, until when, sequence, digest, and
what it cost: the charge, and the further units.
"""
AdoptedRow = tuple[dict[str, Any], str, int, tuple[EpochRow, ...]]
"""The policy as its event has it, digest, sequence, and the epochs of its limit rules in order."""


_WAITING: Final = Lines(WaitingRow)


@dataclass(frozen=True, slots=True)
class AccountRow:
    """An account without its sums."""

    rule: str
    epoch: int
    dataset: str
    client: str
    unit: str
    purpose: str
    axis: Number
    bound: tuple[Big, ...]
    held: tuple[Big, ...]
    lasting: tuple[Big, ...]
    kept: Annotated[int, Field(ge=0, le=2)]
    """How many arrays of cells there are (``Sums.parts_kept``)."""
    window: str | None
    passing: Number
    """How many entries are to leave the window: each is a row among the columns."""

    @property
    def entry(self) -> int:
        """The integers of an entry: stamp, cells, finite sums, infinities."""
        return 2 + 2 * len(self.bound)


ArrivalsRow = tuple[str, int, str, str, str, str, Big | None, Annotated[int, Field(ge=0, le=1)]]
"""The account that requests were counted in, until when they count, and whether there are cells."""


class Head(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """Everything but the columns. Dictionaries are lists, which keep their order. Currencies and
    texts are listed once and referred to by their numbers.
    """

    ledger: str
    sequence: Number
    time: Big
    population: Population | None
    datasets: tuple[Dataset, ...]
    adopted: AdoptedRow | None
    last_epoch: tuple[tuple[str, int], ...]
    custody: Custody
    revalued: tuple[tuple[int, int], ...]
    memories: tuple[tuple[str, Any], ...]
    proposals: tuple[Proposal, ...]
    axes: tuple[tuple[str, ...], ...]
    texts: tuple[str, ...]
    commands: Number
    """How many bytes the commands take, which stand among the columns, a line each."""
    waiting: Number
    """The same of the requests that wait."""
    lists: Annotated[tuple[Number, ...], Field(min_length=4, max_length=4)]
    """The same of each list: charges, bookings, selections, further units."""
    accounts: tuple[AccountRow, ...]
    arrivals: tuple[ArrivalsRow, ...]
    open: Number
    """How many grants are open: each is a row among the columns."""
    settled: Legend
    answers: Number


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a state, made within a moment, to be dumped while the state goes on."""

    state: State
    """Frozen, but for the settled grants and the answers, which the other fields hold."""
    legend: Legend
    answers: int
    columns: tuple[bytes, ...]
    count: int
    """How many classes of cells there were; the state goes on parting them."""

    @classmethod
    def of(cls, state: State) -> Copied:
        """Return a copy of ``state``, which must not change meanwhile."""
        frozen = state.frozen(whole=True)  # at the last stamp, even if it was read at a later one
        sums = (part for account in frozen.accounts.values() for part in account.used.dump())
        counts = (part for one in frozen.arrivals.values() for part in one.counts.dump())
        columns = *sums, *counts, *state.grants.dump(), *state.idempotency.dump()
        count = 0 if frozen.classes is None else frozen.classes.count
        return cls(frozen, state.grants.legend(), len(state.idempotency), columns, count)

    def dump(self, breathe: Callable[[], None] = lambda: None) -> list[bytes]:
        """Return the parts of one file, calling ``breathe`` often, so that other threads run."""
        head, *opened = _head(self.state, self.legend, self.answers, breathe)
        cells = list[bytes]()
        for part in runs.dump(self.state.classes, self.count) if self.state.classes else ():
            cells.append(part)
            breathe()
        return [len(head).to_bytes(_LENGTH, "little"), head, *opened, *cells, *self.columns]


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
        passing = rest.take(8 * sum(row.passing * row.entry for row in head.accounts))
        waiting = bytes(rest.take(head.waiting))
        listed = [rest.take(size) for size in head.lists]
        state = _state(head, grants, lines, passing, waiting, listed, rest.take)
        if rest.data:
            raise ValueError("the snapshot goes on after its end")
        again = _head(state, state.grants.legend(), len(state.idempotency), lambda: None)
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"the snapshot of {ledger} is damaged: {error!r}") from error
    if state.ledger != ledger or again != (written, grants, commands, passing, waiting, *listed):
        raise ValueError(f"a snapshot of {ledger} would be another one")
    return state


class _Rest:
    """The bytes of a snapshot that are not read yet."""

    def __init__(self, data: memoryview) -> None:
        self.data = data

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes. Raises ValueError if there are fewer."""
        if not 0 <= size <= len(self.data):
            raise ValueError("the snapshot ends too early")
        taken, self.data = self.data[:size], self.data[size:]
        return taken


def _head(
    state: State, legend: Legend, answers: int, breathe: Callable[[], None]
) -> tuple[bytes, ...]:
    """Return head, grants, commands, windows, the requests that wait and the lists. The order of
    making them numbers the lists.
    """
    lists = Lists()
    numbers = {key: number for number, key in enumerate(state.accounts)}
    accounts = tuple(_account_row(*item, lists) for item in state.accounts.items())
    passing = bytearray()
    for account in state.accounts.values():
        entries = account.entries() if isinstance(account, WindowAccount) else iter(())
        for some in pieces(entries, breathe):
            cells = lists.numbers(lists.selections, [selection for _, selection, _ in some])
            rows = [
                (ends, number, *charge.finite, *charge.infinite)
                for (ends, _, charge), number in zip(some, cells, strict=True)
            ]
            passing += raw(np.array(rows, dtype=np.int64))
    opened = bytearray()
    for few in pieces(state.grants.in_order(), breathe):
        opened += _grant_rows(few, numbers, lists)
    commands = b"\n".join(lists.commands)
    waiting = _WAITING.write(_waiting_rows(state.waiting.in_order(), lists), breathe)
    columns = lists.columns(breathe)
    head = Head.model_construct(  # ``load`` checks what it reads
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
        proposals=tuple(state.proposals.values()),
        accounts=accounts,
        arrivals=tuple(
            (*key, one.ends, one.counts.parts_kept) for key, one in state.arrivals.items()
        ),
        axes=tuple(tuple(map(str, axis)) for axis in lists.axes),
        texts=tuple(lists.texts),
        open=len(state.open),
        commands=len(commands),
        waiting=len(waiting),
        lists=tuple(map(len, columns)),
        settled=legend,
        answers=answers,
    )
    written = head.model_dump_json().encode()
    return written, bytes(opened), commands, bytes(passing), waiting, *columns


def _state(
    head: Head,
    grants: memoryview,
    commands: list[bytes],
    passing: memoryview,
    waiting: bytes,
    listed: Sequence[memoryview],
    take: Take,
) -> State:
    axes = list(map(_axis, head.axes))
    of_charges, of_bookings, of_selections, of_per = listed
    charges = charges_in(of_charges, axes)
    shape = head.population.shape if head.population else ()
    grown = head.population.grown if head.population else ()
    selections = selections_in(of_selections, shape)
    classes = runs.load(take, shape, grown) if many(shape) else None
    space = classes or shape
    accounts = Accounts(_accounts(head, axes, space, selections, passing, take))
    accounts.share()
    arrivals = {
        AccountKey(*row[:6]): Arrivals(row[6], Sums.load(take, 1, space, row[7]))
        for row in head.arrivals
    }
    if classes is not None:
        sums = (one.used for one in accounts.distinct())
        classes = merged(classes, [*sums, *(one.counts for one in arrivals.values())])
    held, per = bookings_in(of_bookings, list(accounts), charges), per_in(of_per, charges)
    columns = np.frombuffer(grants, dtype="<i8").reshape(head.open, _COLUMNS).T.tolist()
    reaches = list(map(Reach.read, head.texts))
    tables: list[Any] = [head.texts, reaches, selections, commands, charges, *[None] * 3, held]
    fields = [
        column if table is None else [table[number] for number in column]
        for column, table in zip(columns, (*tables, (False, True), None, None, per), strict=True)
    ]
    return State(
        ledger=head.ledger,
        sequence=head.sequence,
        time=head.time,
        population=head.population,
        datasets={dataset.id: dataset for dataset in head.datasets},
        adopted=_adopted(head.adopted) if head.adopted else None,
        accounts=accounts,
        grants=Grants.load(take, head.settled, map(Grant, map("g{}".format, columns[7]), *fields)),
        waiting=queue_of(
            _waiting(row, charges, per, head.custody) for row in _WAITING.read(waiting)
        ),
        idempotency=IdempotencyIndex.load(take, head.answers),
        last_epoch=dict(head.last_epoch),
        custody=head.custody,
        revalued=dict(head.revalued),
        memories=dict(head.memories),
        proposals={one.sequence: one for one in head.proposals},
        arrivals=arrivals,
        classes=classes,
    )


def _account_row(key: AccountKey, account: Account, lists: Lists) -> AccountRow:
    window, passing = None, 0
    if isinstance(account, WindowAccount):
        window, passing = account.window.text, sum(len(part.charges) for part in account.passing)
    sums = tuple(account.bound), tuple(account.held), account.lasting, account.used.parts_kept
    return AccountRow(*key, lists.axis(account.axis), *sums, window, passing)


def _accounts(
    head: Head,
    axes: list[Axis],
    space: Space,
    selections: list[Selection],
    passing: memoryview,
    take: Take,
) -> Iterator[tuple[AccountKey, Account]]:
    entries, first = np.frombuffer(passing, dtype="<i8"), 0
    for row in head.accounts:
        axis, n = axes[row.axis], len(row.bound)
        if not len(axis) == n == len(row.held) or len(row.lasting) not in (0, 2 * n):
            raise ValueError("an account is not as long as its axis")
        used = Sums.load(take, n, space, row.kept)
        held = axis, used, list(row.bound), list(row.held)
        account = Account(*held)
        if row.window is not None:
            account = WindowAccount(*held, Window.read(row.window))
            last = first + row.passing * row.entry
            account.entered(
                (ends, selections[cells], Charge(axis, tuple(units[:n]), tuple(units[n:])))
                for ends, cells, *units in entries[first:last].reshape(-1, row.entry).tolist()
            )
            first = last
        account.lasting = row.lasting
        key = row.rule, row.epoch, row.dataset, row.client, row.unit, row.purpose
        yield AccountKey(*key), account


def _grant_rows(grants: Sequence[Grant], numbers: dict[AccountKey, int], lists: Lists) -> bytes:
    """Return a row of each grant, made by columns: grant by grant takes four times as long."""
    _, by, reaches, selections, commands, totals, opened, expires, sequences, held, *rest = zip(
        *map(astuple, grants), strict=True
    )
    *counted, per = rest
    columns = (
        lists.numbers(lists.texts, by),
        lists.numbers(lists.texts, [on.text for on in reaches]),
        lists.numbers(lists.selections, selections),
        lists.numbers(lists.commands, commands),
        lists.numbers(lists.charges, totals),
        *(opened, expires, sequences),
        lists.held(held, numbers),
        *counted,
        lists.further(per),
    )
    return raw(np.array(columns, dtype=np.int64).T)


def _waiting_rows(waiting: Sequence[Waiting], lists: Lists) -> Iterator[WaitingRow]:
    totals = lists.numbers(lists.charges, [one.bill.total for one in waiting])
    further = lists.further([one.bill.per for one in waiting])
    for one, total, per in zip(waiting, totals, further, strict=True):
        facts = one.by, one.on.text, one.command.decode(), one.opened, one.expires, one.sequence
        yield (*facts, one.digest, total, per)


def _waiting(
    row: WaitingRow, charges: Sequence[Charge], further: Sequence[Per], custody: Custody
) -> Waiting:
    by, on, command, *when, digest, total, per = row
    opened, expires, sequence = when
    priced = Bill(charges[total], further[per]), custody.engine_at(sequence)
    about = by, Reach.read(on), command.encode()
    return waiting_for(*about, (opened, expires, sequence), priced, digest)


def _adopted_row(adopted: Adopted) -> AdoptedRow:
    epochs = [adopted.epochs[rule.id] for rule in adopted.policy.limits]
    rows = tuple(
        (e.number, e.since, e.limit.chosen, orders, e.carried, e.whole, e.begun)
        for e in epochs
        for orders in [tuple(map(Fraction, e.limit.orders))]
    )
    return adopted.policy.to_json(), adopted.digest, adopted.sequence, rows


def _adopted(row: AdoptedRow) -> Adopted:
    document, digest, sequence, rows = row
    policy = Policy.stored(document)
    epochs = {}
    for rule, one in zip(policy.limits, rows, strict=True):
        number, since, chosen, orders, carried, whole, begun = one
        facts = rule, chosen, tuple(map(order_of, orders)), number, since
        epochs[rule.id] = epoch_of(*facts, carried=carried, whole=whole, begun=begun)
    return Adopted(policy, digest, sequence, epochs)


def _axis(names: tuple[str, ...]) -> Axis:
    axis = tuple(map(Currency, names))
    if unknown := [c for c in axis if c not in FIXED and c.order is None]:
        raise ValueError(f"no currency is called {unknown[0]!r}")
    return axis
