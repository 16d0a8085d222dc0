"""A second evaluator: rules and accounts over again in plain Python, from what they mean.

An account is a list of entries (which cells, how much, held or spent, when), added up afresh
whenever somebody asks. It shares no code with the product's evaluator and accounts; prices, and
what a gate says of two sums, are privacy's, and epochs the product's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import product
from typing import Any, Final

from accountant.budget.accounts.epochs import Adopted, Epoch
from accountant.budget.commands import command_from_json
from accountant.ledger.events import Event
from accountant.privacy.filters import Capacity
from accountant.privacy.mechanisms import Relation, Verdict, price
from accountant.privacy.units import SURE, Axis, Charge, Currency, charge_of

SECOND: Final = 1_000_000
LARGEST: Final = 2**62
Cell = tuple[int, ...]
Sums = dict[Currency, tuple[int, int]]
"""Finite units, and how many infinite charges beside them."""
Key = tuple[str, int, str, str, str, str]
"""Rule, epoch, dataset, client, unit of privacy, purpose: as the product names accounts."""
Costs = dict[str, Charge]
"""A cost by the unit that bears it; that of the first one is under ""."""


def sums_of(charge: Charge, axis: Iterable[Currency]) -> Sums:
    """A charge in some currencies: without a bound where it has no value."""
    known = {c: (f, i) for c, f, i in zip(charge.axis, charge.finite, charge.infinite, strict=True)}
    return {currency: known.get(currency, (0, 1)) for currency in axis}


def added(left: Sums, right: Sums) -> Sums:
    """The sum in the currencies of ``left``."""
    return {c: (f + right[c][0], i + right[c][1]) for c, (f, i) in left.items()}


@dataclass
class Entry:
    """What is booked on some cells (None: on everyone); ``since`` is when it was spent."""

    cells: frozenset[Cell] | None
    sums: Sums
    grant: str | None
    """The open grant that holds it."""
    since: int
    lasting: bool = False
    """It is on everyone and may still run, though no grant holds it."""


@dataclass
class Account:
    """All entries of one account. ``span``: for how many seconds what is spent counts, or by which
    period of the calendar.
    """

    axis: Axis
    span: int | str | None = None
    entries: list[Entry] = field(default_factory=list)

    def counting(self, now: int) -> list[Entry]:
        """The entries that count at a stamp."""
        if self.span is None:
            return self.entries
        return [e for e in self.entries if e.grant is not None or self._lasts(e.since, now)]

    def _lasts(self, since: int, now: int) -> bool:
        if isinstance(self.span, int):
            return since > now - self.span * SECOND
        return period(str(self.span), since) == period(str(self.span), now)

    def at(self, cell: Cell, now: int) -> Sums:
        """What a cell has used."""
        found: Sums = dict.fromkeys(self.axis, (0, 0))
        for entry in self.counting(now):
            if entry.cells is None or cell in entry.cells:
                found = added(found, entry.sums)
        return found


@dataclass
class Envelope:
    """A request: the datasets that are charged, its cells (None: everyone), and what its mechanisms
    cost together.
    """

    datasets: tuple[str, ...]
    by: str
    cells: frozenset[Cell] | None
    costs: Costs
    command: dict[str, Any]

    @property
    def total(self) -> Charge:
        """The cost to one first unit."""
        return self.costs[""]


@dataclass
class Grant:
    """An open grant."""

    asked: Envelope
    accounts: list[Key]
    positives: int = 0


@dataclass
class Found:
    """What the event of a request has to say."""

    outcome: str
    fired: list[list[str]]
    rules: dict[str, dict[str, Any]]
    alike: set[str]
    """Rules for which all selected cells have used the same: none need be quoted."""
    exhausted: dict[tuple[str, str], tuple[frozenset[Cell], frozenset[Cell]]] = field(
        default_factory=dict
    )
    """By limit that fired and dataset: the cells on which the charge does not fit, and all cells
    that were compared."""


class Oracle:
    """A ledger by its events: ``see`` believes what was asked, and decides it again."""

    def __init__(self) -> None:
        self.dimensions: dict[str, list[str]] = {}
        self.relation = Relation.REPLACE_ONE
        self.units: dict[str, dict[str, Any]] = {"": {}}
        """Units of privacy, as they were stated."""
        self.adopted: Adopted | None = None
        self.accounts: dict[Key, Account] = {}
        self.grants: dict[str, Grant] = {}
        self.parents: dict[str, list[str]] = {}
        """Of each dataset what it was made from, registered or not."""
        self.private = False
        """Whether it is private who is in which cell."""
        self.what: dict[str, tuple[str | None, dict[str, str]]] = {}
        """Of each dataset its owner and its labels."""
        self.rules: list[dict[str, Any]] = []
        self.header: int | None = None
        self.parts: list[tuple[int, list[dict[str, Any]]]] = []
        """Items of a refused batch whose refusal is to come, with the place of the first."""
        self.born: dict[tuple[str, int], int] = {}
        """When values of dimensions were added later."""
        self.begun: dict[str, int] = {}
        """Since when a rule counts what it does, whatever its limit was."""
        self.arrived: list[tuple[Key, frozenset[Cell], int]] = []
        """Requests that unlocked a part of a limit, by its account in no epoch."""

    # -- the population ----------------------------------------------------------------------

    @property
    def cells(self) -> list[Cell]:
        """All cells in row-major order."""
        return list(product(*(range(len(values)) for values in self.dimensions.values())))

    def selected(self, subjects: Any) -> frozenset[Cell] | None:
        """The cells that a group means; None for everyone."""
        terms = subjects if isinstance(subjects, list) else [subjects or {}]
        if {} in terms:
            return None
        return frozenset(c for c in self.cells if any(self._means(term, c) for term in terms))

    def _means(self, term: dict[str, Any], cell: Cell) -> bool:
        for at, (name, values) in zip(cell, self.dimensions.items(), strict=True):
            choice = term.get(name)
            if isinstance(choice, dict):
                if not values.index(choice["from"]) <= at <= values.index(choice["to"]):
                    return False
            elif choice is not None and values[at] not in choice:
                return False
        return True

    # -- decisions ---------------------------------------------------------------------------

    def asked(self, by: str, command: dict[str, Any]) -> Envelope:
        """A request, priced."""
        costs = self.costs(stated(command), self.adopted.orders if self.adopted else ())
        named = command["dataset"] if isinstance(command["dataset"], list) else [command["dataset"]]
        datasets = tuple(sorted({one for name in named for one in self._behind(name)}))
        return Envelope(datasets, by, self.selected(command.get("subjects")), costs, command)

    def _behind(self, name: str) -> Iterator[str]:
        """A dataset, and all that it was made from."""
        if name in self.parents:
            yield name
            for parent in self.parents[name]:
                yield from self._behind(parent)

    def costs(self, mechanisms: list[Any], orders: tuple[int, ...]) -> Costs:
        """What mechanisms cost together, for each unit."""
        return {unit: self._cost(mechanisms, orders, unit) for unit in self.units}

    def _cost(self, mechanisms: list[Any], orders: tuple[int, ...], unit: str) -> Charge:
        total = None
        for mechanism in mechanisms:
            charge = price(*self._as_for(mechanism, unit), orders).charge
            total = charge if total is None else total + charge
        assert total is not None
        return total

    def _as_for(self, mechanism: Any, unit: str) -> tuple[Any, Relation]:
        """A mechanism that costs one first unit of a population with a relation what this one costs
        one of a unit: with its sensitivity; with so many records of each unit; or, for a part of
        what is there or not, where one unit is replaced.
        """
        said = dict(getattr(mechanism, "sensitivity_per", None) or ())
        if unit in said:
            return mechanism.model_copy(update={"sensitivity": said[unit]}), self.relation
        if "group_of" in self.units[unit]:
            size = mechanism.group_size * self.units[unit]["at_most"]
            return mechanism.model_copy(update={"group_size": size}), self.relation
        if unit and self.relation is Relation.ADD_OR_REMOVE_ONE:
            there = {"neighbouring": Relation.ADD_OR_REMOVE_ONE}
            return mechanism.model_copy(update=there), Relation.REPLACE_ONE
        return mechanism, self.relation

    def _where(self, key: Key, cells: frozenset[Cell] | None) -> frozenset[Cell] | None:
        """The cells of an account that a charge on ``cells`` reaches: a group may be in all."""
        return None if "group_of" in self.units[key[4]] else cells

    def judge(self, asked: Envelope, now: int) -> Found:
        """Every rule's word."""
        told = list(self._built_in(asked))
        rules: dict[str, dict[str, Any]] = {}
        alike, exhausted = set(), {}
        for rule in self.rules:
            word = self._word(rule, asked, now)
            if word is None:
                continue
            fired, code, seen = word
            action = "flag" if code == "limit-relaxed" else rule.get("action", "block")
            told.append((rule["id"], action, code, fired))
            if seen is not None:
                full = seen.pop("full", {})
                if fired and code == "budget-exceeded":
                    exhausted |= {(rule["id"], name): cells for name, cells in full.items()}
                rules[rule["id"]] = seen
                if seen.pop("alike"):
                    alike.add(rule["id"])
        self._shorten(list(rules.values()), min(9, 200 - len(self.rules)))
        fired_ones = [one for one in told if one[3]]
        strict = ["block", "approve", "flag"]
        fired_ones.sort(key=lambda one: (strict.index(one[1]), one[2] == "budget-exceeded"))
        outcome = fired_ones[0][1] if fired_ones else "allow"
        fired_told = [[rule, code] for rule, _, code, _ in fired_ones]
        return Found(outcome, fired_told, rules, alike, exhausted)

    @staticmethod
    def _shorten(seen: list[dict[str, Any]], most: int) -> None:
        """Nine accounts are listed beside in a decision, in the order of the rules; fewer where
        with the rules they are more than two hundred.
        """
        listed = 9 - most
        for one in seen:
            beside = one.pop("beside", [])
            kept = beside[: 9 - listed]
            listed += len(kept)
            if kept:
                one["beside"] = kept
            if len(beside) > len(kept):
                one["more"] = len(beside) - len(kept)

    def _built_in(self, asked: Envelope) -> Iterator[tuple[str, str, str, bool]]:
        for mechanism in stated(asked.command):
            once = {"sensitivity_per": None} if hasattr(mechanism, "sensitivity_per") else {}
            priced = price(mechanism.model_copy(update=once), self.relation)
            for objection in priced.objections:
                yield f"built-in:{objection.code}", "block", objection.code, True
            if priced.verdict is Verdict.UNVERIFIABLE:
                yield "built-in:unverifiable-claim", "flag", "unverifiable-claim", True
        guards = [
            rule
            for rule in self.rules
            if "limit" in rule and rule.get("action", "block") == "block"
            if not divides(rule) and not {"unit", "subjects"} & {*rule}
        ]
        if not all(any(self._covers(rule, one) for rule in guards) for one in asked.datasets):
            code = "no-limit" if self.rules else "no-policy"
            yield f"built-in:{code}", "block", code, True

    def _word(  # noqa: C901, PLR0911 (a kind each)
        self, rule: dict[str, Any], asked: Envelope, now: int
    ) -> tuple[bool, str, dict[str, Any] | None] | None:
        """Whether a rule fires, its code, and what it has seen; None if it does not apply."""
        command = asked.command
        if "trusted" in rule:  # it is about what is given back
            return None
        if "of" in rule:
            return self._threshold(rule, asked, now)
        named = "part_of" in rule and command.get("allotment") == rule["id"]
        if named and (closed := self._shut(rule, asked, now)):
            return True, "allotment-closed", {"closed": closed, "alike": True}
        if not self._about(rule, asked):
            return None
        if "limit" in rule:
            capacity = self._epoch(rule).capacity
            asks = "unlock" in rule and command["type"] != "record_invocations"
            kept = [one for one in self.rules if one.get("part_of") == rule["id"]]
            kept = [one for one in kept if standing(one, now)]
            fits, seen = self._compared(rule, capacity, asked, now, kept, locks=asks)
            if not fits and (larger := self._larger(rule, asked)) is not None:
                capacity = larger
                fits, seen = self._compared(rule, capacity, asked, now)
                if fits:
                    return True, "limit-relaxed", seen
            if not fits:
                seen["capacity"] = [str(most) for _, most in compared(capacity)]
            return not fits, "budget-exceeded", seen
        if "at_most" in rule:
            sides = [(Currency.EPSILON, "epsilon"), (Currency.DELTA, "delta")]
            over = [
                units is None or units > Fraction(str(rule["at_most"][name])) * currency.per_one
                for currency, name in sides
                if rule["at_most"].get(name) is not None
                for units in [asked.total.units(currency)]
            ]
            return any(over), "request-too-costly", None
        if "mechanisms" in rule:
            bodies = [each.model_dump(mode="json") for each in stated(command)]
            kinds = set(kinds_of(bodies))
            return bool(kinds & set(rule["mechanisms"])), "mechanism-denied", None
        if "require" in rule:
            missing = [name for name in rule["require"] if command.get(name) is None]
            return bool(missing), "reason-required", None
        if "purposes" in rule:
            return command.get("purpose") not in rule["purposes"], "purpose-denied", None
        raise AssertionError(f"the oracle does not know {rule}: say here what it means")

    def _larger(self, rule: dict[str, Any], asked: Envelope) -> Capacity | None:
        """The most that a cell may hold by the contexts that a request is in; None if in none. What
        is more than the usual delta is more for mechanisms' own.
        """
        purpose, mine = asked.command.get("purpose"), []
        for one in rule.get("relaxed", ()):
            by, why = one["when"].get("clients", ["*"]), one["when"].get("purposes", [purpose])
            if any(fnmatchcase(asked.by, each) for each in by) and purpose in why:
                mine.append(one)
        if not mine:
            return None
        usual, limit = rule["limit"], self._epoch(rule).limit
        most = {
            name: max(Fraction(one.get(name, usual.get(name, "0"))) for one in mine)
            for name in ("epsilon", "delta")
        }
        more = most["delta"] - Fraction(usual.get("delta", "0"))
        own = {"delta": limit.delta + more, "own_delta": limit.own_delta + more}
        raised = replace(limit, epsilon=most["epsilon"], chosen=limit.chosen_for, **own)
        return self._epoch(rule).gate.capacity(raised)

    def _threshold(
        self, rule: dict[str, Any], asked: Envelope, now: int
    ) -> tuple[bool, str, dict[str, Any]] | None:
        [of] = [limit for limit in self.rules if limit["id"] == rule["of"]]
        if not self._about(of, asked):
            return None
        epoch, share = self._epoch(of), Fraction(rule["at"].removesuffix("%")) / 100
        capacity = epoch.gate.capacity(epoch.limit, share)
        fits, seen = self._compared(of, capacity, asked, now)
        seen.pop("beside", None)
        seen.pop("full")
        return not fits, "threshold-passed", seen

    def _shut(self, rule: dict[str, Any], asked: Envelope, now: int) -> str | None:
        """Why a request may not draw from the allotment that it names; None if it may."""
        if not standing(rule, now):
            return "until"
        if not any(fnmatchcase(asked.by, one) for one in rule.get("clients", ["*"])):
            return "clients"
        if "purposes" in rule and asked.command.get("purpose") not in rule["purposes"]:
            return "purposes"
        return None if self._about(rule, asked) else "datasets"

    def _about(self, rule: dict[str, Any], asked: Envelope) -> list[str]:
        """The datasets of a request that a rule is about; none if it is about others."""
        if "part_of" in rule and asked.command.get("allotment") != rule["id"]:
            return []
        if not any(fnmatchcase(asked.by, one) for one in rule.get("clients", ["*"])):
            return []
        if "limit" in rule and not self._meets(rule, asked):
            return []
        by_purpose = "purposes" in rule and {"limit", "at_most", "mechanisms", "require"} & {*rule}
        if by_purpose and asked.command.get("purpose") not in rule["purposes"]:
            return []
        return [one for one in asked.datasets if self._covers(rule, one)]

    def _meets(self, rule: dict[str, Any], asked: Envelope) -> set[Cell]:
        """The cells of a request that a limit is about."""
        cells = set(self.cells if asked.cells is None else asked.cells)
        return cells & set(self.selected(rule.get("subjects")) or self.cells)

    def _whose(self, rule: dict[str, Any], asked: Envelope) -> tuple[str, str, str]:
        """The client, the unit and the purpose of a limit's account that a request counts in. A
        purpose that no rule lists is as good as none.
        """
        purpose = asked.command.get("purpose")
        listed = any(
            purpose in each.get("purposes", ())
            or any(purpose in one["when"].get("purposes", ()) for one in each.get("relaxed", ()))
            for each in self.rules
        )
        per, unit = rule.get("per"), rule.get("unit", "")
        return (
            asked.by if per == "client" else "",
            unit,
            str(purpose) if per == "purpose" and listed else "",
        )

    @staticmethod
    def _names(rule: dict[str, Any], dataset: str) -> bool:
        globs = rule.get("datasets", "*")
        return any(fnmatchcase(dataset, one) for one in ([globs] if globs == str(globs) else globs))

    def _covers(self, rule: dict[str, Any], dataset: str) -> bool:
        owner, labels = self.what[dataset]
        if "owners" in rule and not any(fnmatchcase(owner or "", one) for one in rule["owners"]):
            return False
        wanted = rule.get("labels", {})
        return self._names(rule, dataset) and all(labels.get(k) in wanted[k] for k in wanted)

    def _epoch(self, rule: dict[str, Any]) -> Epoch:
        assert self.adopted is not None
        return self.adopted.epochs[rule["id"]]

    def _compared(
        self,
        rule: dict[str, Any],
        capacity: Capacity,
        asked: Envelope,
        now: int,
        kept: Sequence[dict[str, Any]] = (),
        *,
        locks: bool = False,
    ) -> tuple[bool, dict[str, Any]]:
        """Whether a charge fits in every account, beside what allotments have ``kept``, and what is
        quoted of the fullest one.
        """
        keys = self._places(rule, asked)
        each = [
            (key, *self._in_account(rule, key, capacity, asked, now, kept, locks=locks))
            for key in keys
        ]
        wrong = [one for one in each if not one[1]]
        order = {key: seen.pop("order") for key, _, seen in each}
        full = {place[2]: seen.pop("full") for place, _, seen in each}
        full = {place[2]: full[place[2]] for place, fit, _ in each if not fit}
        key, fits, seen = max(wrong or each, key=lambda one: order[one[0]])  # the first of equals
        if len(each) == 1:
            return fits, seen | {"full": full}
        others = [one for one in wrong if one[0] != key]
        others.sort(key=lambda one: order[one[0]], reverse=True)
        beside = [{**seen, "dataset": other[2]} for other, _, seen in others]
        seen = seen | {"dataset": key[2], "full": full}
        return fits, seen | ({"beside": beside} if beside else {})

    def _kept(self, rule: dict[str, Any], key: Key, asked: Envelope, cell: Cell) -> dict[str, int]:
        """What an allotment still keeps of the limit's account ``key`` in a cell, from a request:
        nothing from one that draws from it.
        """
        if key[2] != "*" and not self._covers(rule, key[2]):
            return {}
        if key[2] in [mine[2] for mine in self._places(rule, asked)]:
            return {}
        place = (rule["id"], self._epoch(rule).number, *key[2:])
        drawn = self.accounts[place].at(cell, 0) if place in self.accounts else {}
        most = {"epsilon": (Currency.EPSILON, 10**9), "delta": (Currency.DELTA, 10**15)}
        left = {}
        for name, (currency, one) in most.items():
            finite, infinite = drawn.get(currency, (0, 0))
            amount = int(Fraction(rule["limit"].get(name, "0")) * one)
            left[name] = 0 if infinite else max(0, amount - finite)
        return left

    def _in_account(
        self,
        rule: dict[str, Any],
        key: Key,
        capacity: Capacity,
        asked: Envelope,
        now: int,
        kept: Sequence[dict[str, Any]],
        *,
        locks: bool,
    ) -> tuple[bool, dict[str, Any]]:
        """Whether a charge fits on every selected cell, and the sums at the cell that is quoted."""
        epoch = self._epoch(rule)
        account = self.accounts.get(key, Account(epoch.axis))
        charge = sums_of(asked.costs[key[4]], account.axis)
        mine = self._meets(rule, asked) if "subjects" in rule else asked.cells
        cells = sorted(self._where(key, mine) or self.cells)
        only = {cell: account.at(cell, now) for cell in cells}
        locked = {
            cell: self._locked(rule, key, capacity, cell, now) if locks else {} for cell in cells
        }
        beside = {
            cell: {
                currency: sum(self._kept(one, key, asked, cell).get(currency, 0) for one in kept)
                for currency in SURE
            }
            for cell in cells
        }
        used = {
            cell: {
                c: (f + beside[cell].get(c, 0) + locked[cell].get(c, 0), i)
                for c, (f, i) in only[cell].items()
            }
            for cell in cells
        }

        def stays(sums: Sums, currency: Currency, most: int) -> bool:
            finite, infinite = added(sums, charge)[currency]
            return infinite == 0 and finite <= most

        def fits(sums: Sums) -> bool:
            basic = stays(sums, Currency.EPSILON, capacity.epsilon)
            for currency, most in zip(capacity.currencies, capacity.along, strict=True):
                basic = basic or stays(sums, currency, most)
            return basic and stays(sums, Currency.DELTA, capacity.own_delta)

        def rank(sums: Sums) -> tuple[int, ...]:
            of = [sums[currency] for currency in (Currency.EPSILON, *capacity.currencies)]
            bounded = [None if infinite else finite for finite, infinite in of]
            shown = [LARGEST + i if i else f for f, i in of]
            spent = epoch.gate.spent(epoch.limit, bounded[0], bounded[1:])
            return shown[0] if spent is None else spent, *shown

        full = {cell: sums for cell, sums in used.items() if not fits(sums)}
        among = full or used
        cell = max(among, key=lambda cell: rank(among[cell]))  # the first of equals
        bounded = [None if i else f for f, i in (used[cell][c] for c, _ in compared(capacity))]
        quoted = [only[cell][currency] for currency, _ in compared(capacity)]
        shown = list(map(str, beside[cell].values()))
        spent = epoch.gate.spent(epoch.limit, bounded[0], bounded[2:])
        apart = [locked[cell].get(currency, 0) for currency, _ in compared(capacity)]
        return not full, {
            "full": (frozenset(full), frozenset(used)),
            "order": [(one is None, one or 0) for one in (spent, bounded[0], *bounded[2:])],
            "used": ["infinite" if infinite else str(finite) for finite, infinite in quoted],
            "cell": list(cell),
            **({"locked": list(map(str, apart))} if any(apart) else {}),
            "alike": len({str(sums) for sums in used.values()}) == 1,
        } | ({"kept": shown} if any(beside[cell].values()) else {})

    def _locked(
        self, rule: dict[str, Any], key: Key, capacity: Capacity, cell: Cell, now: int
    ) -> dict[Currency, int]:
        """What of a limit is still locked on a cell, when the request is there."""
        every = rule.get("refresh")
        if "per_request" in rule["unlock"]:
            place = (key[0], 0, *key[2:])
            many = 1 + sum(
                1
                for account, cells, at in self.arrived
                if account == place and cell in cells
                if every is None or period(every, at) == period(every, now)
            )
            share = min(Fraction(1), many * Fraction(rule["unlock"]["per_request"]))
        else:
            values = zip(self.dimensions, cell, strict=True)
            first = max((self.born.get(value, 0) for value in values), default=0)
            first = max(first, self.begun[rule["id"]], begins(every, now) if every else 0)
            found = re.fullmatch(r"(\d+)([hd])", rule["unlock"]["over"])
            assert found is not None
            length = int(found[1]) * {"h": 3_600, "d": 86_400}[found[2]] * SECOND
            share = min(Fraction(1), Fraction(max(0, now - first), length))
        return {
            currency: most - int(most * share) if most > 0 else 0
            for currency, most in compared(capacity)
        }

    def _arrive(self, asked: Envelope, now: int) -> None:
        """A request is there: it unlocks its part, whatever becomes of it."""
        for rule in self.rules:
            if "per_request" in rule.get("unlock", {}):
                cells = frozenset(self.cells) if asked.cells is None else asked.cells
                for name, _, *place in self._places(rule, asked):
                    self.arrived.append(((name, 0, *place), cells, now))

    # -- booking -----------------------------------------------------------------------------

    def _places(self, rule: dict[str, Any], asked: Envelope) -> list[Key]:
        """The accounts of a limit that a charge counts in: a total over datasets is one."""
        counted, number = self._about(without(rule, "subjects"), asked), self._epoch(rule).number
        names = ["*"] * bool(counted) if "across" in rule else counted
        return [(rule["id"], number, name, *self._whose(rule, asked)) for name in names]

    def _outside(self, rule: dict[str, Any], asked: Envelope) -> list[Key]:
        """The accounts that keep a charge for a limit while its datasets are out of scope."""
        within = self._about(without(rule, "subjects"), asked)
        ever = self._about(without(rule, "owners", "labels", "subjects"), asked)
        names = [one for one in ever if one not in within]
        kept = [] if "across" in rule and within else names
        number = self._epoch(rule).number
        return [(rule["id"], number, name, *self._whose(rule, asked)) for name in kept]

    def _keys(self, asked: Envelope) -> Iterator[tuple[Key, Axis, int | str | None]]:
        """The accounts that a charge counts in."""
        for rule in self.rules:
            if "limit" not in rule:
                continue
            for key in self._places(rule, asked) + self._outside(rule, asked):
                yield key, self._epoch(rule).axis, span(rule)
        for unit, dataset in product(self.units, (*asked.datasets, "*")):
            yield ("", 0, dataset, "", unit, ""), SURE, None

    def book(self, asked: Envelope, grant: str | None, now: int) -> list[Key]:
        """Books the costs of a request in all its accounts; they are returned."""
        keys = []
        for key, axis, lasting in self._keys(asked):
            account = self.accounts.setdefault(key, Account(axis, lasting))
            sums = sums_of(asked.costs[key[4]], axis)
            account.entries.append(Entry(self._where(key, asked.cells), sums, grant, now))
            keys.append(key)
        return keys

    def settle(self, name: str, final: Costs | None, now: int, *, may_run: bool = False) -> None:
        """A grant ends; ``final`` (None: nothing) is spent from now on. Or nobody said that it has
        ended, and it may still run.
        """
        grant = self.grants.pop(name)
        for key in grant.accounts:
            account = self.accounts[key]
            for entry in [e for e in account.entries if e.grant == name]:
                entry.grant, entry.since, entry.lasting = None, now, may_run
                if final is None:
                    account.entries.remove(entry)
                else:
                    entry.sums = sums_of(final[key[4]], account.axis)

    # -- events ------------------------------------------------------------------------------

    def see(self, event: Event, adopted: Adopted | None) -> Found | None:  # noqa: C901 (a type each)
        """Takes the next event. ``adopted`` is the policy in force after it. What a request comes
        to is returned, and what has to be spent at an end is compared.
        """
        body, command, kind = event.body, event.body["command"], event.type.rpartition(".v")[0]
        if kind == "grant.admitted":
            return self._approved(event)
        if kind in ("grant.reserved", "grant.refused", "grant.waiting", "invocation.recorded"):
            return self._request(event.by, command, f"g{event.sequence}", event.time)
        if kind == "batch.part":
            self.parts.append((command["first"], body["items"]))
            return None
        if kind == "batch.refused":
            runs = sorted([*self.parts, (body.get("first", 0), body["items"])])
            self.parts = []
            items = [item for _, run in runs for item in run]
            judged = items[: body.get("first", 0) + body["item"] + 1]
            twin = deepcopy(self)
            for at, item in enumerate(judged[:-1]):
                twin._item(event.by, item, f"item-{at}", event.time)
            for item in [item for item in judged if item["type"] == "ask_grant"]:
                self._arrive(self.asked(event.by, item), event.time)
            return twin._request(event.by, judged[-1], "refused", event.time)
        if kind in ("grant.committed", "grant.expired", "grant.released", "sparse_vector.closed"):
            final = self._final(command)
            if final is not None:
                assert body["charge"] == final[""].to_json()
                apart = {unit: one for unit, one in final.items() if one != final[""]}
                assert body.get("per", {}) == {unit: one.to_json() for unit, one in apart.items()}
            self.settle(command["grant"], final, event.time, may_run=kind == "grant.expired")
        elif kind == "sparse_vector.answered":
            self.grants[command["grant"]].positives = body["positives"]
        elif kind == "ledger.recovered":
            for name, grant in list(self.grants.items()):
                self.settle(name, grant.asked.costs, event.time, may_run=True)
        elif kind == "population.registered":
            self.private = command["membership"] == "private"
            self.dimensions = {k: list(v) for k, v in sorted(command["dimensions"].items())}
            self.relation = Relation(command["neighbouring"])
            self.units |= dict(sorted(command.get("units", {}).items()))
        elif kind == "population.extended":
            for name, unit in sorted(command.get("units", {}).items()):
                self._late(name, unit, event.time)
            for dimension, values in body["added"].items():
                inherit = not command.get("attested_new", False)
                self._extend(dimension, values, event.time, inherit=inherit)
        elif kind == "dataset.registered":
            charges = self._describe(command, event.time)
            assert event.type == f"dataset.registered.v{2 if charges else 1}"
        elif kind == "policy.adopted":
            assert adopted is not None
            self._adopt(body, adopted, event.time)
        else:
            quiet = ("batch.opened", "grant.noted", "text.erased", "change.proposed")
            assert kind in quiet, kind
        return None

    def _request(self, by: str, command: dict[str, Any], name: str, now: int) -> Found:
        asked = self.asked(by, command)
        found = self.judge(asked, now)
        if command["type"] == "record_invocations":
            self.book(asked, None, now)
            return found
        self._arrive(asked, now)
        if found.outcome not in ("block", "approve"):
            self.grants[name] = Grant(asked, self.book(asked, name, now))
        return found

    def _approved(self, event: Event) -> Found:
        """A request that a person approves: it arrived before."""
        asked = self.asked(event.body["command"]["client"], event.body["command"]["request"])
        found = self.judge(asked, event.time)
        assert found.outcome == "approve"
        name = f"g{event.sequence}"
        self.grants[name] = Grant(asked, self.book(asked, name, event.time))
        return found

    def _item(self, by: str, command: dict[str, Any], name: str, now: int) -> None:
        """An item of a batch before the one that was refused."""
        if command["type"] == "ask_grant":
            assert self._request(by, command, name, now).outcome != "block"
        elif command["grant"] in self.grants:  # a late one is only noted
            self.settle(command["grant"], self._final(command), now)

    def _final(self, command: dict[str, Any]) -> Costs | None:
        """What is spent in the end; None for nothing."""
        grant = self.grants[command["grant"]]
        costs = grant.asked.costs
        if command["type"] == "release_grant":
            return None
        if command["type"] == "close_sparse_vector":
            return {unit: self._closed(grant, unit) for unit in costs}
        if command["type"] == "commit_grant" and command.get("mechanisms"):
            return self.costs(stated(command), costs[""].orders)
        return costs

    def _closed(self, grant: Grant, unit: str) -> Charge:
        [asked] = stated(grant.asked.command)
        mechanism, relation = self._as_for(asked, unit)
        whole, part = (
            charge_of(mechanism.loss_after(n, relation), 1).units(Currency.EPSILON)
            for n in (mechanism.max_positives, grant.positives)
        )
        assert whole is not None
        assert part is not None
        total = grant.asked.costs[unit]
        finite = list(total.finite)
        finite[total.axis.index(Currency.EPSILON)] -= whole - part
        return Charge(total.axis, tuple(finite), total.infinite)

    def _late(self, name: str, unit: dict[str, Any], now: int) -> None:
        """A unit is stated after first units were charged: one of it is some steps away from its
        neighbours, and each step costs what a first unit may have lost: in its cell, or, as the
        members of a group may be in several, in the worst one.
        """
        if name in self.units:
            return
        self.units[name] = unit
        group, two = "group_of" in unit, self.relation is not Relation.REPLACE_ONE
        steps = unit["at_most"] if group else 1 + two
        for key, account in list(self.accounts.items()):
            if key[0] or key[4]:
                continue
            after = self.accounts[("", 0, key[2], "", name, "")] = Account(SURE)
            if not group:
                after.entries = [
                    Entry(one.cells, one.sums, None, now, one.lasting)
                    for one in account.entries
                    for _ in range(steps)
                ]
                continue
            each = [account.at(cell, now) for cell in self.cells]
            worst = {
                c: tuple(max(sums[c][i] for sums in each) * steps for i in (0, 1)) for c in SURE
            }
            after.entries = [Entry(None, worst, None, now, True)]  # type: ignore[arg-type]

    def _extend(self, dimension: str, values: list[str], now: int, *, inherit: bool) -> None:
        """New cells take over the most that the cells beside them have used; or, if their members
        were in no data, only what may still run on these. What an open grant holds there, of a
        group that does not name the dimension, it may still give back.
        """
        at, before = list(self.dimensions).index(dimension), self.cells
        exchanged = self.private and self.relation is Relation.REPLACE_ONE
        over = [] if inherit or exchanged else [a.entries for a in self.accounts.values()]
        for entry in (entry for entries in over for entry in entries):
            if entry.cells is None and entry.grant is None and not entry.lasting:
                entry.cells = frozenset(before)
        known = len(self.dimensions[dimension])
        self.born |= {(dimension, known + more): now for more in range(len(values))}
        self.dimensions[dimension] += values
        new = [cell for cell in self.cells if cell not in set(before)]
        were = {key: {c: a.at(c, now) for c in before} for key, a in self.accounts.items()}
        for name, grant in self.grants.items():
            self._widen(name, grant, frozenset(new), now, inherit=inherit)
        if not inherit:
            return
        for key, account in self.accounts.items():
            for cell in new:
                beside = [
                    sums
                    for c, sums in were[key].items()
                    if (*c[:at], *c[at + 1 :]) == (*cell[:at], *cell[at + 1 :])
                ]
                there = account.at(cell, now)
                more = {
                    currency: (
                        max(sums[currency][0] for sums in beside) - there[currency][0],
                        max(sums[currency][1] for sums in beside) - there[currency][1],
                    )
                    for currency in account.axis
                }
                account.entries.append(Entry(frozenset({cell}), more, None, now))

    def _widen(
        self, name: str, grant: Grant, new: frozenset[Cell], now: int, *, inherit: bool
    ) -> None:
        if grant.asked.cells is None:
            return
        reached = (self.selected(grant.asked.command.get("subjects")) or frozenset()) & new
        for key in grant.accounts:
            for entry in self.accounts[key].entries:
                if entry.grant == name and entry.cells is not None:
                    entry.cells |= reached
        if not inherit and reached:
            only = replace(grant.asked, cells=reached)
            for key, axis, lasting in self._keys(only):
                if key not in grant.accounts and self._where(key, reached) is not None:
                    account = self.accounts.setdefault(key, Account(axis, lasting))
                    sums = sums_of(grant.asked.costs[key[4]], axis)
                    account.entries.append(Entry(reached, sums, None, now))
        grant.asked = replace(grant.asked, cells=grant.asked.cells | reached)

    def _describe(self, command: dict[str, Any], now: int) -> bool:
        """A dataset that comes into the scope of a total brings along what was kept outside.
        Returns whether any is charged with what others have used.
        """
        name, there = command["id"], self.what.get(command["id"])
        before = {one: set(self._behind(one)) for one in self.parents}
        self.parents[name] = command.get("parents", [])
        totals = [rule for rule in self.rules if "across" in rule]
        out = [rule for rule in totals if there is not None and not self._covers(rule, name)]
        moved = False
        labels = command.get("labels", there[1] if there else {})
        self.what[name] = command.get("owner"), labels
        for rule in out if self.rules else ():
            of = (rule["id"], self._epoch(rule).number, name)
            for key in [key for key in self.accounts if key[:3] == of and self._covers(rule, name)]:
                account = self.accounts[key]
                self.accounts[key] = Account(account.axis, account.span)
                for grant in self.grants.values():
                    grant.accounts = [one for one in grant.accounts if one != key]
                place = (*key[:2], "*", *key[3:])
                total = self.accounts.setdefault(place, Account(account.axis, account.span))
                moved |= self._into_total(account, place, total, now)
        return self._come_late(before, now) or moved

    def _into_total(self, account: Account, place: Key, total: Account, now: int) -> bool:
        """Everything that counts outside of a total counts in it as spent. But of a total over a
        span open grants go on holding it there: what they run is spent later. Returns whether any.
        """
        moved = False
        had = {name for name, grant in self.grants.items() if place in grant.accounts}
        for one in account.counting(now):
            stays = total.span is not None and one.grant is not None
            moved |= stays
            if one.grant is not None and stays and one.grant not in had:
                total.entries.append(replace(one))
                if place not in self.grants[one.grant].accounts:
                    self.grants[one.grant].accounts.append(place)
            else:
                total.entries.append(Entry(one.cells, one.sums, None, now, one.cells is None))
        return moved

    def _come_late(self, before: dict[str, set[str]], now: int) -> bool:
        """What turns out to be behind data that were used has been used with them: each charge on
        them counts on it, too. Of data behind each other those behind have the charges already.
        Returns whether there are any.
        """
        found = False
        for late in sorted(self.parents):
            used = {d for d in before if ("", 0, d, "", "", "") in self.accounts}
            mine = {d for d in used if late in self._behind(d) and late not in before[d]} - {late}
            for one in sorted(d for d in mine if not (before[d] - {d}) & mine):
                self._count_there(one, late, now)
                for grant in self.grants.values():
                    if one in grant.asked.datasets:
                        both = {*grant.asked.datasets, late}
                        grant.asked = replace(grant.asked, datasets=tuple(sorted(both)))
            tops = [d for d in sorted(mine) if not (before[d] - {d}) & mine]
            found |= bool(tops)
            for rule in self.rules:
                if "limit" in rule and not divides(rule) and self._names(rule, late):
                    self._count_sums([d for d in tops if not self._names(rule, d)], late, rule, now)
        return found

    def _count_there(self, one: str, late: str, now: int) -> None:
        """Every entry of an account of ``one`` counts in that of ``late``."""
        epochs = {(rule["id"], self._epoch(rule).number): rule for rule in self._limits()}
        for key, account in list(self.accounts.items()):
            rule = epochs.get(key[:2])
            if key[2] != one or (key[0] and not (rule and self._names(rule, late))):
                continue
            total = rule and "across" in rule and self._covers(rule, late)
            into = (*key[:2], "*" if total else late, *key[3:])
            there = self.accounts.setdefault(into, Account(account.axis, account.span))
            held = {name for name, grant in self.grants.items() if into in grant.accounts}
            for entry in list(account.counting(now)):
                new = replace(entry, sums=dict(entry.sums))
                if entry.grant is None or entry.grant in held:
                    new.grant, new.since = None, now
                    stays = entry.lasting or entry.grant is not None or account.span is not None
                    new.lasting = entry.cells is None and stays
                elif into not in self.grants[entry.grant].accounts:
                    self.grants[entry.grant].accounts.append(into)
                there.entries.append(new)

    def _count_sums(self, tops: list[str], late: str, rule: dict[str, Any], now: int) -> None:
        """A limit that has not counted ``tops`` counts what they were used for as sure sums."""
        unit, epoch = rule.get("unit", ""), self._epoch(rule)
        lives = [("", 0, one, "", unit, "") for one in tops]
        sources = [self.accounts[key] for key in lives if key in self.accounts]
        if not sources:
            return
        place = "*" if "across" in rule and self._covers(rule, late) else late
        into = (rule["id"], epoch.number, place, "", unit, "")
        there = self.accounts.setdefault(into, Account(epoch.axis, span(rule)))
        brought = self._as_sums(epoch, sources, now)
        for entry in brought.entries:
            entry.lasting = entry.cells is None and (entry.lasting or there.span is not None)
        there.entries += brought.entries
        for name, grant in self.grants.items():
            for key in lives if there.span is not None else ():
                costs = grant.asked.costs[unit]
                new = key in grant.accounts and into not in grant.accounts
                if new and {*epoch.axis} <= {*costs.axis}:
                    where = self._where(key, grant.asked.cells)
                    there.entries.append(Entry(where, sums_of(costs, epoch.axis), name, now))
                    grant.accounts.append(into)

    def _limits(self) -> list[dict[str, Any]]:
        return [rule for rule in self.rules if "limit" in rule]

    def _adopt(self, body: dict[str, Any], adopted: Adopted, now: int) -> None:
        before = dict(self.accounts)
        old, self.adopted = self.adopted, adopted
        self.rules = body["command"]["policy"]["rules"]
        for rule in self.rules:
            if "limit" not in rule:
                continue
            name, epoch = rule["id"], adopted.epochs[rule["id"]]
            start = body["epochs"][name]["start"]
            goes_on = name in self.begun and start not in ("empty", "brought")
            self.begun[name] = self.begun[name] if goes_on else now
            if not (goes_on and "per_request" in rule.get("unlock", {})):
                self.arrived = [one for one in self.arrived if one[0][0] != name]
            of_old = old.epochs[name].number if old and name in old.epochs else None
            own = {key: a for key, a in before.items() if key[:2] == (name, of_old)}
            if start == "carried":
                for key, account in own.items():
                    after = (key[0], epoch.number, *key[2:])
                    self.accounts[after] = deepcopy(account)
                    for grant in self.grants.values():
                        if key in grant.accounts:
                            grant.accounts.append(after)
            elif start == "converted":
                self._bring(rule, epoch, own, now)
            elif start == "brought" and not divides(rule):
                lifetimes = {
                    key: account
                    for key, account in before.items()
                    if key[0] == "" and key[2] != "*" and self._names(rule, key[2])
                    if key[4] == rule.get("unit", "")
                }
                self._bring(rule, epoch, lifetimes, now)

    def _bring(
        self, rule: dict[str, Any], epoch: Epoch, sources: dict[Key, Account], now: int
    ) -> None:
        """What was used there counts as a sure sum of epsilons; what everyone has, and what cells
        have beside, are rounded apart.
        """
        places: dict[Key, list[Account]] = {}
        for key, source in sources.items():
            inside = key[2] == "*" or (key[0] == "" and self._covers(rule, key[2]))
            dataset = "*" if "across" in rule and inside else key[2]
            after = (rule["id"], epoch.number, dataset, key[3], rule.get("unit", ""), key[5])
            places.setdefault(after, []).append(source)
        for after, those in places.items():
            account = self.accounts.setdefault(after, Account(epoch.axis, span(rule)))
            account.entries += self._as_sums(epoch, those, now).entries

    def _as_sums(self, epoch: Epoch, sources: Iterable[Account], now: int) -> Account:
        """An account with the sums of epsilons and deltas of all sources, and what stands for these
        in the currencies of an epoch.
        """
        account = Account(epoch.axis)
        for source in sources:
            for cells, entries in self._parts(source):
                for lasting in (True, False):  # an open grant on everyone is not settled here
                    sums: Sums = dict.fromkeys(SURE, (0, 0))
                    for entry in entries:
                        stays = cells is None and (entry.lasting or entry.grant is not None)
                        if stays is lasting:
                            sums = added(sums, entry.sums)
                    whole = dict.fromkeys(epoch.axis, (0, 0)) | sums
                    account.entries.append(Entry(cells, whole, None, now, lasting))
        for currency, factor in epoch.per_epsilon():
            self._restate(account, currency, factor)
        return account

    def _restate(self, account: Account, currency: Currency, factor: Fraction | None) -> None:
        """As it starts, the account has ``factor`` of a currency for each unit of epsilon; without
        a factor no sum of epsilons has a bound there.
        """
        for _, entries in self._parts(account):
            before = (0, 0)
            for lasting in (True, False):  # of everyone, that which lasts is rounded by itself, too
                mine = [e for e in entries if e.lasting is lasting]
                upto = [e for e in entries if e.lasting or not lasting]
                epsilon = sum(entry.sums[Currency.EPSILON][0] for entry in upto)
                infinite = sum(entry.sums[Currency.EPSILON][1] for entry in upto)
                finite = 0 if factor is None else int(-(-epsilon * factor // 1))
                whole = finite, infinite + (factor is None and epsilon > 0)
                for entry in mine:
                    entry.sums[currency] = (0, 0)
                if mine:
                    mine[0].sums[currency] = (whole[0] - before[0], whole[1] - before[1])
                before = whole

    def _parts(self, account: Account) -> Iterator[tuple[frozenset[Cell] | None, list[Entry]]]:
        """What everyone has, then what each cell has beside."""
        yield None, [entry for entry in account.entries if entry.cells is None]
        for cell in self.cells:
            mine = [e for e in account.entries if e.cells is not None and cell in e.cells]
            yield frozenset({cell}), mine


def without(rule: dict[str, Any], *names: str) -> dict[str, Any]:
    """A rule without some of its fields."""
    return {name: of for name, of in rule.items() if name not in names}


def divides(rule: dict[str, Any]) -> bool:
    """Whether a limit counts some charges only."""
    return bool({"per", "clients", "purposes", "part_of"} & {*rule})


def standing(rule: dict[str, Any], now: int) -> bool:
    """Whether an allotment has not ended: its last day, in UTC, is not over."""
    last = datetime.fromisoformat(rule.get("until", "9000-01-01")).replace(tzinfo=UTC)
    return now < (last + timedelta(days=1)).timestamp() * SECOND


def compared(capacity: Capacity) -> list[tuple[Currency, int]]:
    """The currencies that are compared, with the most that each may reach."""
    found = [(Currency.EPSILON, capacity.epsilon), (Currency.DELTA, capacity.own_delta)]
    return [*found, *zip(capacity.currencies, capacity.along, strict=True)]


def stated(command: dict[str, Any]) -> list[Any]:
    """The mechanisms of a command."""
    read: Any = command_from_json(command)
    return [read.mechanism] if hasattr(read, "mechanism") else list(read.mechanisms)


def kinds_of(value: Any) -> Iterator[str]:
    """Every kind named at any depth; a reusable holdout is made of sparse vectors."""
    if isinstance(value, list):
        yield from (kind for each in value for kind in kinds_of(each))
    elif isinstance(value, dict):
        if "kind" in value:
            yield value["kind"]
            yield from ["sparse_vector"] * (value["kind"] == "reusable_holdout")
        yield from kinds_of(list(value.values()))


def period(name: str, stamp: int) -> tuple[int, ...]:
    """Which day, week, month, quarter or year of the calendar in UTC a stamp lies in."""
    moment = datetime.fromtimestamp(stamp // SECOND, UTC)
    year, week, _ = moment.isocalendar()
    return {
        "daily": (moment.year, moment.month, moment.day),
        "weekly": (year, week),
        "monthly": (moment.year, moment.month),
        "quarterly": (moment.year, (moment.month - 1) // 3),
        "yearly": (moment.year,),
    }[name]


def begins(name: str, stamp: int) -> int:
    """The stamp at which the period of the calendar begins that a stamp lies in."""
    day = 86_400 * SECOND
    found = stamp // day * day
    while found >= day and period(name, found - day) == period(name, stamp):
        found -= day
    return found


def span(rule: dict[str, Any]) -> int | str | None:
    """How long what is spent counts under a rule; None for ever."""
    if "refresh" in rule:
        return str(rule["refresh"])
    if "window" not in rule:
        return None
    found = re.fullmatch(r"(\d+)([hd])", rule["window"])
    assert found is not None, "the oracle knows no calendar"
    return int(found[1]) * {"h": 3_600, "d": 86_400}[found[2]]
