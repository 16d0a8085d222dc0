"""Checks an evidence bundle of accountant with nothing but the Python standard library.

Written from docs/evidence.md alone, which says what it checks and what ``accountant verify`` does.
It shares no code with the service. First come bytes, tree and signatures; then sums, lines and
limits; then the audit, which takes the events in turn.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from hashlib import sha256, sha512
from itertools import accumulate, product
from math import prod
from typing import Any, BinaryIO, NamedTuple

MOST_FINDINGS, MOST_BYTES, MOST_CELLS, MOST_UNITS = 1000, 2**26, 10**6, 2**62
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
SURE = ("epsilon", "delta")  # what every account keeps, first
PER_ONE = {"epsilon": 10**9, "delta": 10**15}  # units; of all other currencies 10^15, too
EXACT = Context(prec=60)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JUDGED = ("grant.reserved.v1", "grant.refused.v1", "invocation.recorded.v1")
ENDS = ("grant.committed.v1", "grant.released.v1", "grant.expired.v1", "sparse_vector.closed.v1")
NUMBER = re.compile(r"\d{1,99}(\.\d{1,99})?([eE][+-]?\d{1,2})?(/[1-9]\d{0,98})?")

Cell = tuple[int, ...]  # positions of its values, dimensions in the order of their names
Cells = frozenset[Cell]
Key = tuple[str, int, str, str]  # of an account: rule, epoch, dataset, client
Used = list[int | None]  # sums in the currencies that are compared; None is infinite
Groups = list[tuple["Cells | None", list[int]]]  # units, and the cells that get them


def need(holds: object, reason: str) -> None:
    """Fails for this reason unless something holds."""
    if not holds:
        raise ValueError(reason)


def grow(subtrees: list[tuple[int, bytes]], entry: bytes) -> None:
    """Adds an entry to a tree (RFC 6962, section 2.1), as sizes and hashes of full subtrees."""
    size, node = 1, sha256(b"\0" + entry).digest()
    while subtrees and subtrees[-1][0] == size:
        size, node = 2 * size, sha256(b"\1" + subtrees.pop()[1] + node).digest()
    subtrees.append((size, node))


def root_of(subtrees: list[tuple[int, bytes]]) -> str:
    """The tree's hash in base64: the full subtrees, joined from the right."""
    *others, root = [node for _, node in subtrees] or [sha256().digest()]
    while others:
        root = sha256(b"\1" + others.pop() + root).digest()
    return b64encode(root).decode()


def positions(bits: str = "", gaps: str = "") -> list[int]:
    """A set of positions: as bits, lowest first, or how many it leaves out before each (LEB128)."""
    ones = f"{int.from_bytes(urlsafe_b64decode(bits + '=='), 'little'):b}"[::-1]
    parts = re.findall(rb"[\x80-\xff]*[\0-\x7f]", urlsafe_b64decode(gaps + "=="))
    steps = [1 + sum((byte & 127) << 7 * i for i, byte in enumerate(part)) for part in parts]
    return [at for at, bit in enumerate(ones) if bit == "1"] + [at - 1 for at in accumulate(steps)]


def joined(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    """The sum of two points in extended coordinates (RFC 8032, section 5.1.4)."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * D * p[3] * q[3] % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def point(data: bytes) -> tuple[int, ...]:
    """The point that 32 bytes encode in its one exact spelling (RFC 8032, section 5.1.3)."""
    sign, y = divmod(int.from_bytes(data, "little"), 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    need(len(data) == 32 and y < P and x * x % P == square and (x or not sign), "no Ed25519 key")
    x = x if x % 2 == sign else P - x
    return x, y, 1, x * y % P


def verifies(key: bytes, text: bytes, signature: bytes) -> bool:
    """Whether a signature is good: S < L, and S B - k A encodes as R (RFC 8032, section 5.1.7)."""
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    k = int.from_bytes(sha512(r + key + text).digest(), "little") % ORDER
    (x, y, _, t), base, total = point(key), point(b"\x58" + b"\x66" * 31), point(b"\1" + bytes(31))
    for bit in range(252, -1, -1):
        total = joined(total, total)
        total = joined(total, base) if s >> bit & 1 else total
        total = joined(total, (P - x, y, 1, P - t)) if k >> bit & 1 else total
    x, y = (n * pow(total[2], -1, P) % P for n in total[:2])
    return len(signature) == 64 and s < ORDER and (y + x % 2 * 2**255).to_bytes(32, "little") == r


def signed(note: str, key: str) -> bool:
    """Whether a note (C2SP signed-note) has signatures, all of them good, by a verifier key."""
    text, _, lines = note.rpartition("\n\n")
    name, identity, encoded = key.split("+", 2)  # each signature begins with the four bytes in hex
    own, public = f"— {name} ", b64decode(encoded, validate=True)
    digest = sha256(f"{name}\n".encode() + public).hexdigest()
    need(identity == digest[:8] and public[:1] == b"\1", "not an Ed25519 verifier key")
    mine = [line.removeprefix(own) for line in lines.split("\n")[:-1] if line.startswith(own)]
    data = [b64decode(each, validate=True) for each in mine]
    need([b64encode(each).decode() for each in data] == mine, "base64 with stray bits")
    found = [each[4:] for each in data if each[:4].hex() == identity]
    return found != [] and all(verifies(public[1:], f"{text}\n".encode(), each) for each in found)


def number(text: Any) -> Fraction:
    """A decimal, or a fraction p/q, as events spell them."""
    need(type(text) is str and NUMBER.fullmatch(text), f"no number: {text!r:.99}")
    return Fraction(text)


def stamp(text: str) -> int:
    """Microseconds since 1970."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def ends(window: str, at: int) -> int:
    """When what is spent at ``at`` leaves a window: ``30d``, ``12h`` or ``month``."""
    if window != "month":
        return at + int(window[:-1]) * {"h": 3_600, "d": 86_400}[window[-1]] * 10**6
    moment = EPOCH + timedelta(microseconds=at)
    year, month = divmod(moment.year * 12 + moment.month, 12)
    return stamp(datetime(year, month + 1, 1, tzinfo=UTC).isoformat())


# -- sums ------------------------------------------------------------------------------------


def amounts(charge: dict[str, Any], names: Iterable[str]) -> list[int]:
    """The units of these currencies in a charge, and after them how often each is infinite. What a
    charge does not name has no bound in it; but a charge that names nothing is nothing.
    """
    infinite = charge.get("infinite", {})
    unknown = int(bool(charge.keys() - {"infinite"}))
    stated = [charge.get(name, "0") for name in names]
    stated += [infinite.get(name, 0) if name in charge else unknown for name in names]
    need(all(str(n) == str(abs(int(n))) for n in stated), f"not all are amounts: {stated!r:.99}")
    return list(map(int, stated))


def check_total(charges: list[dict[str, Any]], total: dict[str, Any]) -> None:
    """The total is the sum of the charges in their currencies; past 2^62 units it is infinite."""
    for name in set[str]().union(*charges) - {"infinite"}:
        units, infinite = map(sum, zip(*(amounts(each, [name]) for each in charges), strict=True))
        due = [units, infinite] if units <= MOST_UNITS else [0, infinite + 1]
        need(amounts(total, [name]) == due, f"the total in {name} is not the sum of the charges")


def plus(left: Iterable[int], right: Iterable[int], sign: int = 1) -> list[int]:
    """Sums of what stands at the same place; differences if ``sign`` is -1."""
    return [a + sign * b for a, b in zip(left, right, strict=True)]


class Sums:
    """What is booked per cell: finite sums in each currency, then numbers of infinite charges.
    ``everyone`` counts in every cell, beside what ``cells`` has of it (None: a charge to all).
    """

    def __init__(self, currencies: Iterable[str]) -> None:
        self.axis = list(currencies)
        self.everyone = [0, 0] * len(self.axis)
        self.cells = dict[Cell, list[int]]()

    def add(self, cells: Cells | None, units: list[int], sign: int = 1) -> None:
        """Adds to each of the cells."""
        if cells is None:
            self.everyone = plus(self.everyone, units, sign)
        else:
            for cell in cells:
                before = self.cells.get(cell)
                self.cells[cell] = plus(before or [0] * len(units), units, sign)

    def at(self, cell: Cell | None) -> list[int]:
        """The sums of a cell; if None, what everyone has."""
        own = self.cells.get(cell) if cell is not None else None
        return plus(self.everyone, own) if own else self.everyone

    def of(self, cells: Cells | None) -> Iterator[list[int]]:
        """The different sums that the cells have, or more: those of untouched ones always."""
        yield self.everyone
        for cell in self.cells if cells is None else self.cells.keys() & cells:
            yield self.at(cell)

    def most(self) -> list[int]:
        """The largest sum of any cell, each for itself."""
        return list(map(max, zip(*self.of(None), strict=True)))


class Account(Sums):
    """Sums that never pass 2^62: ``bound`` is all that was booked and not given back, whatever the
    cells, and ``held`` the part of it that open grants may give back. In a ``window`` what is spent
    stands in ``passing`` with the stamp at which it stops counting.
    """

    def __init__(self, currencies: Iterable[str], window: str | None = None) -> None:
        super().__init__(currencies)
        self.bound, self.held = [0] * len(self.axis), [0] * len(self.axis)
        self.window = window
        self.passing = deque[tuple[int, Cells | None, list[int]]]()

    def copy(self) -> Account:
        """Another account with the same sums."""
        twin = Account(self.axis, self.window)
        twin.everyone, twin.cells = self.everyone, dict(self.cells)
        twin.bound, twin.held, twin.passing = self.bound, self.held, self.passing.copy()
        return twin

    def advance(self, now: int) -> None:
        """Takes off what the window has passed."""
        while self.passing and self.passing[0][0] <= now:
            _, cells, units = self.passing.popleft()
            self.add(cells, units, -1)
            self.bound = plus(self.bound, [max(0, u) for u in units[: len(self.bound)]], -1)

    def spend(self, cells: Cells | None, units: list[int], now: int) -> None:
        """Notes what counts as spent from ``now`` on, for the window."""
        if self.window and any(units):
            self.passing.append((ends(self.window, now), cells, units))

    def book(
        self, cells: Cells | None, charge: dict[str, Any], now: int, *, reserve: bool = False
    ) -> list[int]:
        """Adds a charge; what could take a sum past 2^62 is infinite. Says what was added."""
        self.advance(now)
        units, n = amounts(charge, self.axis), len(self.axis)
        for i, bound in enumerate(self.bound):
            if bound + units[i] > MOST_UNITS:
                units[i], units[n + i] = 0, units[n + i] + 1
        self.bound = plus(self.bound, units[:n])
        self.add(cells, units)
        if reserve:
            self.held = plus(self.held, units[:n])
        else:
            self.spend(cells, units, now)
        return units

    def settle(
        self, cells: Cells | None, booked: list[int], charge: dict[str, Any], now: int
    ) -> None:
        """A reservation of ``booked`` becomes a spending of ``charge``; a finite sum in place of an
        infinite charge must fit like any other.
        """
        self.advance(now)
        final, n = amounts(charge, self.axis), len(self.axis)
        self.held = plus(self.held, booked[:n], -1)
        for i, bound in enumerate(self.bound):
            if final[i] > booked[i] and bound + final[i] - booked[i] > MOST_UNITS:
                final[i], final[n + i] = booked[i], booked[n + i]
        more = plus(final, booked, -1)
        self.bound = plus(self.bound, more[:n])
        self.add(cells, more)
        self.spend(cells, final, now)

    def lift(self, charge: dict[str, Any], now: int) -> None:
        """No cell has less than ``charge``, nor any that comes later."""
        self.advance(now)
        least, n, before = amounts(charge, self.axis), len(self.axis), self.everyone
        for i in range(n):
            if least[i] > MOST_UNITS:
                least[i], least[n + i] = 0, least[n + i] + 1
        self.everyone = list(map(max, before, least))
        more = defaultdict[tuple[int, ...], list[Cell]](list)
        for cell, own in self.cells.items():
            self.cells[cell] = plus(map(max, plus(before, own), least), self.everyone, -1)
            more[tuple(plus(self.cells[cell], own, -1))].append(cell)
        if self.window:
            groups: Groups = [(None, plus(self.everyone, before, -1))]
            groups += [(frozenset(cells), list(units)) for units, cells in more.items()]
            self.keep(groups, now)
        else:
            self.bound = list(map(max, self.bound, least))

    def keep(self, groups: Iterable[tuple[Cells | None, list[int]]], now: int) -> None:
        """What cells got otherwise than by a booking counts in a window as spent now. Less than
        nothing is what others got for everyone, and ends as that does.
        """
        for cells, units in groups:
            if any(units):
                self.bound = plus(self.bound, [max(0, u) for u in units[: len(self.bound)]])
                self.spend(cells, units, now)

    def inherit(self, axis: int, new: range) -> None:
        """The cells with the ``new`` positions get the largest sums along that dimension."""
        most = dict[Cell, list[int]]()
        for cell, own in self.cells.items():
            beside = cell[:axis] + cell[axis + 1 :]
            most[beside] = list(map(max, most.get(beside, own), own))
        for beside, units in most.items():
            for at in new:
                self.cells[(*beside[:axis], at, *beside[axis:])] = units
        self.bound = plus(self.bound, self.held)

    def bring(self, other: Account) -> None:
        """Adds the sums of epsilons and deltas of another account; past 2^62 they are infinite."""
        n, m = len(self.axis), len(other.axis)
        bound = plus(self.bound[:2], other.bound[:2])
        over = [each > MOST_UNITS for each in bound]
        self.bound[:2] = [b if o else t for t, b, o in zip(bound, self.bound, over, strict=False)]
        for cells, units in [(None, other.everyone), *other.cells.items()]:
            mine = [0, 0] * n
            for i in range(2):
                mine[i] = 0 if over[i] else units[i]
                mine[n + i] = units[m + i] + (over[i] and cells is None)
            self.add(None if cells is None else frozenset([cells]), mine)

    def restate(self, currency: str, factor: Fraction | None) -> None:
        """The sums in a currency become ``factor`` units for each unit of epsilon, rounded up;
        without a factor infinite, wherever there is any.
        """
        i, n = self.axis.index(currency), len(self.axis)
        bound = 0 if factor is None else -(-self.bound[0] * factor // 1) + 2
        over = bound > MOST_UNITS
        self.bound[i] = 0 if over else bound
        for own in [self.everyone, *self.cells.values()]:
            own[i] = 0 if factor is None or over else -(-own[0] * factor // 1)
            own[n + i] = own[n] + (factor is None and own[0] > 0)
        self.everyone[n + i] += over


# -- limits ----------------------------------------------------------------------------------


class Line(NamedTuple):
    """(a S + b) / d units of epsilon at a sum of S units in a currency."""

    a: int
    b: int
    d: int

    @classmethod
    def drawn(cls, slope: Fraction, intercept: Decimal) -> Line:
        """A line of so much epsilon for each 1 of the currency, and so much at none of it."""
        rise, start = slope / 10**6, Fraction(intercept) * 10**9  # 10^9 and 10^15 units make one
        d = rise.denominator * start.denominator
        return cls(int(rise * d), int(start * d), d)

    def spent(self, units: int) -> int:
        """Units of epsilon, rounded up."""
        return max(0, -(-(self.a * units + self.b) // self.d))

    def most(self, epsilon: int) -> int:
        """The largest sum at which no more than so many units of epsilon are spent."""
        return (epsilon * self.d - self.b) // self.a


def slope_of(currency: str, order: Fraction) -> Fraction:
    """How much epsilon a line at ``order`` rises for each 1 of its currency."""
    need(order > 1, "no order")
    slopes = {"rho": order, "epsilon_squared": order / 2, "mu_squared": order / 2}
    return slopes.get(currency, Fraction(1))


def endless(units: int | None) -> int:
    """Units to compare: what is infinite is more than any."""
    return 2 * MOST_UNITS if units is None else units


class Limit:
    """What a rule allows in one epoch, as its policy and the adopting event say."""

    def __init__(self, rule: dict[str, Any], told: dict[str, Any], before: Limit | None) -> None:
        self.rule, self.number, self.keeps = rule, told["number"], told["keeps"]
        limit = rule["limit"]
        self.epsilon, delta = number(limit["epsilon"]), number(limit.get("delta", "0"))
        share = delta if rule.get("gate") == "basic" else delta / 10
        self.own = number(limit["own_delta"]) if "own_delta" in limit else share
        left = delta - self.own
        self.gate = rule.get("gate", "renyi") if left > 0 else "basic"
        self.kind, self.left = (self.gate, left > 0), left
        self.chosen = tuple(map(number, told.get("chosen", []))) or (self.epsilon, left)
        self.orders = {name: number(order) for name, order in told.get("orders", {}).items()}
        self.orders |= {n: number(n[4:]) for n in self.keeps if n.startswith("tau_")}
        self.second, self.first = None, -1
        if self.gate != "basic":
            names = {"advanced": "epsilon_squared", "zcdp": "rho", "gdp": "mu_squared"}
            taus = [n for n in told["capacity"] if n.startswith("tau_")]
            self.second = names[self.gate] if self.gate in names else taus[0]
            self.line = self.draw(self.second)
        if self.gate == "gdp":  # where the curve of Gaussian noise meets the limit chosen first
            first = int(told["capacity"]["mu_squared"])
            self.first = before.first if before and "chosen" in told else first
        due = {name: str(most) for name, most in zip(self.compared, self.capacity(), strict=True)}
        need(told["capacity"] == due, f"the capacity of {rule['id']} should be {due}")

    @property
    def compared(self) -> list[str]:
        """The currencies in which sums are compared."""
        return [*SURE, self.second] if self.second else list(SURE)

    def draw(self, second: str) -> Line:
        """The line of the gate, drawn at its order."""
        order = self.orders[second]
        used = self.left / 10 if self.gate == "gdp" else self.left
        a, delta = (EXACT.divide(Decimal(n.numerator), n.denominator) for n in (order, used))
        if self.gate == "advanced":
            at_none = EXACT.divide(-EXACT.ln(delta), a - 1)
        else:
            log = EXACT.ln(EXACT.multiply(a, delta))
            at_none = EXACT.ln(EXACT.divide(a - 1, a)) - EXACT.divide(log, a - 1)
        return Line.drawn(slope_of(second, order), at_none)

    def capacity(self, share: Fraction = Fraction(1)) -> list[int]:
        """The most units that a cell may hold, in the currencies that are compared."""
        epsilon = self.epsilon * share * 10**9 // 1
        found = [epsilon, self.own * share * 10**15 // 1]
        if self.second:
            found.append(self.line.most(epsilon))
        if self.gate == "gdp" and share == 1 and self.epsilon >= self.chosen[0]:
            found[2] = max(found[2], self.first if self.left >= self.chosen[1] else -1)
        return found

    def spent(self, used: Used) -> int | None:
        """Units of epsilon spent by a cell that holds this; None is infinite."""
        epsilon, second = used[0], used[2] if self.second else None
        if second is None:
            return epsilon
        along = self.line.spent(second)
        found = along if epsilon is None else min(along, epsilon)
        if self.gate == "gdp" and second <= self.first and self.left >= self.chosen[1]:
            return min(found, self.chosen[0] * 10**9 // 1)
        return found

    def used(self, sums: list[int]) -> Used:
        """Of a cell's sums those that are compared."""
        n, rows = len(self.keeps), map(self.keeps.index, self.compared)
        return [None if sums[n + row] else sums[row] for row in rows]

    def fits(self, used: Used, charge: Used, most: list[int]) -> bool:
        """Own delta fits, and epsilon fits or the gate's own currency does."""
        one, own, *second = [
            u is not None and c is not None and u + c <= m
            for u, c, m in zip(used, charge, most, strict=True)
        ]
        return own and (one or any(second))

    def wrong(
        self,
        account: Account,
        cells: Cells | None,
        total: dict[str, Any],
        share: Fraction,
        seen: dict[str, Any],
        fired: bool,
    ) -> str:
        """What an event says wrongly of a charge against ``share`` of this limit, if anything.
        It quotes the cell that has spent most, of those that the charge does not fit on, or of all.
        """
        most, charge = self.capacity(share), self.used(amounts(total, self.keeps))
        quoted = [None if text == "infinite" else int(text) for text in seen["used"]]
        cell = tuple(seen["cell"]) if "cell" in seen else None
        held = list(map(self.used, account.of(cells)))
        misfits = [used for used in held if not self.fits(used, charge, most)]
        spent = max(map(endless, map(self.spent, misfits if fired else held)), default=0)
        shown = list(map(str, most)) if fired and share == 1 else None
        checks = {
            "the cell is not selected": cell is None or cells is None or cell in cells,
            f"the cell had {self.used(account.at(cell))}": quoted == self.used(account.at(cell)),
            f"the charge does not fit on {len(misfits)} of {len(held)}": bool(misfits) == fired,
            "another cell decides": self.fits(quoted, charge, most) != fired,
            f"another cell has spent {spent}": spent <= endless(self.spent(quoted)),
            f"the capacity is {most}": seen.get("capacity") == shown,
        }
        return next((reason for reason, holds in checks.items() if not holds), "")

    def opened(self) -> Account:
        """An account of this epoch with nothing in it."""
        return Account(self.keeps, self.rule.get("window"))

    def key(self, dataset: str, client: str) -> Key:
        """The account that a charge counts in."""
        rule = self.rule
        place = "*" if rule.get("across") else dataset, client if rule.get("per") else ""
        return rule["id"], self.number, *place

    def counts(self, dataset: str) -> bool:
        """The rule is about this dataset."""
        return fnmatchcase(dataset, self.rule.get("datasets", "*"))


def start_of(old: Limit | None, rule: dict[str, Any], kind: tuple[str, bool]) -> str:
    """What a rule of a kind begins with when it is adopted after ``old``."""
    span, before = rule.get("window"), old.rule if old else {}
    scope = [before.get(n) == rule.get(n) for n in ("datasets", "across", "per", "window")]
    same = old is not None and all(scope)
    limits = [{n: number(v) for n, v in r.get("limit", {}).items()} for r in (before, rule)]
    reset = rule.get("carry") == "none"
    alike = limits[0] == limits[1] and before.get("gate") == rule.get("gate")
    if same and alike and not (reset and before.get("carry") != "none"):
        return "kept"
    if reset:
        return "empty"
    if same and old is not None and old.kind == kind:
        return "carried"
    return "empty" if span else "converted" if same else "brought"


# -- the audit -------------------------------------------------------------------------------


class Grant(NamedTuple):
    """An open grant: whose, on which data and people, what it reserved, and where that counts."""

    by: str
    dataset: str
    subjects: Any
    cells: Cells | None
    total: dict[str, Any]
    expires: int
    booked: dict[Key, list[int]]


class Audit:
    """What was read of a bundle so far, what it adds up to, and all that is wrong with it."""

    def __init__(self) -> None:
        self.findings, self.manifest, self.size = list[dict[str, Any]](), dict[str, Any](), 0
        self.keys, self.log, self.needed = list[str](), list[str](), list[str]()
        self.checkpoints, self.last, self.name, self.time = deque[bytes](), (0, ""), "", ""
        self.subtrees, self.files = list[tuple[int, bytes]](), dict[str, str]()
        self.dimensions, self.compiled = dict[str, list[str]](), dict[str, Cells]()
        self.datasets, self.rules, self.limits = set[str](), list[Any](), dict[str, Limit]()
        self.adopted: int | None = None
        self.numbers, self.now = Counter[str](), 0
        self.accounts, self.open = dict[Key, Account](), dict[str, Grant]()
        self.totals = list[dict[str, Any]]()

    def attempt(self, where: str | int, step: Callable[..., None], *given: Any) -> None:
        """Takes a step; if it fails, that is a finding, and the rest goes on."""
        try:
            step(*given)
        except Exception as error:  # noqa: BLE001 nothing that is read may end in a traceback
            reason = str(error) if type(error) is ValueError else repr(error)
            self.findings[MOST_FINDINGS - 1 :] = [{"where": where, "reason": reason[:200]}]

    # -- the archive

    def read(self, file: BinaryIO, pin: str | None) -> None:
        """Takes the members of the archive in turn, but for hash tiles, policies and texts."""
        with tarfile.open(fileobj=file, mode="r|") as archive:
            while member := archive.next():
                name, reader = member.name, archive.extractfile(member)
                content = reader.read(MOST_BYTES) if reader else b""
                if name == "manifest.json":
                    self.manifest = dict(json.loads(content))
                    whole = {"count": self.manifest["tree"]["size"], "first": 0}
                    need(self.manifest["entries"] == whole, "a part: only accountant verify can")
                elif name.startswith("checkpoints/"):
                    self.attempt(name, self.pack, content, self.checkpoints.append)
                elif name.startswith("tile/entries/"):
                    self.attempt(name, self.pack, content, self.entry)
                elif name in ("keys", "checkpoint", "totals.json"):
                    self.files[name] = content.decode()
        self.attempt("checkpoint", self.finish, pin)
        self.attempt("totals.json", self.add_up)

    def pack(self, content: bytes, take: Callable[[bytes], None]) -> None:
        """Takes what is packed as an entry bundle (C2SP tlog-tiles): each after its length."""
        while content:
            end = 2 + int.from_bytes(content[:2], "big")
            need(end <= len(content), "ends too early")
            take(content[2:end])
            content = content[end:]

    def entry(self, entry: bytes) -> None:
        """Takes the next entry, and each checkpoint that ends with it."""
        self.attempt(self.size, self.event, entry)
        grow(self.subtrees, entry)
        self.size += 1
        while self.checkpoints and self.checkpoints[0].split(b"\n")[1:2] == [b"%d" % self.size]:
            self.attempt(f"checkpoint at {self.size}", self.checkpoint, self.checkpoints.popleft())

    def checkpoint(self, note: bytes) -> None:
        """It has the root so far, and the signatures of the key in force and of what led to it."""
        text = f"{self.name}\n{self.size}\n{root_of(self.subtrees)}\n\n"
        needed, self.needed, self.last = self.needed, self.needed[-1:], (self.size, note.decode())
        need(self.last[1].startswith(text), "not the root of the tree, or of another log")
        need(needed and all(signed(self.last[1], key) for key in needed), f"not by all of {needed}")

    def event(self, entry: bytes) -> None:
        """Takes the next event; a key that it adopts has to sign, too, from now on."""
        event = json.loads(entry)
        kind, command = event["type"], event.get("command", {})
        if kind == "signing_key.adopted.v1":
            if self.name != (name := command["key"].split("+")[0]):
                self.name, self.log, self.needed = name, [], []  # another name is another log
            for keys in (self.keys, self.log, self.needed):
                keys.append(command["key"])
        self.now = max(self.now, stamp(event["time"]))
        self.attempt(self.size, self.fold, event, kind, command)
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        need(text.encode() == entry, "not canonical JSON (RFC 8785)")
        place = event["ledger"], repr(event["sequence"])
        need(place == (self.manifest["ledger"], str(self.size)), "not the next of this ledger")
        before, self.time = self.time, event["time"]
        need(self.time >= before and len(self.time) == 27, "earlier than the event before it")

    def finish(self, pin: str | None) -> None:
        """The last checkpoint is of all that was read, and so are manifest and keys."""
        said = {"origin": self.name, "tree": {"root": root_of(self.subtrees), "size": self.size}}
        need(self.manifest | said == self.manifest, "the manifest is not of these entries")
        last = () if self.checkpoints else (self.size, self.files["checkpoint"])
        need(self.last == last, "checkpoints shrink, or the last one is not of all entries")
        need(self.files["keys"].split("\n") == [*self.keys, ""], "keys that no event adopts")
        need(pin is None or pin in self.log, "the key that was given is not one of this log")

    def add_up(self) -> None:
        """What the most charged cell of each account has, which the bundle says too."""
        for key in sorted(self.accounts):
            account, limit = self.accounts[key], self.limits.get(key[0])
            if key[0] and (limit is None or limit.number != key[1]):
                continue
            account.advance(self.now)
            most, n = account.most(), len(account.axis)
            used: dict[str, Any] = dict(zip(account.axis, map(str, most), strict=False))
            infinite = {c: count for c, count in zip(account.axis, most[n:], strict=True) if count}
            entry = dict(zip(("rule", "epoch", "dataset", "client"), key, strict=True))
            entry |= {"used": used | ({"infinite": infinite} if infinite else {})}
            if limit is not None:
                spent = max(map(endless, map(limit.spent, map(limit.used, account.of(None)))))
                entry["spent"] = "infinite" if spent > MOST_UNITS else str(spent)
            self.totals += [entry] if any(most) else []
        text = json.dumps({"accounts": self.totals}, sort_keys=True, separators=(",", ":"))
        need(self.files.get("totals.json", text) == text, "the events add up to other totals")

    # -- the events

    def fold(self, event: dict[str, Any], kind: str, command: dict[str, Any]) -> None:
        """What an event changes, as the table in docs/evidence.md says."""
        if "charges" in event:
            check_total(event["charges"], event["total"])
        if kind in JUDGED:
            self.attempt(self.size, self.judge, event, kind, command)
        if kind in HANDLERS:
            HANDLERS[kind](self, event, command)

    def register(self, _: dict[str, Any], command: dict[str, Any]) -> None:
        """A population: its cells are the product of its dimensions."""
        self.dimensions = dict(sorted(command.get("dimensions", {}).items()))
        need(prod(map(len, self.dimensions.values())) <= MOST_CELLS, "too many cells")

    def extend(self, event: dict[str, Any], command: dict[str, Any]) -> None:
        """More values of dimensions."""
        for name, values in sorted(event["added"].items()):
            self.append(name, values, inherit=command.get("attested_new") is not True)

    def add_dataset(self, _: dict[str, Any], command: dict[str, Any]) -> None:
        """Another dataset, or a new owner."""
        self.datasets.add(command["id"])

    def reserve(self, event: dict[str, Any], command: dict[str, Any]) -> None:
        """Opens a grant, which is called by its sequence."""
        dataset, by, total = command["dataset"], event["by"], event["total"]
        subjects = command.get("subjects")
        cells = self.select(subjects)
        booked = {
            key: self.account(key).book(cells, total, self.now, reserve=True)
            for key in self.route(dataset, by)
        }
        expires = self.now + command.get("ttl_seconds", 3_600) * 10**6
        self.open[f"g{self.size}"] = Grant(by, dataset, subjects, cells, total, expires, booked)

    def record(self, event: dict[str, Any], command: dict[str, Any]) -> None:
        """Books what nobody had reserved."""
        everyone = event.get("charged_to") == "everyone" or command.get("everyone") is True
        cells = None if everyone else self.select(command.get("subjects"))
        revalued = "more" in event
        by, charge = (command["by"], event["more"]) if revalued else (event["by"], event["total"])
        for key in self.route(command["dataset"], by):
            self.account(key).book(cells, charge, self.now)

    def end(self, event: dict[str, Any], command: dict[str, Any]) -> None:
        """A grant counts what it is charged now, which is no more than it reserved."""
        grant, charge = self.open.pop(command["grant"]), event.get("charge", {})
        for key, units in grant.booked.items():
            self.accounts[key].settle(grant.cells, units, charge, self.now)
        late, expired = self.now >= grant.expires, event["type"] == "grant.expired.v1"
        need(late == expired, "expired too early, or settled too late")
        for name in grant.total.keys() - {"infinite"}:
            now, reserved = (amounts(one, [name])[::-1] for one in (charge, grant.total))
            need(now == reserved if expired else now <= reserved, f"not the {name} it reserved")

    def carry_over(self, _: dict[str, Any], command: dict[str, Any]) -> None:
        """What had been used before a recovery is used; what grants held there is used up."""
        for each in command["accounts"]:
            key = each["rule"], each["epoch"], each["dataset"], each["client"]
            limit = self.limits.get(key[0])
            if key[0] and (limit is None or limit.number != key[1]):
                continue
            account = self.account(key)
            for grant in self.open.values():
                if units := grant.booked.pop(key, None):
                    account.held = plus(account.held, units[: len(account.held)], -1)
                    account.spend(grant.cells, units, self.now)
            account.lift(each["used"], self.now)

    def recover(self, *_: dict[str, Any]) -> None:
        """Every open grant is charged."""
        for grant in self.open.values():
            for key, units in grant.booked.items():
                self.accounts[key].settle(grant.cells, units, grant.total, self.now)
        self.open.clear()

    def account(self, key: Key) -> Account:
        """An account, opened if need be: with what its rule's epoch keeps, or as a lifetime."""
        if key not in self.accounts:
            limit = self.limits.get(key[0])
            now = limit is not None and limit.number == key[1]
            self.accounts[key] = limit.opened() if limit and now else Account(SURE)
        return self.accounts[key]

    def route(self, dataset: str, client: str) -> list[Key]:
        """Where a charge counts: limits in force, and lifetimes of the dataset and of all."""
        limits = [limit for limit in self.limits.values() if limit.counts(dataset)]
        keys = [limit.key(dataset, client) for limit in limits]
        return [*keys, ("", 0, dataset, ""), ("", 0, "*", "")]

    # -- people

    def select(self, subjects: Any) -> Cells | None:
        """The cells of a subject group; None is everyone."""
        terms = subjects if type(subjects) is list else [subjects or {}]
        if {} in terms:
            return None
        text = json.dumps(terms)
        if text not in self.compiled:
            self.compiled[text] = frozenset[Cell]().union(*map(self.cells_of, terms))
        return self.compiled[text]

    def cells_of(self, term: dict[str, Any]) -> Iterator[Cell]:
        """The cells that have one of the values of each dimension that a term names."""
        sides = {name: list(range(len(values))) for name, values in self.dimensions.items()}
        for name, asked in term.items():
            values, place = sides[name], self.dimensions[name].index  # which fails for others
            if type(asked) is not dict:
                sides[name] = list(map(place, asked))
            elif "from" in asked:
                sides[name] = values[place(asked["from"]) : place(asked["to"]) + 1]
            else:
                sides[name] = [values[at] for at in positions(**asked)]
        return product(*sides.values())

    def append(self, name: str, values: list[str], *, inherit: bool) -> None:
        """New cells inherit the most beside them, or begin with what everyone was charged. Open
        grants that do not name the dimension cover them.
        """
        before, axis = self.dimensions[name], list(self.dimensions).index(name)
        after = self.dimensions | {name: before + values}
        need(prod(map(len, after.values())) <= MOST_CELLS, "too many cells")
        new = range(len(before), len(before) + len(values))
        for account in self.accounts.values() if inherit else ():
            account.advance(self.now)
            account.inherit(axis, new)
        self.dimensions = after
        self.compiled.clear()
        for grant_id, grant in self.open.items():
            self.open[grant_id] = self.widened(grant, name, values, inherit=inherit)
        for key, account in self.accounts.items() if inherit else ():
            if account.window:
                account.keep(self.inherited(key, account, axis, new), self.now)

    def widened(self, grant: Grant, name: str, values: list[str], *, inherit: bool) -> Grant:
        """A grant that covers the new cells of a dimension that its group does not name."""
        terms = grant.subjects if type(grant.subjects) is list else [grant.subjects]
        if grant.cells is None:
            return grant
        unnamed = [term | {name: values} for term in terms if name not in term]
        new = frozenset[Cell]().union(*map(self.cells_of, unnamed))
        for key in self.route(grant.dataset, grant.by) if new and not inherit else ():
            if key not in grant.booked:
                self.account(key).book(new, grant.total, self.now)
        for key, units in grant.booked.items() if not inherit else ():
            self.accounts[key].add(new, units)
        return grant._replace(cells=grant.cells | new)

    def inherited(
        self, key: Key, account: Account, axis: int, new: range
    ) -> Iterator[tuple[Cells, list[int]]]:
        """What new cells inherited, but for what open grants hold there, by cells with as much."""
        held = Sums(account.axis)
        for grant in self.open.values():
            if key in grant.booked:
                held.add(grant.cells, grant.booked[key])
        groups = defaultdict[tuple[int, ...], list[Cell]](list)
        for cell in [cell for cell in account.cells if cell[axis] in new]:
            mine = held.cells.get(cell, [0] * len(held.everyone))
            account.cells[cell] = list(map(max, account.cells[cell], mine))
            groups[tuple(plus(account.cells[cell], mine, -1))].append(cell)
        for units, cells in groups.items():
            yield frozenset(cells), list(units)

    # -- policies

    def adopt(self, event: dict[str, Any], command: dict[str, Any]) -> None:
        """Adopts a policy; an epoch begins with what its rule, or the data, have used."""
        limits, rules = dict[str, Limit](), command["policy"]["rules"]
        for rule in [rule for rule in rules if "limit" in rule]:
            name = rule["id"]
            told, old = event["epochs"][name], self.limits.get(name)
            new, start = Limit(rule, told, old), told["start"]
            need(start == start_of(old, rule, new.kind), f"{name} does not begin so: {start!r:.20}")
            due = old.number if old and start == "kept" else self.numbers[name] + 1
            need(new.number == due, f"the epoch of {name} is not {due}")
            self.numbers[name] = due
            mine = [key for key in self.accounts if old and key[:2] == (name, old.number)]
            lives = [("", 0, d, "") for d in sorted(self.datasets) if new.counts(d)]
            if start == "carried":
                self.carry(mine, new.number)
            elif start == "converted":
                self.bring(new, mine)
            elif start == "brought" and "per" not in rule:
                self.bring(new, [key for key in lives if key in self.accounts])
            limits[name] = new
        self.rules, self.limits, self.adopted = rules, limits, self.size

    def carry(self, keys: list[Key], epoch: int) -> None:
        """Goes on from accounts as they are, with what open grants hold in them."""
        for key in keys:
            after = key[0], epoch, *key[2:]
            self.accounts[after] = self.accounts[key].copy()
            for grant in self.open.values():
                if key in grant.booked:
                    grant.booked[after] = grant.booked[key]

    def bring(self, limit: Limit, keys: list[Key]) -> None:
        """Begins with what was used in accounts, as a sure sum of epsilons."""
        brought = dict[Key, Account]()
        for key in keys:
            mine = brought.setdefault(limit.key(*key[2:]), Account(limit.keeps))
            mine.bring(self.accounts[key])
        for account, currency in product(brought.values(), limit.keeps[2:]):
            sure = currency != "mu_squared"  # which nothing stands for
            factor = 10**6 / slope_of(currency, limit.orders[currency]) if sure else None
            account.restate(currency, factor)
        self.accounts |= brought

    # -- decisions

    def judge(self, event: dict[str, Any], kind: str, command: dict[str, Any]) -> None:
        """What the event says of each rule that compares numbers is so, and the outcome follows."""
        fired, dataset, total = dict(event.get("fired", [])), command["dataset"], event["total"]
        need(event.get("policy") == self.adopted, "another policy is in force")
        everyone = event.get("charged_to") == "everyone" or "built-in:private-membership" in fired
        cells = None if everyone else self.select(command.get("subjects"))
        for rule in self.rules:
            name, limit = rule["id"], self.limits.get(rule.get("of", rule["id"]))
            if limit is not None and limit.counts(dataset):
                share = number(rule["at"][:-1]) / 100 if "of" in rule else Fraction(1)
                account = self.accounts.get(limit.key(dataset, event["by"])) or limit.opened()
                account.advance(self.now)
                seen = event["rules"][name]
                wrong = limit.wrong(account, cells, total, share, seen, name in fired)
                need(not wrong, f"rule {name}: {wrong}")
            elif "at_most" in rule and fnmatchcase(dataset, rule.get("datasets", "*")):
                costs = {n: (amounts(total, [n]), number(m)) for n, m in rule["at_most"].items()}
                over = [i or u > m * PER_ONE[n] for n, ((u, i), m) in costs.items()]
                need(any(over) == (name in fired), f"rule {name}: {costs}")
        self.outcome(event, kind, dataset, fired)

    def outcome(
        self, event: dict[str, Any], kind: str, dataset: str, fired: dict[str, str]
    ) -> None:
        """A grant is refused if a rule fired that blocks; what ran is then called an overrun."""
        actions = {rule["id"]: rule.get("action", "block") for rule in self.rules}
        actions["built-in:unverifiable-claim"] = "flag"
        blocked = [name for name in fired if actions.get(name, "block") == "block"]
        if kind == "invocation.recorded.v1":
            over = any(name in self.limits for name in blocked)
            need((event.get("overrun") is True) == over, f"overrun, by {blocked}")
        else:
            need((kind == "grant.refused.v1") == bool(blocked), f"the outcome, by {blocked}")
        guards = [
            limit
            for limit in self.limits.values()
            if limit.counts(dataset) and actions[limit.rule["id"]] == "block"
        ]
        guarded = any("per" not in limit.rule for limit in guards)
        without = self.adopted is not None and not guarded
        need(("built-in:no-policy" in fired) == (self.adopted is None), "whether there is a policy")
        need(("built-in:no-limit" in fired) == without, "whether there is a limit")


HANDLERS: dict[str, Callable[[Audit, dict[str, Any], dict[str, Any]], None]] = {
    "population.registered.v1": Audit.register,
    "population.extended.v1": Audit.extend,
    "dataset.registered.v1": Audit.add_dataset,
    "policy.adopted.v1": Audit.adopt,
    "grant.reserved.v1": Audit.reserve,
    "invocation.recorded.v1": Audit.record,
    "charge.revalued.v1": Audit.record,
    **dict.fromkeys(ENDS, Audit.end),
    "ledger.carried_over.v1": Audit.carry_over,
    "ledger.recovered.v1": Audit.recover,
}


def verify(file: BinaryIO, pin: str | None = None) -> dict[str, Any]:
    """Checks a whole bundle, which is read once."""
    audit = Audit()
    audit.attempt("archive", audit.read, file, pin)
    found = {"ledger": audit.manifest.get("ledger"), "root": root_of(audit.subtrees)}
    return found | {"events": audit.size, "findings": audit.findings, "totals": audit.totals}


def told_of(entry: dict[str, Any]) -> str:
    """One account in a line."""
    data = "all data" if entry["dataset"] == "*" else entry["dataset"]
    who = f", client {entry['client']}" if entry["client"] else ""
    rule = f"rule {entry['rule']}, epoch {entry['epoch']}" if entry["rule"] else "lifetime"
    spent = entry.get("spent", "")
    shown = f"{Decimal(spent).scaleb(-9):f}" if spent.isdigit() else spent
    spent = f"epsilon {shown} spent; " if shown else ""
    return f"{rule}, {data}{who}: {spent}used {json.dumps(entry['used'], sort_keys=True)}"


def main() -> int:
    """The command: 0 if all is as it should be, 1 if anything is not, 2 on misuse."""
    asks = argparse.ArgumentParser(description="Checks an evidence bundle of accountant.")
    asks.add_argument("bundle", type=argparse.FileType("rb"))
    asks.add_argument("--key", help="a verifier key that you know: else anybody may have signed")
    asks.add_argument("--json", action="store_true", help="print what was found as JSON")
    report = verify((asked := asks.parse_args()).bundle, asked.key)
    told = [f"{each['where']}: {each['reason']}" for each in report["findings"]] or ["no findings"]
    told += [f"{name}: {report[name]}" for name in ("ledger", "events", "root")]
    told += map(told_of, report["totals"])
    text = json.dumps(report, indent=1) if asked.json else "\n".join(ascii(x)[1:-1] for x in told)
    sys.stdout.write(f"{text}\n")
    return 1 if report["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
