"""Check an evidence bundle of accountant with nothing but the Python standard library.

Written from docs/evidence.md alone, which says what it checks and what it leaves to ``accountant
verify``. It shares no code with the service. Parts in order: bytes, tree and signatures; sums;
lines and limits; then the audit, which takes the events in turn.
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
from decimal import Context, Decimal, localcontext
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import sha256, sha512
from itertools import accumulate, product
from math import prod
from typing import Any, BinaryIO, NamedTuple
from unicodedata import normalize

MOST_FINDINGS, MOST_BYTES, MOST_CELLS, MOST_UNITS = 1000, 2**26, 10**6, 2**62
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
SURE = ("epsilon", "delta")  # the currencies that every account keeps, first
PER_ONE = {"epsilon": 10**9, "delta": 10**15}  # units; of all other currencies 10^15, too
SECOND = {"advanced": "epsilon_squared", "zcdp": "rho", "gdp": "mu_squared"}  # and tau_<order>
EXACT, FULL = Context(prec=60), "budget-exceeded"  # what a limit refuses for
TWO_PI_ROOT = Decimal("2.50662827463100050241576528481104525300698674060993831662992357634")
STEPS = [1 + Fraction(step, 8 << p) for p in range(16, 0, -1) for step in range(8, 16)]
RENYI = [*STEPS, *range(2, 65), *(step << p for p in range(3, 11) for step in range(9, 17))]
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
DAY, MONTHS = 86_400 * 10**6, {"month": 1, "monthly": 1, "quarterly": 3, "yearly": 12}
REGISTERED = "dataset.registered.v1", "dataset.registered.v2"  # of which the second charges
JUDGED = ("grant.reserved.v1", "grant.refused.v1", "invocation.recorded.v1")
BOOKS = ("grant.reserved.v1", "invocation.recorded.v1", "charge.revalued.v1")
ENDS = ("grant.committed.v1", "grant.released.v1", "grant.expired.v1", "sparse_vector.closed.v1")
WAITED = tuple(f"grant.{e}.v1" for e in ("admitted", "timed_out", "cancelled", "declined"))
APART = {"text.erased.v1", "report.filed.v1", "engine.adopted.v1", "signing_key.adopted.v1",
         "publication.stopped.v1", "publication.resumed.v1", "grant.noted.v1", "batch.opened.v1",
         "sparse_vector.answered.v1", "ledger.verified.v1"}  # fmt: skip  # These change no sum
BATCHED = ("batch.part.v1", "batch.refused.v1", "grant.waiting.v1")
SCOPE = ("labels", "owners", "datasets", "clients", "purposes")  # The first two may move
PLACE = ("across", "per", "window", "refresh", "part_of", "unit", "subjects")
PARTS = {"per", "clients", "purposes", "part_of"}  # A limit with one of these divides a budget
NUMBER = re.compile(r"\d{1,99}(\.\d{1,99})?([eE][+-]?\d{1,2})?(/[1-9]\d{0,98})?")

Cell = tuple[int, ...]  # positions of its values, dimensions in the order of their names
Cells = frozenset[Cell] | None  # None is everyone, LASTS everyone where it may still run
Groups = list[tuple[Cells, list[int]]]
Key = tuple[str, int, str, str, str, str]  # of an account; by the names of its places
KEY = ("rule", "epoch", "dataset", "client", "unit", "purpose")  # The last two may be left out
Used = list[int | None]  # sums in the currencies that are compared; None is infinite
Doc = dict[str, Any]
LASTS: Cells = frozenset()
FLAGS = ("limit-relaxed", "unverifiable-claim", "sensitivities-apart")  # They never block


def micros(stamp: str) -> int:
    """Return a stamp in microseconds since 1970."""
    return (datetime.fromisoformat(stamp) - EPOCH) // MICROSECOND


def need(holds: object, reason: str) -> None:
    """Fail for this reason unless something holds."""
    if not holds:
        raise ValueError(reason)


def grow(subtrees: list[tuple[int, bytes]], entry: bytes) -> None:
    """Add an entry to a tree (RFC 6962, section 2.1), kept as sizes and hashes of full subtrees."""
    size, node = 1, sha256(b"\0" + entry).digest()
    while subtrees and subtrees[-1][0] == size:
        size, node = 2 * size, sha256(b"\1" + subtrees.pop()[1] + node).digest()
    subtrees.append((size, node))


def root_of(subtrees: list[tuple[int, bytes]]) -> str:
    """Return the tree's root hash in base64: the full subtrees, joined from the right."""
    *others, root = [node for _, node in subtrees] or [sha256().digest()]
    while others:
        root = sha256(b"\1" + others.pop() + root).digest()
    return b64encode(root).decode()


def canonical(value: Any) -> bytes:
    """Return the canonical JSON (RFC 8785) of a value without floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def positions(bits: str = "", gaps: str = "") -> list[int]:
    """Read a set of positions: as bits, lowest first, or as gaps before each of them (LEB128)."""
    ones = f"{int.from_bytes(urlsafe_b64decode(bits + '=='), 'little'):b}"[::-1]
    parts = re.findall(rb"[\x80-\xff]*[\0-\x7f]", urlsafe_b64decode(gaps + "=="))
    steps = [1 + sum((byte & 127) << 7 * i for i, byte in enumerate(part)) for part in parts]
    return [at for at, bit in enumerate(ones) if bit == "1"] + [at - 1 for at in accumulate(steps)]


def joined(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sum of two points in extended coordinates (RFC 8032, section 5.1.4)."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * D * p[3] * q[3] % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def point(data: bytes) -> tuple[int, ...]:
    """Decode a point from its one exact spelling of 32 bytes (RFC 8032, section 5.1.3)."""
    sign, y = divmod(int.from_bytes(data, "little"), 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    need(len(data) == 32 and y < P and x * x % P == square and (x or not sign), "no Ed25519 key")
    x = x if x % 2 == sign else P - x
    return x, y, 1, x * y % P


def verifies(key: bytes, text: bytes, signature: bytes) -> bool:
    """Check a signature: S < L, and S B - k A encodes as R (RFC 8032, section 5.1.7)."""
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
    """Check that a note (C2SP signed-note) has signatures by a verifier key, all of them good."""
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
    """Read a decimal, or a fraction p/q, as events spell them."""
    need(type(text) is str and NUMBER.fullmatch(text), f"no number: {text!r:.99}")
    return Fraction(text)


def ends(window: str, at: int) -> int:
    """Return when spending at ``at`` leaves a window: ``30d``, ``12h``, or a calendar's period."""
    moment, months = EPOCH + at * MICROSECOND, MONTHS.get(window)
    if months is None and window[-1] in "hd":
        return at + int(window[:-1]) * {"h": 3_600, "d": 86_400}[window[-1]] * 10**6
    if months is None:  # 1970 began on a Thursday
        days, first = (1, 0) if window == "daily" else (7, 4)
        return ((at // DAY - first) // days * days + days + first) * DAY
    year, month = divmod(((moment.year * 12 + moment.month - 1) // months + 1) * months, 12)
    return (datetime(year, month + 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND


def amounts(charge: Doc, names: Iterable[str]) -> list[int]:
    """Return a charge's units in these currencies, then how often each is infinite."""
    infinite = charge.get("infinite", {})
    unknown = int(bool(charge.keys() - {"infinite"}))  # times that an unnamed currency is infinite
    stated = [charge.get(name, "0") for name in names]
    stated += [infinite.get(name, 0) if name in charge else unknown for name in names]
    need(all(str(n) == str(abs(int(n))) for n in stated), f"not all are amounts: {stated!r:.99}")
    return list(map(int, stated))


def charge_to(unit: str, event: Doc, name: str = "total") -> Doc:
    """Return what an event charges one of a unit: what it says, or else as the first unit."""
    return Doc(event.get("per", {}).get(unit, event.get(name, {})))


def check_total(charges: list[Doc], total: Doc) -> None:
    """Check that a total is the sum of its charges; a sum past 2^62 units is infinite."""
    for name in set[str]().union(*charges) - {"infinite"}:
        units, infinite = map(sum, zip(*(amounts(each, [name]) for each in charges), strict=True))
        due = [units, infinite] if units <= MOST_UNITS else [0, infinite + 1]
        need(amounts(total, [name]) == due, f"the total in {name} is not the sum of the charges")


def grouped(cells: dict[Cell, list[int]]) -> Groups:
    """Group cells by their units."""
    groups = defaultdict[tuple[int, ...], list[Cell]](list)
    for cell, units in cells.items():
        groups[tuple(units)].append(cell)
    return [(frozenset(members), list(units)) for units, members in groups.items()]


def plus(left: Iterable[int], right: Iterable[int], sign: int = 1) -> list[int]:
    """Add number by number; subtract if ``sign`` is -1."""
    return [a + sign * b for a, b in zip(left, right, strict=True)]


class Account:
    """Sums per cell: finite units in each currency, then counts of infinite charges. ``everyone``
    counts in every cell beside its own in ``cells``, what ``stays`` of it also in cells to come.
    No sum passes 2^62: ``bound`` is all that was booked and not given back, ``held`` what of it
    open grants may give back. ``passing`` has what a ``window`` counts, and until when.
    """

    def __init__(self, currencies: Iterable[str], window: str | None = None) -> None:
        self.keeps, self.window = list(currencies), window
        self.everyone, self.cells = [0, 0] * len(self.keeps), dict[Cell, list[int]]()
        self.bound, self.held = [0] * len(self.keeps), [0] * len(self.keeps)
        self.stays = [0, 0] * len(self.keeps)
        self.passing = deque[tuple[int, Cells, list[int]]]()

    def add(self, cells: Cells, units: list[int], sign: int = 1) -> None:
        """Add units to each of the cells."""
        if not cells:
            self.everyone = plus(self.everyone, units, sign)
        if cells == LASTS:
            self.stays = plus(self.stays, units, sign)
        for cell in (cells or ()) if any(units) else ():
            self.cells[cell] = plus(self.cells.get(cell) or [0] * len(units), units, sign)

    def at(self, cell: Cell | None) -> list[int]:
        """Return the sums of a cell; of None, those of everyone."""
        return plus(self.everyone, self.cells[cell]) if cell in self.cells else self.everyone

    def of(self, cells: Cells) -> list[list[int]]:
        """Return the sums of everyone, and of those of the cells that have more."""
        own = self.cells.keys() if cells is None else self.cells.keys() & cells
        return [self.everyone, *map(self.at, own)]

    def twin(self) -> Account:
        """Return another account with the same sums."""
        twin = Account(self.keeps, self.window)
        vars(twin).update(vars(self) | {"cells": dict(self.cells), "passing": self.passing.copy()})
        return twin

    def beside(self, most: list[int], drawn: Account) -> Account:
        """Return an account with what is left of ``most`` once ``drawn`` is taken from that."""
        twin, sums, k = self.twin(), dict[Cell | None, list[int]](), len(drawn.keeps)
        for cell in [None, *{*self.cells, *drawn.cells}]:
            both = zip(most, drawn.at(cell), drawn.at(cell)[k:], strict=False)
            left = [0 if infinite else max(0, units - u) for units, u, infinite in both]
            sums[cell] = plus(self.at(cell), left + [0, 0] * (len(self.keeps) - 1))
        twin.everyone = sums.pop(None)
        twin.cells = {c: plus(u, twin.everyone, -1) for c, u in sums.items() if c is not None}
        return twin

    def advance(self, now: int) -> None:
        """Take off spending that has left the window."""
        while self.passing and self.passing[0][0] <= now:
            _, cells, units = self.passing.popleft()
            self.add(cells, units, -1)
            self.bound = plus(self.bound, [max(0, u) for u in units[: len(self.bound)]], -1)

    def spend(self, cells: Cells, units: list[int], now: int) -> None:
        """Let the window count units as spent from ``now`` on."""
        if self.window and any(units):
            self.passing.append((ends(self.window, now), cells, units))

    def book(self, cells: Cells, charge: Doc, now: int, *, reserve: bool = False) -> list[int]:
        """Add a charge, infinite if it could take a sum past 2^62. Return the units added."""
        return self.take(cells, amounts(charge, self.keeps), now, reserve=reserve)

    def take(self, cells: Cells, units: list[int], now: int, *, reserve: bool) -> list[int]:
        """Add units of all currencies, as ``book`` does."""
        self.advance(now)
        units, n = self.bounded(units), len(self.keeps)
        self.bound = plus(self.bound, units[:n])
        self.add(LASTS if reserve and not cells else cells, units)
        if reserve:
            self.held = plus(self.held, units[:n])
        else:
            self.spend(cells, units, now)
        return units

    def bounded(self, units: list[int]) -> list[int]:
        """Return units to add, infinite in each currency in which a sum could pass 2^62."""
        past = [bound + more > MOST_UNITS for bound, more in zip(self.bound, units, strict=False)]
        finite = [0 if over else more for more, over in zip(units, past, strict=False)]
        return finite + plus(units[len(past) :], past)

    def settle(self, cells: Cells, booked: list[int], charge: Doc, now: int) -> None:
        """Replace a reservation of ``booked`` by a spending of ``charge``."""
        self.advance(now)
        final, n = amounts(charge, self.keeps), len(self.keeps)
        self.held = plus(self.held, booked[:n], -1)
        for i, bound in enumerate(self.bound):
            if final[i] > booked[i] and bound + final[i] - booked[i] > MOST_UNITS:
                final[i], final[n + i] = booked[i], booked[n + i]
        self.bound = plus(self.bound, plus(final, booked, -1)[:n])
        self.add(cells or LASTS, booked, -1)
        self.add(cells, final)
        self.spend(cells, final, now)

    def leave(self, there: Cells) -> None:
        """Leave to the cells there are what everyone was charged, but not what may still run."""
        self.add(there, plus(self.everyone, self.stays, -1))
        self.everyone = self.stays
        self.passing = deque((at, there if c is None else c, u) for at, c, u in [*self.passing])

    def lift(self, charge: Doc, now: int) -> None:
        """Raise every cell to ``charge`` at least. What everyone has then lasts."""
        self.advance(now)
        least, n, before = amounts(charge, self.keeps), len(self.keeps), self.everyone
        for i in range(n):
            if least[i] > MOST_UNITS:
                least[i], least[n + i] = 0, least[n + i] + 1
        self.everyone = list(map(max, before, least))
        more = dict[Cell, list[int]]()
        for cell, own in self.cells.items():
            self.cells[cell] = plus(map(max, plus(before, own), least), self.everyone, -1)
            more[cell] = plus(self.cells[cell], own, -1)
        self.bound = self.bound if self.window else list(map(max, self.bound, least))
        self.keep([(None, plus(self.everyone, before, -1)), *grouped(more)], now)
        self.passing = deque((at, LASTS if c is None else c, u) for at, c, u in [*self.passing])
        self.stays = self.everyone

    def keep(self, groups: Groups, now: int) -> None:
        """Let the window count as spent now the units that cells got, or lost if negative."""
        for cells, units in groups if self.window else ():
            self.bound = plus(self.bound, [max(0, u) for u in units[: len(self.bound)]])
            self.spend(cells, units, now)

    def inherit(self, axis: int, new: range, held: Account, now: int) -> None:
        """Give new cells the largest sums along that dimension: what no grant holds is spent."""
        most, spent = dict[Cell, list[int]](), dict[Cell, list[int]]()
        for cell, own in self.cells.items():
            beside = cell[:axis] + cell[axis + 1 :]
            most[beside] = list(map(max, most.get(beside, own), own))
        for (beside, units), at in product(most.items(), new):
            cell = (*beside[:axis], at, *beside[axis:])
            mine = held.cells.get(cell, [0] * len(units))
            self.cells[cell] = list(map(max, units, mine))
            spent[cell] = plus(self.cells[cell], mine, -1)
        self.bound = plus(self.bound, self.held)
        self.keep(grouped(spent), now)

    def bring(self, other: Account, rows: int = 2) -> None:
        """Add another account's sums in the first currencies; past 2^62 they are infinite."""
        n, m, over = len(self.keeps), len(other.keeps), plus(other.everyone, other.stays, -1)
        parts: dict[Cells, list[int]] = {None: over, LASTS: other.stays}
        parts |= {frozenset([cell]): own for cell, own in other.cells.items()}
        bound = plus(self.bound[:rows], other.bound[:rows])
        past = [each > MOST_UNITS for each in bound]
        kept = [b if o else t for t, b, o in zip(bound, self.bound, past, strict=False)]
        self.bound = kept + self.bound[rows:]  # copies share the list
        for cells, units in parts.items():
            mine = [0, 0] * n
            for i, lost in enumerate(past):
                mine[i] = 0 if lost else units[i]
                mine[n + i] = units[m + i] + (lost and cells == LASTS)
            self.add(cells, mine)

    def gain(self, other: Account, now: int, *, lasts: bool = False) -> None:
        """Add what an account that keeps the same holds; of what everyone has, all may last."""
        self.advance(now)
        other.advance(now)
        if not self.window:
            (other := other.twin()).stays = other.everyone if lasts else other.stays
            self.bring(other, len(self.keeps))
        for cells, more in [(LASTS, other.everyone), *grouped(other.cells)] if self.window else ():
            self.add(cells, units := self.bounded(more))
            self.keep([(cells, units)], now)  # a window counts it as spent now

    def restate(self, currency: str, factor: Fraction | None) -> None:
        """Set a currency to ``factor`` units for each of epsilon, rounded up; None is infinite."""
        i, n = self.keeps.index(currency), len(self.keeps)
        bound = 0 if factor is None else -(-self.bound[0] * factor // 1) + 2
        over = bound > MOST_UNITS
        self.bound[i] = 0 if over else bound
        for own in [self.everyone, self.stays, *self.cells.values()]:
            own[i] = 0 if factor is None or over else -(-own[0] * factor // 1)
            own[n + i] = own[n] + (factor is None and own[0] > 0)
        self.add(LASTS, [over * (at == n + i) for at in range(2 * n)])


def decimal(value: Fraction) -> Decimal:
    """Return a fraction as a decimal of the digits in force."""
    return Decimal(value.numerator) / value.denominator


def slope_of(currency: str, order: Fraction) -> Fraction:
    """Return how much epsilon a line at ``order`` rises for each 1 of its currency."""
    slopes = {"rho": order, "epsilon_squared": order / 2, "mu_squared": order / 2}
    return slopes.get(currency, Fraction(1))


def start_of_line(currency: str, order: Fraction, left: Fraction) -> Decimal:
    """Return c, the epsilon of a line where none of its currency is used; ``left`` is delta'."""
    a, delta = decimal(order), decimal(left / 10 if currency == "mu_squared" else left)
    if currency == "epsilon_squared":
        return -delta.ln() / (a - 1)
    return ((a - 1) / a).ln() - (a * delta).ln() / (a - 1)


@lru_cache
def check_order(currency: str, order: Fraction, epsilon: Fraction, left: Fraction) -> None:
    """Check that no Renyi order, or none nearby, leaves a limit more room, (epsilon - c) / a."""
    need(order > 1, "an order is more than 1")
    near = [max(Fraction(1, 10**9), (order - 1) * (1 + Fraction(n, 10**8))) for n in (-1, 1)]
    others = RENYI if currency.startswith("tau_") else [1 + each for each in near]
    orders = [order, *map(Fraction, others)]
    room = [(decimal(epsilon) - start_of_line(currency, a, left)) / decimal(a) for a in orders]
    need(room[0] == max(room), f"another order than {order} leaves more room in {currency:.20}")


def mills(x: Decimal) -> Decimal:
    """Return (1 - Phi(x)) / phi(x) of the normal distribution, x >= 0, to 50 digits."""
    if x < 4:  # by the series of Phi
        terms = accumulate(range(3, 300, 2), lambda term, n: term * x * x / n, initial=x)
        return TWO_PI_ROOT / 2 * (x * x / 2).exp() - sum(terms)
    found = x  # by its continued fraction
    for n in range(400, 0, -1):
        found = x + n / found
    return 1 / found


def gaussian_delta(units: int, epsilon: Fraction) -> Decimal:
    """Return the delta of Gaussian noise of so many units of mu^2 (Balle and Wang 2018, Thm 8)."""
    mu = (Decimal(units) / 10**15).sqrt()
    a = decimal(epsilon) / mu - mu / 2
    density = (-a * a / 2).exp() / TWO_PI_ROOT  # phi(a), which is e^epsilon phi(a + mu)
    above = density * mills(abs(a))
    return (above if a > 0 else 1 - above) - density * mills(a + mu)


def endless(units: int | None) -> int:
    """Return units to compare: an infinite sum is more than any."""
    return 2 * MOST_UNITS if units is None else units


class Limit:
    """The limit of a rule in one epoch; if it goes on from ``before``, by the same order."""

    def __init__(self, rule: Doc, told: Doc, before: Limit | None) -> None:
        self.rule, self.number, limit = rule, told["number"], rule["limit"]
        self.epsilon, delta = number(limit["epsilon"]), number(limit.get("delta", "0"))
        share = delta if rule.get("gate") == "basic" else delta / 10
        self.own = number(limit["own_delta"]) if "own_delta" in limit else share
        self.left = delta - self.own
        each = {"delta": "0", **limit}, *rule.get("relaxed", ())  # Usually, and in contexts
        pairs = [[(n, v) for n, v in one.items() if n != "why"] for one in each]
        self.states = [Doc((n, v if n == "when" else number(v)) for n, v in one) for one in pairs]
        self.gate = rule.get("gate", "renyi") if self.left > 0 else "basic"
        mine = self.epsilon, self.left
        self.chosen: tuple[Fraction, ...] = before.chosen if before else mine
        chosen = tuple(map(number, told.get("chosen", []))) or mine
        need(chosen == self.chosen, f"the limit chosen first is not {chosen}")
        self.orders = {name: number(order) for name, order in told.get("orders", {}).items()}
        taus = [f"tau_{order}" for order in told.get("renyi", [])]
        need(bool(taus) == (self.left > 0), "orders go with a delta'")
        self.keeps = [*SURE, *(["epsilon_squared", "rho", *taus, "mu_squared"] if taus else [])]
        need(not before or self.keeps == before.keeps, "another order than before")
        self.orders |= {name: number(name[4:]) for name in taus}
        self.first, self.lines = -1, list[tuple[int, int, int]]()  # the mu^2 that gdp allowed first
        own = [] if self.gate == "basic" else taus if self.gate == "renyi" else [SECOND[self.gate]]
        self.compared = [*SURE, *own]
        with localcontext(EXACT):
            self.draw(told, before, taus)
        due = str(self.capacity()[2]) if self.gate == "gdp" else None
        need(told.get("capacity") == due, f"the capacity of {rule['id']} should be {due}")

    def draw(self, told: Doc, before: Limit | None, taus: list[str]) -> None:
        """Draw the lines: (a S + b) / d units of epsilon at S units of a currency of the gate."""
        parts = {name: Fraction(1, len(taus)) for name in taus}  # of delta', that they share
        if not {"orders", "workload"} & self.rule.keys() and len(taus) == 2:
            parts = dict(zip(taus, (Fraction(7, 10), Fraction(3, 10)), strict=True))
        if before:
            self.first = before.first
            kept = [self.orders[name] == before.orders.get(name) for name in self.compared[2:]]
            need(all(kept), "another order than before")
        else:
            self.check_orders(taus)
        for name in self.compared[2:]:
            if self.gate == "gdp" and not before:  # where the Gaussian curve meets the limit
                self.first, most = int(told["capacity"]), decimal(self.left * 9 / 10)
                here = gaussian_delta(self.first, self.epsilon) if self.first else 0
                above = gaussian_delta(self.first + 1, self.epsilon)
                need(here <= most < above, f"mu^2 of {self.first} units has the delta {here:.9g}")
            rise = slope_of(name, self.orders[name]) / 10**6  # 10^9 units of epsilon make one
            left = self.left * parts.get(name, 1)
            start = Fraction(start_of_line(name, self.orders[name], left)) * 10**9
            d = rise.denominator * start.denominator
            self.lines.append((int(rise * d), int(start * d), d))

    def learn(self, orders: Doc) -> None:
        """Take the orders of other gates, which sums of epsilons are turned into currencies by."""
        self.orders |= {name: number(order) for name, order in orders.items()}
        for name in orders:
            check_order(name, self.orders[name], *self.chosen)

    def check_orders(self, taus: list[str]) -> None:
        """Check the orders of a limit that goes on from no other."""
        epsilon, left = self.chosen
        for name in self.orders.keys() - set(taus):
            check_order(name, self.orders[name], epsilon, left)
        orders = [self.orders[name] for name in taus]
        if "orders" in self.rule:
            need(orders == list(map(number, self.rule["orders"])), "the rule states other orders")
        elif "workload" in self.rule:
            need(len(orders) == 1, "a workload has one order")
        elif taus:
            first, lower = orders[0], round(orders[0] * Fraction(13, 20))
            check_order(taus[0], first, epsilon, left * Fraction(7, 10) if lower > 1 else left)
            need(orders[1:] == [lower] * (lower > 1), f"the second order should be {lower}")

    def capacity(self, share: Fraction = Fraction(1), more: Iterable[Doc] = ()) -> list[int]:
        """Return the most units of what is compared that a cell may hold, in contexts ``more``."""
        most = [max(x.get(n, 0) for x in (self.states[0], *more)) for n in SURE]
        epsilon, own = most[0] * share * 10**9 // 1, self.own + most[1] - self.states[0]["delta"]
        found = [epsilon, own * share * 10**15 // 1]
        found += [(epsilon * d - b) // a for a, b, d in self.lines]
        if self.gate == "gdp" and share == 1 and most[0] >= self.chosen[0]:
            found[2] = max(found[2], self.first if self.left >= self.chosen[1] else -1)
        return found

    def spent(self, used: Used) -> int | None:
        """Return the units of epsilon that a cell has spent which holds this; None is infinite."""
        epsilon, _, *along = used
        bounds = [] if epsilon is None else [epsilon]
        lines = zip(self.lines, along, strict=True)
        for (a, b, d), second in [(line, sums) for line, sums in lines if sums is not None]:
            bounds.append(max(0, -(-(a * second + b) // d)))
            if self.gate == "gdp" and second <= self.first and self.left >= self.chosen[1]:
                bounds.append(self.chosen[0] * 10**9 // 1)
        return min(bounds, default=None)

    def used(self, sums: list[int]) -> Used:
        """Return, of a cell's sums, those that are compared."""
        n, rows = len(self.keeps), map(self.keeps.index, self.compared)
        return [None if sums[n + row] else sums[row] for row in rows]

    def fits(self, used: Used, charge: Used, most: list[int]) -> bool:
        """Return whether own delta fits, and epsilon or the gate's own currency does."""
        each = zip(used, charge, most, strict=True)
        fit = [u is not None and c is not None and u + c <= m for u, c, m in each]
        return fit[1] and (fit[0] or any(fit[2:]))

    def more(self, client: str, why: Any) -> list[Doc]:
        """Return the contexts of a request, in which it may use more of the limit."""
        mine = [x for x in self.states[1:] if matches(x["when"].get("clients"), client)]
        return [one for one in mine if why in one["when"].get("purposes", [why])]

    def misfits(self, cells: Cells, size: int, event: Doc, more: list[Doc], of: Account) -> Cells:
        """Return the cells on which a charge does not fit, of so many; None if these are all."""
        cost = charge_to(self.rule.get("unit", ""), event)
        most, charge = self.capacity(more=more), self.used(amounts(cost, self.keeps))
        own = of.cells.keys() if cells is None else of.cells.keys() & cells
        full = frozenset(n for n in own if not self.fits(self.used(of.at(n)), charge, most))
        every = not self.fits(self.used(of.everyone), charge, most)  # no cell has less
        return None if every or len(full) == size else full

    def wrong(self, accounts: list[Account], most: Account | None, cells: Cells, on: Any) -> str:
        """Return the error in what an event saw of a rule; how much is locked is believed."""
        event, rule, seen, more = on
        code = dict(event.get("fired", [])).get(rule["id"])
        fired, relaxed = code not in (None, FLAGS[0]), code == FLAGS[0]
        share = number(rule["at"][:-1]) / 100 if "of" in rule else Fraction(1)
        capacity = self.capacity(share, more if code and "of" not in rule else ())
        charge = self.used(amounts(charge_to(self.rule.get("unit", ""), event), self.keeps))
        pairs = zip(seen["used"], [*map(int, seen.get("kept", ())), *[0] * 9], strict=False)
        quoted = [None if text == "infinite" else int(text) + kept for text, kept in pairs]
        unlocks = "unlock" in rule and event["type"] != JUDGED[2]
        locked = list(map(int, seen.get("locked", ["0"] * len(quoted))))
        behind = [u if u is None else u + more for u, more in zip(quoted, locked, strict=True)]
        cell = tuple(seen["cell"]) if "cell" in seen else None
        low = self.used(accounts[0].at(cell))
        high = self.used(most.at(cell)) if most else quoted
        between = zip(*(map(endless, each) for each in (low, quoted, high)), strict=True)
        held = [self.used(sums) for account in accounts for sums in account.of(cells)]
        misfits = [used for used in held if not self.fits(used, charge, capacity)]
        spent = max(map(endless, map(self.spent, misfits if fired else held)), default=0)
        shown = list(map(str, capacity)) if fired and share == 1 else None
        plain = self.capacity() if relaxed else capacity
        usual = relaxed and accounts[0] is most and all(self.fits(x, charge, plain) for x in held)
        apart = fired and (accounts[0] is not most or any(locked))
        checks = {
            "the cell is not selected": cell is None or cells is None or cell in cells,
            f"the cell had {low}": all(a <= b <= c for a, b, c in between),
            "nothing is locked": min(locked) >= 0 and (unlocks or "locked" not in seen),
            f"the charge does not fit on {len(misfits)} cells": bool(misfits) == fired or apart,
            "the usual amount is enough": not relaxed or (more and not usual),
            "another cell decides": self.fits(behind, charge, capacity) != fired,
            f"another cell has spent {spent}": unlocks or spent <= endless(self.spent(quoted)),
            f"the capacity is {capacity}": seen.get("capacity") == shown,
        }
        return next((reason for reason, holds in checks.items() if not holds), "")

    def opened(self) -> Account:
        """Return an account of this epoch with nothing in it."""
        return Account(self.keeps, self.rule.get("window", self.rule.get("refresh")))

    def key(self, dataset: str, client: str, why: str, inside: object = True) -> Key:
        """Return the account of a charge; across datasets one outside of the scope has its own."""
        place, per = "*" if inside and self.rule.get("across") else dataset, self.rule.get("per")
        whose = client if per == "client" else "", self.rule.get("unit", "")
        return self.rule["id"], self.number, place, *whose, why if per == "purpose" else ""


def start_of(old: Limit | None, new: Limit, *, used: bool) -> str:
    """Return how the epoch of a limit begins that is adopted after ``old``, which was ``used``."""
    rule = new.rule
    span, before = rule.get("window", rule.get("refresh")), old.rule if old else {}
    names = (*SCOPE[: 3 if "part_of" in rule else 5], *PLACE)  # who draws from a part may change
    same = old is not None and all(before.get(n) == rule.get(n) for n in names)
    reset = rule.get("carry") == "none"
    drawn = [[r.get(n) for n in ("gate", "orders", "workload")] for r in (before, rule)]
    forgets = reset and before.get("carry") != "none"
    if same and old and old.states == new.states and drawn[0] == drawn[1] and not forgets:
        return "kept"
    if same and not used:
        return "unused"
    if reset:
        return "empty"
    alike = drawn[0][1:] == drawn[1][1:]
    if same and old and alike and (old.gate, old.left > 0) == (new.gate, new.left > 0):
        return "carried"
    return "empty" if span else "converted" if same else "brought"


def matches(patterns: Any, text: str | None) -> bool:
    """Return whether one of the patterns, if there are any, is or matches a text."""
    several = [patterns] if type(patterns) is str else patterns or []
    one_of = (text == each or fnmatchcase(text, each) for each in several if text is not None)
    return patterns is None or any(one_of)


def person(name: str) -> str:
    """Return a name as it is compared with another."""
    plain = normalize("NFKC", normalize("NFKC", name).casefold())
    return "".join(plain.split()).removeprefix("operator:")


class Grant(NamedTuple):
    """An open grant: its client, data and people, its event, and the accounts of that."""

    by: str
    named: str | list[str]
    datasets: list[str]
    subjects: Any
    cells: Cells
    event: Doc
    expires: int
    booked: dict[Key, list[int]]


class Audit:
    """The part of a bundle that was read so far, its sums, and the findings."""

    def __init__(self) -> None:
        self.findings, self.manifest, self.size = list[Doc](), Doc(), 0
        self.keys, self.log, self.needed = list[str](), list[str](), list[str]()
        self.checkpoints, self.last, self.name, self.time = deque[bytes](), (0, ""), "", ""
        self.subtrees, self.files = list[tuple[int, bytes]](), dict[str, str]()
        self.dimensions, self.compiled = dict[str, list[str]](), dict[str, Cells]()
        self.sources = dict[str, set[str]]()  # Of each dataset, those that it was made from
        self.uncharged = defaultdict[str, set[str]](set)  # And those used before that was known
        self.took = list[tuple[int, str, list[str]]]()  # Datasets that were charged with others
        self.facts = dict[str, tuple[str | None, dict[str, str]]]()  # Their owners and labels
        self.rules, self.limits, self.numbers = list[Any](), dict[str, Limit](), Counter[str]()
        self.way, self.expired, self.ran = list[Any](), set[str](), dict[str, Any]()
        self.proposals, self.units = dict[int, Doc](), Doc()  # Further units of privacy
        self.adopted: int | None = None
        self.accounts, self.open, self.now = dict[Key, Account](), dict[str, Grant](), 0
        self.waits = dict[str, tuple[int, Doc]]()  # Requests: until when, and the event
        self.stood, self.parts = 0, list[Doc]()  # The stamp before; parts of a batch that follows
        self.totals, self.believed, self.purposes = list[Doc](), set[str](), list[str]()

    def attempt(self, where: str | int, step: Callable[..., None], *given: Any) -> None:
        """Take a step; if it fails, that is a finding, and the rest goes on."""
        try:
            step(*given)
        except Exception as error:  # noqa: BLE001 nothing that is read may end in a traceback
            reason = str(error) if type(error) is ValueError else repr(error)
            self.findings[MOST_FINDINGS - 1 :] = [{"where": where, "reason": reason[:200]}]

    def read(self, file: BinaryIO, pin: str | None) -> None:
        """Take the members of the archive in turn, but for hash tiles, policies and texts."""
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
        """Take the entries of an entry bundle (C2SP tlog-tiles), each after its length."""
        while content:
            end = 2 + int.from_bytes(content[:2], "big")
            need(end <= len(content), "ends too early")
            take(content[2:end])
            content = content[end:]

    def entry(self, entry: bytes) -> None:
        """Take the next entry, and each checkpoint that ends with it."""
        self.attempt(self.size, self.event, entry)
        grow(self.subtrees, entry)
        self.size += 1
        while self.checkpoints and self.checkpoints[0].split(b"\n")[1:2] == [b"%d" % self.size]:
            self.attempt(f"checkpoint at {self.size}", self.checkpoint, self.checkpoints.popleft())

    def checkpoint(self, note: bytes) -> None:
        """Check the root, and the signatures by the key in force and those that led to it."""
        text = f"{self.name}\n{self.size}\n{root_of(self.subtrees)}\n\n"
        needed, self.needed, self.last = self.needed, self.needed[-1:], (self.size, note.decode())
        need(self.last[1].startswith(text), "not the root of the tree, or of another log")
        need(needed and all(signed(self.last[1], key) for key in needed), f"not by all of {needed}")

    def event(self, entry: bytes) -> None:
        """Take the next event; a key that it adopts has to sign, too, from now on."""
        event = json.loads(entry)
        kind, command = event["type"], event.get("command", {})
        if kind == "signing_key.adopted.v1":
            if self.name != (name := command["key"].split("+")[0]):
                self.name, self.log, self.needed = name, [], []  # another name is another log
            for keys in (self.keys, self.log, self.needed):
                keys.append(command["key"])
        self.stood, self.now = self.now, max(self.now, micros(event["time"]))
        before, self.time = self.time, event["time"]
        self.attempt(self.size, self.fold, event, kind, command)
        need(canonical(event) == entry, "not canonical JSON (RFC 8785)")
        known = kind in (*HANDLERS, *JUDGED, *WAITED, *APART, *BATCHED)
        need(known, f"{kind} is a type that this verifier does not know: take a newer one")
        place = event["ledger"], repr(event["sequence"])
        need(place == (self.manifest["ledger"], str(self.size)), "not the next of this ledger")
        need(self.time >= before and len(self.time) == 27, "earlier than the event before it")

    def finish(self, pin: str | None) -> None:
        """Check that the last checkpoint, the manifest and the keys are of all that was read."""
        said = {"origin": self.name, "tree": {"root": root_of(self.subtrees), "size": self.size}}
        need(self.manifest | said == self.manifest, "the manifest is not of these entries")
        last = () if self.checkpoints else (self.size, self.files["checkpoint"])
        need(self.last == last, "checkpoints shrink, or the last one is not of all entries")
        need(not self.parts, "the ledger ends between the parts of a batch and its refusal")
        need(self.files["keys"].split("\n") == [*self.keys, ""], "keys that no event adopts")
        need(pin is None or pin in self.log, "the key that was given is not one of this log")

    def add_up(self) -> None:
        """Find the sums of the most charged cell of each account, and compare ``totals.json``."""
        for key in sorted(self.accounts):
            account, limit = self.accounts[key], self.limits.get(key[0])
            if key[0] and (limit is None or limit.number != key[1]):
                continue
            account.advance(self.now)
            most, n = [*map(max, zip(*account.of(None), strict=True))], len(account.keeps)
            used: Doc = dict(zip(account.keeps, map(str, most), strict=False))
            infinite = {c: count for c, count in zip(account.keeps, most[n:], strict=True) if count}
            entry: Doc = {n: x for n, x in zip(KEY, key, strict=True) if x or n in KEY[:4]}
            entry |= {"used": used | ({"infinite": infinite} if infinite else {})}
            if limit is not None:
                spent = max(map(endless, map(limit.spent, map(limit.used, account.of(None)))))
                entry["spent"] = "infinite" if spent > MOST_UNITS else str(spent)
            self.totals += [entry] if any(most) else []
        text = canonical({"accounts": self.totals}).decode()
        need(self.files.get("totals.json", text) == text, "the events add up to other totals")

    def fold(self, event: Doc, kind: str, command: Doc) -> None:
        """Judge an event, and make the changes in the table of docs/evidence.md."""
        check_total(event.get("charges", []), event["total"] if "charges" in event else {})
        if kind in WAITED:
            event = self.waited(event, kind, command)
            kind, command = event["type"], event["command"]
        if kind == "grant.waiting.v1":  # it waits under a name after its sequence
            self.waits[f"g{self.size}"] = self.now + command.get("wait", 604_800) * 10**6, event
        parts, self.parts = self.parts, []
        if kind == "batch.part.v1":
            self.parts = [*parts, event]
        elif kind == "batch.refused.v1":
            self.attempt(self.size, self.refuse, event, command, parts)
        elif parts:
            self.attempt(self.size, need, None, "parts of a batch stand before it")
        if kind in (*JUDGED, "grant.waiting.v1"):
            told = kind if kind in JUDGED else JUDGED[1]
            self.attempt(self.size, self.judge, event, told, command)
        if "confirms" in command:
            self.attempt(self.size, self.confirm, event, command)
        if kind in HANDLERS:
            HANDLERS[kind](self, event, command)

    def propose(self, event: Doc, command: Doc) -> None:
        """Keep a proposal, and check the sums that a second person is told."""
        self.proposals[self.size] = event
        told = command.get("type") == "recover" or command.get("attested_new") is True
        need(not told or event["effect"]["owed"] == self.owed(), f"charged is {self.owed()}")

    def owed(self) -> Doc:
        """Return the epsilon of the 20 datasets that were charged most, at their fullest cells."""
        found = dict[str, tuple[bool, int]]()
        for key in [key for key in self.accounts if not key[0] and not key[4]]:
            most = [*map(max, zip(*self.accounts[key].of(None), strict=True))]
            found |= {key[2]: (most[2] > 0, most[0])} if any(most) else {}
        few = sorted(found, key=lambda n: (not found[n][0], found[n][0] or -found[n][1], n))[:20]
        each = {name: Decimal(found[name][1]).scaleb(-9).normalize() for name in few}
        return {name: "infinite" if found[name][0] else f"{each[name]:f}" for name in few}

    def confirm(self, event: Doc, command: Doc) -> None:
        """Check that another person confirms, in time, what was proposed; that closes it."""
        proposal = self.proposals.pop((said := command["confirms"])["proposal"])
        stated = {name: command[name] for name in command.keys() - {"confirms"}}
        same = (said["proposer"], stated) == (proposal["by"], proposal["command"])
        self.another(event, proposal, said)
        at = self.stood if event["type"] == "clock.accepted.v1" else self.now
        need(same and at < micros(proposal["expires"]), "not what was proposed, or too late")

    def another(self, event: Doc, first: Doc, said: Doc) -> None:
        """Check that an event is by another person than a first one, which that person has read."""
        at, key = datetime.fromisoformat, said.get("key")
        one, other = map(person, (first["by"], event["by"]))
        need(said["digest"] == sha256(canonical(first)).hexdigest(), "another one was read")
        its = said.get("proposed_with") or said.get("asked_with")
        made = [(k, who) for k, who in ((key, one), (its, other)) if k]
        since = at(first["time"]) - timedelta(days=7)
        mine = any(who in map(person, k["by"]) and at(k["time"]) > since for k, who in made)
        need(not mine and one != other and other[:1] != ":", "only one person")
        need(not key or key["role"] in ("admin", "officer"), "the role may not confirm")

    def waited(self, event: Doc, kind: str, command: Doc) -> Doc:
        """End a wait, of equals the first, or as a person decides; return an admission as grant."""
        until, first = self.waits.pop(command["grant"])
        by, asked = first["by"], Doc(first["command"])
        if said := command if kind == WAITED[3] else command.get("approval"):
            self.another(event, first, said)
        need(command.get("client", by if said else event["by"]) == by, "another client's request")
        need((self.now >= until) == (kind == "grant.timed_out.v1"), "admitted or refused untimely")
        request, rest = command.get("request", asked), {"wait": 0, "at_least": 0, "mechanisms": 0}
        kinds = [[{**m, "count": 0} for m in each["mechanisms"]] for each in (request, asked)]
        some, most = ([m.get("count", 1) for m in x["mechanisms"]] for x in (request, asked))
        least = [asked["at_least"]] if "at_least" in asked else most  # of its one mechanism
        same = kinds[0] == kinds[1] and {**request, **rest} == {**asked, **rest}
        need(same and least <= some <= most, "not what has waited")
        if kind != WAITED[0]:
            return event
        later = {n: e for n, (end, e) in self.waits.items() if end > self.now and not said}
        equal = [int(n[1:]) for n, e in later.items() if [e["by"], e["command"]] == [by, asked]]
        need(all(n > int(command["grant"][1:]) for n in equal), "it overtakes an equal")
        return {**event, "type": JUDGED[0], "by": by, "command": request, "approval": said}

    def register(self, _: Doc, command: Doc) -> None:
        """Register a population: its cells are the product of its dimensions."""
        self.dimensions = dict(sorted(command.get("dimensions", {}).items()))
        self.way = [command.get("neighbouring"), command.get("membership")]
        self.state(command.get("units", {}))
        need(prod(map(len, self.dimensions.values())) <= MOST_CELLS, "too many cells for me")

    def state(self, units: Doc) -> None:
        """State units; a late one may have lost so many steps of what first units have lost."""
        lives = [key for key in self.accounts if not (key[0] or key[4])]
        for name, key in product(sorted(units.keys() - self.units.keys()), lives):
            group, old = "group_of" in units[name], self.accounts[key]
            steps = units[name]["at_most"] if group else 1 + (self.way[0] != "replace_one")
            most = [*map(max, zip(*old.of(None), strict=True))]
            need(not self.open and not (steps > 1 and most[1]), "a unit that is stated too late")
            if group:  # its members may be in several cells
                vars(old := Account(SURE)).update(everyone=most, stays=most, bound=most[:2])
            for _ in range(steps):
                self.account((*key[:4], name, "")).bring(old)
        self.units |= units

    def place(self, cells: Cells, unit: str) -> Cells:
        """Return the cells of a charge to a unit: all, if a group, which may lie in several."""
        return None if cells and "group_of" in self.units.get(unit, ()) else cells

    def book(self, event: Doc, command: Doc) -> None:
        """Open a grant, named after its sequence; or book invocations, or a correction."""
        everyone = event.get("charged_to") == "everyone" or command.get("everyone") is True
        cells = None if everyone else self.select(command.get("subjects"))
        cells = cells or (LASTS if f"g{command.get('event')}" in self.expired else None)
        kind, datasets, now = event["type"], self.charged(event, command), self.now
        more, reserve = kind == "charge.revalued.v1", kind == "grant.reserved.v1"
        datasets = self.by_now(datasets, command["event"]) if more else datasets
        by, field = (command["by"], "more") if more else (event["by"], "total")
        asked = (command.get("for_" * more + name) for name in ("purpose", "allotment"))
        booked = dict[Key, list[int]]()
        for key in self.route(datasets, by, *asked, more=more):
            charge, there = charge_to(key[4], event, field), self.place(cells, key[4])
            booked[key] = self.account(key).book(there, charge, now, reserve=reserve)
        if reserve:
            expires = now + command.get("ttl_seconds", 3600) * 10**6
            who = by, command["dataset"], datasets, command.get("subjects")
            self.open[f"g{self.size}"] = Grant(*who, cells, event, expires, booked)

    def end(self, event: Doc, command: Doc) -> None:
        """Settle a grant at its charge, which is no more than it reserved."""
        grant = self.open.pop(command["grant"])
        late, expired = self.now >= grant.expires, event["type"] == "grant.expired.v1"
        self.expired |= {command["grant"]} if expired else set()
        self.ran |= {command["grant"]: grant[:2]} if event["type"] in ENDS[::3] else {}
        for key, units in grant.booked.items():
            cells = self.place(grant.cells, key[4]) or (LASTS if expired else None)
            self.accounts[key].settle(cells, units, charge_to(key[4], event, "charge"), self.now)
        need(late == expired, "expired too early, or settled too late")
        for unit, name in product(["", *self.units], grant.event["total"].keys() - {"infinite"}):
            both = charge_to(unit, event, "charge"), charge_to(unit, grant.event)
            now, reserved = (amounts(one, [name])[::-1] for one in both)
            need(now == reserved if expired else now <= reserved, f"not the {name} it reserved")

    def carry_over(self, _: Doc, command: Doc) -> None:
        """Raise accounts to their sums before a recovery; reservations in them become spending."""
        for each in command["accounts"]:
            key = *(each[n] for n in KEY[:4]), *(each.get(n, "") for n in KEY[4:])
            limit = self.limits.get(key[0])
            if key[0] and (limit is None or limit.number != key[1]):
                continue
            account = self.account(key)
            for grant in self.open.values():
                if units := grant.booked.pop(key, None):
                    account.held = plus(account.held, units[: len(account.held)], -1)
                    account.spend(self.place(grant.cells, key[4]), units, self.now)
            account.lift(each["used"], self.now)

    def accept(self, event: Doc, command: Doc) -> None:
        """Check that two people read the same clock, which stamps the event unless it is behind."""
        need("confirms" in command, "not confirmed")
        first, shown = micros(command["clock"]), micros(command["confirms"]["shown"])
        need(-60 * 10**6 <= shown - first <= 86_400 * 10**6, "another clock was confirmed")
        need(micros(event["time"]) == max(shown, self.stood), "another time than was accepted")

    def recover(self, _: Doc, command: Doc) -> None:
        """Charge every open grant in full."""
        need("confirms" in command, "not confirmed")
        for grant in self.open.values():
            for key, units in grant.booked.items():
                cells, charge = self.place(grant.cells, key[4]), charge_to(key[4], grant.event)
                self.accounts[key].settle(cells or LASTS, units, charge, self.now)
        self.expired |= self.open.keys()
        self.open.clear()

    def account(self, key: Key) -> Account:
        """Return an account; a new one has the currencies of its rule's epoch, or is a lifetime."""
        limit = self.limits.get(key[0])
        new = limit.opened() if limit and limit.number == key[1] else Account(SURE)
        return self.accounts.setdefault(key, new)

    def dataset(self, event: Doc, command: Doc) -> None:
        """Register a dataset with those that it was made from, or that were made from it."""
        need("confirms" in command or not command.get("also", event.get("leaves")), "not confirmed")
        name, made_from = command["id"], set(event.get("made_from", []))
        due = self.newly_charged(name, made_from, event.get("made_into", []))
        self.sources[name], charges = made_from, event["type"] == REGISTERED[1]
        need(made_from >= self.sources.keys() & command.get("parents", []), "not of all parents")
        for child in event.get("made_into", []):
            self.sources[child].add(name)
        both = {"charged_with": due, "moved": self.describe(name, command, charges=charges)}
        told, mine = ({k: each[k] for k in both if each.get(k)} for each in (event, both))
        need(told == mine != {} if charges else not {*both, "orders"} & {*event}, f"not {mine}")
        for rule, orders in event.get("orders", {}).items():
            self.limits[rule].learn(orders)
        for one, others in due.items():
            self.uncharged[one] = (self.uncharged[one] | {*others}) - {*others * charges}
            if charges:
                self.charge_with(one, others, event["sequence"])

    def newly_charged(self, name: str, made_from: Any, into: list[str]) -> dict[str, list[str]]:
        """Return which datasets become known as what others, which were used, were made from."""
        roots, due = [name] if name in self.sources else into, dict[str, list[str]]()
        lack = {one: few for one, few in self.uncharged.items() if few and roots}
        before = {x: self.origins([x]) for x in {*roots, *lack}.union(*lack.values())}
        for found in sorted({name} | self.origins(made_from)):
            mine = {one for one in roots if found not in before[one]}
            tops = {one for one in mine if not before[one] & mine - {one}}
            tops |= {x for y in lack if before[y] & mine for x in lack[y] if found not in before[x]}
            due[found] = sorted(x for x in tops if ("", 0, x, "", "", "") in self.accounts)
        return {found: others for found, others in due.items() if others}

    def charge_with(self, name: str, others: list[str], at: int) -> None:
        """Charge a dataset with what others have used; open grants hold and end there, too."""
        self.took.append((at, name, others))
        lives = [("", 0, one, "", unit, "") for one in others for unit in ["", *self.units]]
        pairs = [(key, (*key[:2], name, *key[3:])) for key in lives if key in self.accounts]
        begins = list[tuple[Limit, list[Key], str]]()
        for limit in [x for x in self.limits.values() if matches(x.rule.get("datasets"), name)]:
            rule, place = limit.rule, limit.key(name, "", "", self.about(limit.rule, name))[2]
            like = {one for one in others if matches(rule.get("datasets"), one)}
            mine = [k for k in self.accounts if k[:2] == (rule["id"], limit.number)]
            pairs += [(key, (*key[:2], place, *key[3:])) for key in mine if key[2] in like]
            lives = [("", 0, x, "", rule.get("unit", ""), "") for x in others if x not in like]
            lives = [key for key in lives if key in self.accounts and not PARTS & rule.keys()]
            begins.append((limit, lives, place))
        for key, into in pairs:
            self.move(key, into, self.accounts[key])
        for limit, keys, place in begins:
            for into, account in self.brought(limit, keys, place).items():
                (there := self.account(into)).gain(account, self.now)
                for key in keys if there.window else ():
                    self.move(key, into, None)

    def move(self, key: Key, into: Key, spent: Account | None) -> None:
        """Let open grants hold in an account what they do in another; add what that has beside."""
        mine, grants = self.account(into), [x for x in self.open.values() if key in x.booked]
        grants = [grant for grant in grants if into not in grant.booked]
        if spent is None:  # of what they run a window counts what it can
            grants = [x for x in grants if {*mine.keeps} <= charge_to(key[4], x.event).keys()]
        else:
            (spent := spent.twin()).advance(self.now)
            for cells, units in [(self.place(x.cells, key[4]), x.booked[key]) for x in grants]:
                spent.add(cells or LASTS, units, -1)
                spent.bound = plus(spent.bound, units[: len(spent.bound)], -1)
            mine.gain(spent, self.now)
        for grant in grants:
            charge, cells = charge_to(key[4], grant.event), self.place(grant.cells, key[4])
            units = grant.booked[key] if spent else amounts(charge, mine.keeps)
            grant.booked[into] = mine.take(cells, units, self.now, reserve=True)

    def origins(self, names: Iterable[str]) -> set[str]:
        """Return datasets and all that they were made from."""
        found, left = set[str](), set(names)
        while left := left - found:
            found |= left
            left = {one for name in left for one in self.sources.get(name, ())}
        return found

    def by_now(self, charged: list[str], since: int) -> list[str]:
        """Return what an event charged, and what was charged since with what that had used."""
        found = {*charged}
        for at, name, others in self.took:
            found |= {name} if at > since and not found.isdisjoint(others) else set()
        return sorted(found)

    def describe(self, name: str, command: Doc, *, charges: bool) -> list[str]:
        """Take owner and labels; totals take what was outside. Return those that grants stay in."""
        limits = [limit for limit in self.limits.values() if "across" in limit.rule]
        out = [limit for limit in limits if name in self.facts and not self.about(limit.rule, name)]
        owner, known = command.get("owner"), self.facts.get(name, (None, {}))[1]
        self.facts[name] = owner, command.get("labels", known)
        places = [(x.rule["id"], x.number, name) for x in out if self.about(x.rule, name)]
        moved = set[str]()
        for key in [key for key in self.accounts if key[:3] in places]:
            if (mine := self.accounts[key]).window and charges:
                moved |= {key[0] for grant in self.open.values() if key in grant.booked}
                self.move(key, (*key[:2], "*", *key[3:]), mine)
            else:
                self.account((*key[:2], "*", *key[3:])).gain(mine, self.now, lasts=True)
            self.accounts[key] = self.limits[key[0]].opened()
            for grant in self.open.values():
                grant.booked.pop(key, None)
        return sorted(moved)

    def about(self, rule: Doc, dataset: str) -> bool:
        """Return whether a rule is about a dataset as it is registered."""
        owner, labels = self.facts.get(dataset, (None, {}))
        named = matches(rule.get("datasets"), dataset) and matches(rule.get("owners"), owner)
        return named and all(labels.get(k) in few for k, few in rule.get("labels", {}).items())

    def inside(self, rule: Doc, datasets: list[str], client: str, why: Any, of: Any) -> list[str]:
        """Return the datasets of a request that a rule is about, none if it is about others."""
        scoped = "purposes" in rule and rule.keys() - {"id", "action", *SCOPE}  # not that kind
        asked = matches(rule.get("clients"), client) and ("part_of" not in rule or of == rule["id"])
        asked = asked and not (scoped and why not in rule["purposes"])
        return [one for one in datasets if asked and self.about(rule, one)]

    def meets(self, rule: Doc, cells: Cells, asked: tuple[Any, ...]) -> tuple[list[str], Cells]:
        """Return the datasets and the cells of a request that a rule is about."""
        about, where = self.inside(rule, *asked), self.place(cells, rule.get("unit", ""))
        if "subjects" in rule:  # it is about these cells only
            where = (group := frozenset(self.cells_of(rule["subjects"]))) & (where or group)
        return [] if where == LASTS else about, where

    def charged(self, event: Doc, command: Doc) -> list[str]:
        """Return the datasets that are charged: those named and, but for corrections, origins."""
        asked = command["dataset"]
        names = [asked] if type(asked) is str else asked
        due = names if event["type"] == BOOKS[2] else sorted(self.origins(names))
        need(event.get("charged", names) == due, f"other datasets than {due} are charged")
        return due

    def route(self, datasets: list[str], *who: Any, more: bool = False) -> list[Key]:
        """Return the accounts of a charge: of limits, in their scope or not, and lifetimes."""
        keys = list[Key]()
        for limit in self.limits.values():
            ever = {n: v for n, v in limit.rule.items() if n not in SCOPE[:2]}
            named = self.inside(ever, datasets, *who)
            inside = named if more else self.inside(limit.rule, datasets, *who)
            each = inside if inside and "across" in limit.rule else named
            why = who[1] if who[1] in self.purposes else ""  # another is as good as none
            keys += [limit.key(one, who[0], why, one in inside) for one in each]
        units = product(["", *self.units], [*datasets, "*"])
        return [*dict.fromkeys(keys), *(("", 0, one, "", unit, "") for unit, one in units)]

    def beside(self, key: Key, account: Account, asked: Any, grants: list[Grant]) -> Account:
        """Return a limit's account as if grants were released, with what its allotments keep."""
        account, drawn = self.released(key, account, grants), self.route(*asked)
        for part in [one for one in self.limits.values() if one.rule.get("part_of") == key[0]]:
            mine = part.rule["id"], part.number, *key[2:]
            about = key[2] == "*" or self.about(part.rule, key[2])
            if about and mine not in drawn and self.time[:10] <= part.rule.get("until", "9"):
                used = self.released(mine, self.accounts.get(mine) or part.opened(), grants)
                account = account.beside(part.capacity(), used)
        return account

    def released(self, key: Key, account: Account, grants: list[Grant]) -> Account:
        """Return an account as if these grants were released."""
        account.advance(self.now)
        for grant in [grant for grant in grants if key in grant.booked]:
            cells = self.place(grant.cells, key[4])
            (account := account.twin()).settle(cells, grant.booked[key], {}, self.now)
        return account

    def select(self, subjects: Any) -> Cells:
        """Return the cells of a subject group."""
        terms = subjects if type(subjects) is list else [subjects or {}]
        if {} in terms:
            return None
        text = json.dumps(terms)
        if text not in self.compiled:
            self.compiled[text] = frozenset().union(*map(self.cells_of, terms))
        return self.compiled[text]

    def cells_of(self, term: Doc) -> Iterator[Cell]:
        """Return the cells that have one of the values of each dimension that a term names."""
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

    def extend(self, event: Doc, command: Doc) -> None:
        """Append values of dimensions: new cells inherit, or have what everyone still has."""
        inherit = command.get("attested_new") is not True
        need("confirms" in command or inherit or not self.owed(), "not confirmed")
        self.state(command.get("units", {}))
        for name, values in sorted(event["added"].items()):
            before, axis = self.dimensions[name], list(self.dimensions).index(name)
            after = self.dimensions | {name: before + values}
            need(prod(map(len, after.values())) <= MOST_CELLS, "too many cells for me")
            new = range(len(before), len(before) + len(values))
            old, self.dimensions = map(len, self.dimensions.values()), after
            there = frozenset(product(*map(range, old)) if not inherit else ())
            self.compiled.clear()
            for grant_id, grant in self.open.items():
                self.open[grant_id] = self.widened(grant, name, values, inherit=inherit)
            for key, account in self.accounts.items():
                account.advance(self.now)
                if inherit:
                    held = Account(account.keeps)
                    for grant in [grant for grant in self.open.values() if key in grant.booked]:
                        held.add(self.place(grant.cells, key[4]), grant.booked[key])
                    account.inherit(axis, new, held, self.now)
                elif self.way != ["replace_one", "private"]:
                    account.leave(there)

    def widened(self, grant: Grant, name: str, values: list[str], *, inherit: bool) -> Grant:
        """Return a grant that covers the new cells, if its group does not name their dimension."""
        terms = grant.subjects if type(grant.subjects) is list else [grant.subjects]
        if grant.cells is None:
            return grant
        unnamed = [term | {name: values} for term in terms if name not in term]
        new = frozenset[Cell]().union(*map(self.cells_of, unnamed))
        asks = map(grant.event["command"].get, ("purpose", "allotment"))
        charged = self.by_now(grant.datasets, grant.event["sequence"])
        counted = {*self.route(charged, grant.by, *asks), *grant.booked}
        for key in [key for key in counted if self.place(new, key[4]) and not inherit]:
            if key in grant.booked:
                self.accounts[key].add(new, grant.booked[key])
            else:
                self.account(key).book(new, charge_to(key[4], grant.event), self.now)
        return grant._replace(cells=grant.cells | new)

    def adopt(self, event: Doc, command: Doc) -> None:
        """Adopt a policy; an epoch begins with the spending of its rule, or of the data."""
        limits, rules = dict[str, Limit](), command["policy"]["rules"]
        need("confirms" in command or (self.adopted and not event["loosens"]), "not confirmed")
        for rule in [rule for rule in rules if "limit" in rule]:
            name, told = rule["id"], event["epochs"][rule["id"]]
            old, start = self.limits.get(name), told["start"]
            new = Limit(rule, told, old if start in ("kept", "carried") else None)
            mine = [key for key in self.accounts if old and key[:2] == (name, old.number)]
            due_start = start_of(old, new, used=bool(mine))
            need(start == due_start, f"{name} does not begin so: {start!r:.20}")
            due = old.number if old and start == "kept" else self.numbers[name] + 1
            need(new.number == due, f"the epoch of {name} is not {due}")
            self.numbers[name] = due
            named = [d for d in sorted(self.sources) if matches(rule.get("datasets"), d)]
            lives = [("", 0, d, "", rule.get("unit", ""), "") for d in named]
            lives = [key for key in lives if key in self.accounts and not PARTS & rule.keys()]
            self.accounts |= self.brought(new, {"converted": mine, "brought": lives}.get(start, []))
            for key in mine if start == "carried" else ():
                after = name, due, *key[2:]
                self.accounts[after] = self.accounts[key].twin()
                for grant in [grant for grant in self.open.values() if key in grant.booked]:
                    grant.booked[after] = grant.booked[key]
            limits[name] = new
        self.rules, self.limits, self.adopted = rules, limits, self.size
        listing = [each for rule in rules for each in (rule, *rule.get("relaxed", ()))]
        self.purposes = [p for x in listing for p in x.get("when", x).get("purposes", ())]

    def brought(self, limit: Limit, keys: list[Key], to: str = "") -> dict[Key, Account]:
        """Return what a limit begins with, or counts ``to`` some data: sums of epsilons, deltas."""
        brought = dict[Key, Account]()
        for key in keys:
            inside = key[2] == "*" or (not key[0] and self.about(limit.rule, key[2]))
            into = limit.key(*key[2:4], key[5], inside)
            into = (*into[:2], to or into[2], *into[3:])
            mine = brought.setdefault(into, Account(limit.keeps))
            mine.bring(self.accounts[key])
        for account, currency in product(brought.values(), limit.keeps[2:]):
            sure = currency != "mu_squared"  # which nothing stands for
            factor = 10**6 / slope_of(currency, limit.orders[currency]) if sure else None
            account.restate(currency, factor)
        return brought

    def refuse(self, event: Doc, command: Doc, parts: list[Doc]) -> None:
        """Judge the item that a batch was refused for. Not known are charges of those before it."""
        first, mine = event.get("first", 0), event["items"]
        runs = [(part["command"]["first"], part["items"]) for part in parts]
        runs.insert(sum(at < first for at, _ in runs), (first, mine))
        items, place = [item for _, run in runs for item in run], first + event["item"]
        ends = accumulate((len(run) for _, run in runs), initial=0)
        need([at for at, _ in runs] == [*ends][:-1], "items are missing, or in another order")
        need(event.get("parts", 0) == len(parts), f"there are {len(parts)} parts")
        due = "spending", len(items), sha256(canonical(items)).hexdigest()
        asked = command["kind"], command["size"], command["digest"]
        need(asked == due and event["item"] in range(len(mine)), "not the items of the batch")
        whose = {"size": due[1], "digest": due[2], "type": "batch_part"}, event["by"], event["time"]
        for part in parts:
            of = part["command"] | {"first": 0}, part["by"], part["time"]
            need(of == (whose[0] | {"first": 0}, *whose[1:]), "a part of another batch")
            need(part["items"] and not {"key", "batch"} & part.keys(), "a part with another field")
        need(items[place]["type"] == "ask_grant", "the item that is refused asks for nothing")
        self.judge(event, "grant.refused.v1", items[place], tuple(items[:place]))

    def judge(self, event: Doc, kind: str, command: Doc, before: tuple[Doc, ...] = ()) -> None:
        """Check an event's outcome, and its numbers of each rule that compares numbers."""
        fired, datasets = dict(event.get("fired", [])), self.charged(event, command)
        need(event.get("policy") == self.adopted, "another policy is in force")
        everyone = event.get("charged_to") == "everyone" or "built-in:private-membership" in fired
        cells = None if everyone else self.select(command.get("subjects"))
        settled = [self.open[i["grant"]] for i in before if i.get("grant") in self.open]
        beside = lists = 9 if len(self.rules) <= 100 else 0  # Accounts beside those that decide
        exhausted = dict[Any, Any]()  # By rule and dataset: the least and the most cells, of which
        for rule in self.rules:
            name, limit = rule["id"], self.limits.get(rule.get("of", rule["id"]))
            ask = datasets, event["by"], command.get("purpose"), command.get("allotment")
            about, where = self.meets(limit.rule if limit else rule, cells, ask)
            if limit and ask[3] == name and (not about or self.time[:10] > rule.get("until", "9")):
                need(fired.get(name) == "allotment-closed", f"rule {name}: nobody may draw from it")
            elif limit is not None and about:
                why, seen = ask[2] if ask[2] in self.purposes else "", event["rules"][name]
                keys, wide = {limit.key(one, ask[1], why) for one in about}, limit.more(ask[1], why)
                at = {key: self.accounts.get(key) or limit.opened() for key in keys}
                sums = self.released if "of" in rule else partial(self.beside, asked=ask)
                least = {key[2]: sums(key, one, grants=settled) for key, one in at.items()}
                found = {key[2]: sums(key, one, grants=[]) for key, one in at.items()}
                known, several = not any(i["type"] == "ask_grant" for i in before), len(keys) > 1
                size = len(where) if where else prod(map(len, self.dimensions.values()))
                lo = partial(limit.misfits, where, size, event, wide)
                hi = lo if known and "unlock" not in rule else lambda _: None
                full = {n: (lo(least[n]), hi(found[n])) for n in found if fired.get(name) == FULL}
                told, more = [seen, *seen.get("beside", [])], seen.get("more", 0)
                for one in told:  # each has spent more than those that come after it
                    sides = zip(one.get("cell", ()), self.dimensions.values(), strict="cell" in one)
                    need(all(n in range(len(side)) for n, side in sides), "no such cell")
                    data = one["dataset"] if several else next(iter(found))
                    need(("dataset" in one) == several and data in found, "not what decides")
                    of, most = [least.pop(data), *least.values()], found.pop(data)
                    on = event, rule, one | {"capacity": seen.get("capacity")}, wide
                    wrong = limit.wrong(of, most if known else None, where, on)
                    need(not wrong, f"rule {name}: {wrong}")
                beside += 1 - len(told)
                apt = beside >= 0 and not (more and beside) and (name in fired or len(told) == 1)
                need(apt, f"rule {name}: too many or too few accounts are told")
                a, b = (sum(full[n][i] != LASTS for n in found if full) for i in (0, 1))
                need("of" in rule or not lists or a <= more <= b, f"not {a} more")
                exhausted |= {(name, n): (*both, where) for n, both in full.items()}
                self.believed |= {name} if any("locked" in one for one in told) else set()
            else:
                self.plain(rule, name in fired, event, command, about)
        if kind == JUDGED[1] and ("exhausted" in event or len(canonical(event)) < 8192):
            self.listed(event, datasets, exhausted)
        self.outcome(event, kind, datasets, fired)

    def plain(self, rule: Doc, fired: bool, event: Doc, command: Doc, about: list[str]) -> None:
        """Check whether a rule that compares no account fired, or believe it."""
        if "at_most" in rule and about:
            caps = rule["at_most"].items()
            costs = {n: (amounts(event["total"], [n]), number(m)) for n, m in caps}
            over = [i or u > m * PER_ONE[n] for n, ((u, i), m) in costs.items()]
            need(any(over) == fired, f"rule {rule['id']}: {costs}")
        elif rule.keys() - {"id", "action", *SCOPE} == {"mechanisms"}:
            kinds = set(re.findall(r'"kind":"(\w+)"', canonical(command).decode()))
            kinds |= {"sparse_vector"} if "reusable_holdout" in kinds else set()  # its part
            denied = bool(about) and not kinds.isdisjoint(rule["mechanisms"])
            need(denied == fired, f"rule {rule['id']}: {sorted(kinds)}")
        elif not {"limit", "of", "at_most"} & rule.keys():
            self.believed.add(rule["id"])

    def listed(self, event: Doc, datasets: list[str], full: dict[Any, Any]) -> None:
        """Check that a refusal lists each account of a limit that is exhausted, with its cells."""
        told, fired = dict[Any, Any](), [name for name, _ in event.get("fired", [])]
        for entry in event.get("exhausted", []):
            rules = [fired[n] for n in positions(**entry.get("rules", {}))] or fired
            on = [datasets[n] for n in positions(**entry.get("datasets", {}))] or datasets
            mine = [key for key in product(rules, [*on, "*"]) if key in full]
            need(mine and not told.keys() & mine, "an account is listed twice, or none is")
            group = [*map(self.cells_of, entry.get("subjects", ()))]
            cells = frozenset[Cell]().union(*group) if group else None
            told |= {n: (cells and cells & (full[n][2] or cells), "part" in entry) for n in mine}
        for key, (low, high, _) in full.items():
            cells, part = told.get(key, (LASTS, False))
            less = cells is not None and (low is None or not low <= cells)
            more = high is not None and (cells is None or not cells <= high)
            wrong = low is None or high == LASTS if part else less or more
            need(not wrong, f"rule {key[0]}: other cells of {key[1]} have no room")

    def outcome(self, event: Doc, kind: str, datasets: list[str], fired: dict[str, str]) -> None:
        """Check that a grant is refused, or approved, or a record an overrun, as rules fired."""
        actions = {rule["id"]: rule.get("action", "block") for rule in self.rules}
        blocked = [n for n in fired if actions.get(n, "block") == "block" and fired[n] not in FLAGS]
        more, recorded = FULL in map(fired.get, blocked), kind == JUDGED[2]
        need((event.get("overrun") is True) == (recorded and more), f"overrun, by {blocked}")
        asks = any(actions.get(n) == "approve" and fired[n] not in FLAGS for n in fired)
        asks |= event["type"] == "grant.waiting.v1" and "wait" in event["command"]  # it may join
        approved = event.get("approval") is not None
        held = recorded or (kind == JUDGED[1]) == (blocked != [] or asks > approved)
        need(held and asks >= approved, f"the outcome, by {blocked}")
        blocking = [limit for name, limit in self.limits.items() if actions[name] == "block"]
        guards = [x.rule for x in blocking if {*PARTS, "unit", "subjects"}.isdisjoint(x.rule)]
        without = not all(any(self.about(rule, one) for rule in guards) for one in datasets)
        need(("built-in:no-policy" in fired) == (self.adopted is None), "whether there is a policy")
        need(("built-in:no-limit" in fired) == (without and self.rules != []), "whether limited")


HANDLERS: dict[str, Callable[[Audit, Doc, Doc], Any]] = dict.fromkeys(BOOKS, Audit.book) | {
    "change.proposed.v1": Audit.propose,
    "change.declined.v1": lambda audit, _, command: audit.proposals.pop(command["proposal"]),
    "population.registered.v1": Audit.register,
    "population.extended.v1": Audit.extend,
    **dict.fromkeys(REGISTERED, Audit.dataset),
    "policy.adopted.v1": Audit.adopt,
    **dict.fromkeys(ENDS, Audit.end),
    "answer.republished.v1": lambda audit, event, command: need(
        audit.ran.get(command["grant"]) == (event["by"], command["dataset"]), "not committed"
    ),
    "ledger.carried_over.v1": Audit.carry_over,
    "ledger.recovered.v1": Audit.recover,
    "clock.accepted.v1": Audit.accept,
}


def verify(file: BinaryIO, pin: str | None = None) -> Doc:
    """Check a whole bundle, which is read once."""
    audit = Audit()
    audit.attempt("archive", audit.read, file, pin)
    told = {"findings": audit.findings, "totals": audit.totals, "believed": sorted(audit.believed)}
    told["uncharged"] = {name: sorted(few) for name, few in audit.uncharged.items() if few}
    found = {"ledger": audit.manifest.get("ledger"), "root": root_of(audit.subtrees)}
    return found | {"events": audit.size} | told


def told_of(entry: Doc) -> str:
    """Return one account in a line."""
    rule = f"rule {entry['rule']}, epoch {entry['epoch']}, " if entry["rule"] else "lifetime, "
    data = "all data" if entry["dataset"] == "*" else entry["dataset"]
    who, spent = entry["client"] and f", client {entry['client']}", entry.get("spent", "")
    who += "".join(f", {name} {entry[name]}" for name in KEY[4:] if name in entry)
    shown = f"{Decimal(spent).scaleb(-9):f}" if spent.isdigit() else spent
    more = f"epsilon {shown} spent; " if shown else ""
    return f"{rule}{data}{who}: {more}used {json.dumps(entry['used'], sort_keys=True)}"


def main() -> int:
    """Run the command: 0 if nothing is found wrong, 1 if anything is, 2 on misuse."""
    asks = argparse.ArgumentParser(description="Check an evidence bundle of accountant.")
    asks.add_argument("bundle", type=argparse.FileType("rb"))
    asks.add_argument("--key", help="a verifier key that you know: else anybody may have signed")
    asks.add_argument("--json", action="store_true", help="print what was found as JSON")
    report = verify((asked := asks.parse_args()).bundle, asked.key)
    told = [f"{each['where']}: {each['reason']}" for each in report["findings"]] or ["no findings"]
    told += [f"{name}: {report[name]}" for name in ("ledger", "events", "root")]
    told += [f"whether rule {name} fired is believed, not checked" for name in report["believed"]]
    told += [f"{k} lacks earlier use of {', '.join(v)}" for k, v in report["uncharged"].items()]
    told += map(told_of, report["totals"])
    text = json.dumps(report, indent=1) if asked.json else "\n".join(ascii(x)[1:-1] for x in told)
    sys.stdout.write(f"{text}\n")
    return 1 if report["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
