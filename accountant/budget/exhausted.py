"""The complete list of the accounts that a refusal found exhausted, as its event holds it.

The findings of limits quote ten accounts with both sides of the comparison. The list has all, and
says of each in which of its cells the charge does not fit. Accounts with the same such cells stand
in one entry, under all rules of which that is so. What is all is left out, so that the list of a
plain refusal is ``[{}]``:

* ``rules``: limits, as positions among the rules that ``fired``. Left out: all limits there.
* ``datasets``: as positions among those that the request is charged to. Left out: all accounts that
  these limits compare.
* ``subjects``: the cells, as terms of a subject group. Left out: all cells that count. What a term
  says of no dimension is meant as far as the request's group goes. A side is one name, a range, or
  positions.
* ``part``: true in place of ``subjects`` where the list has no room for these. The cells are some
  and not all; they follow from the events before.

The cells of a list take at most ``MOST_BYTES``, so that refusals fill no disk. An event that many
rules and datasets leave no room has none; it has at least 8,192 bytes then, as they have names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from accountant.budget.accounts.misfits import Boxed, Misfits, Places, misfits
from accountant.budget.evaluate import Judgement
from accountant.budget.outcome import Body
from accountant.budget.policy import Policy
from accountant.budget.population import packing
from accountant.budget.population.population import Dataset, Population
from accountant.budget.population.positions import read, spell
from accountant.budget.population.selection import Selection
from accountant.budget.request import Request
from accountant.budget.rules.base import Used
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.scope import ALL
from accountant.budget.state import State
from accountant.ledger.events import MAX_BYTES, written
from accountant.privacy.filters import Capacity

FIELD: Final = "exhausted"
MOST_BYTES: Final = 24 * 1_024
"""Bytes of the cells of a list: one set of positions among 10^5 has at most 16,670."""
_HEADER: Final = 2_048
"""Bytes of an event beside its command, its list, and what the rules compared."""

Entry = dict[str, Any]
Cells = bytes | None
"""The terms of some cells, written; empty for all cells, None for cells that are not told."""
Alike = tuple[tuple[Cells, tuple[int, ...]], ...]
"""The exhausted accounts of a rule by their cells, as places of datasets; none if all are."""


def exhausted(state: State, request: Request, judgement: Judgement, size: int) -> Body:
    """Return the field of a refusal that lists its exhausted accounts: nothing if no limit has
    fired, or if an event that has ``size`` bytes without it has no room.
    """
    limits = {rule.id: rule for rule in state.adopted.policy.limits} if state.adopted else {}
    compared = [
        (at, limits[one.rule].compared_with(judgement.view))
        for at, one in enumerate(judgement.fired)
        if limits_by(limits, one.rule, one.code)
    ]
    room = MAX_BYTES - _HEADER - size
    for left in (MOST_BYTES, 0) if compared else ():
        entries = _entries(compared, request, _Speller(state.people(), left))
        if len(written(entries)) <= room:
            return {FIELD: entries}
    return {}


def _entries(
    compared: Sequence[tuple[int, Sequence[tuple[Used, Capacity]]]],
    request: Request,
    speller: _Speller,
) -> list[Entry]:
    """Return the entries for limits at their places among the rules that fired, each with what it
    compared.
    """
    places = {name: at for at, name in enumerate(request.datasets)}
    rules: dict[Alike, list[int]] = {}
    for at, each in compared:
        rules.setdefault(_of_rule(each, places, speller), []).append(at)
    entries = []
    for alike, of in rules.items():
        for cells, datasets in alike:
            entry: Entry = {} if len(rules) == 1 else {"rules": _positions(of)}
            if datasets:
                entry["datasets"] = _positions(datasets)
            if cells is None:
                entry["part"] = True
            elif cells:
                entry["subjects"] = orjson.loads(cells)
            entries.append(entry)
    return entries


def _of_rule(
    compared: Sequence[tuple[Used, Capacity]], places: Mapping[str, int], speller: _Speller
) -> Alike:
    found: dict[Cells, list[int]] = {}
    for one, capacity in compared:
        charge, reading = one.charge, one.whole
        if not reading.fits(charge, capacity):
            which = misfits(reading, charge, capacity, boxes=speller.left > 0)
            place = places.get(one.dataset, 0)  # a total over datasets is the only account
            found.setdefault(speller.spelled(which, reading.selection), []).append(place)
    if [len(each) for each in found.values()] == [len(compared)]:
        return ((next(iter(found)), ()),)
    return tuple((cells, tuple(each)) for cells, each in found.items())


class _Speller:
    """Writes cells as terms, as long as bytes are ``left``; what was written once is free."""

    def __init__(self, people: Population, left: int) -> None:
        self._people, self.left = people, left
        self._known = set[bytes]()

    def spelled(self, found: Misfits, among: Selection) -> Cells:
        """Return the terms of cells that were found among others."""
        if found.everywhere:
            return b""
        if found.boxes is None:
            return None
        sides = [len(values) for _, values in self._people.dimensions]
        if len(among.boxes) == 1:
            sides = [len(side) for side in among.boxes[0]]
        terms = written([self._term(box, sides) for box in found.boxes])
        if terms not in self._known:
            if len(terms) > self.left:
                return None
            self.left -= len(terms)
            self._known.add(terms)
        return terms

    def _term(self, box: Boxed, whole: Sequence[int]) -> dict[str, Any]:
        """Return a box without the dimensions of which it has as many values as there are."""
        named = zip(self._people.dimensions, box, whole, strict=True)
        return {
            name: _side(values, positions)
            for (name, values), positions, most in named
            if len(positions) < most
        }


def _side(names: Sequence[str], positions: Places) -> Any:
    first, last = int(positions[0]), int(positions[-1])
    if first == last:
        return [names[first]]
    if last - first + 1 == len(positions):
        return {"from": names[first], "to": names[last]}
    return spell(positions)


def _positions(places: Sequence[int]) -> dict[str, str]:
    return spell(np.array(places, dtype=np.int64))


class Exhausted(NamedTuple):
    """Accounts of one limit with the same exhausted cells."""

    rule: str
    datasets: tuple[str, ...]
    """The datasets of the accounts; "*" for a total over datasets."""
    terms: list[dict[str, Any]] | None
    """The cells, as an event spells a subject group within the request's; None for all that count.
    """
    part: bool
    """The cells are some and not all, and are not told."""
    people: Population

    @property
    def subjects(self) -> list[dict[str, Any]] | None:
        """The cells with names in place of positions."""
        if self.terms is None:
            return None
        found: list[dict[str, Any]]
        found = packing.in_names(self.people, {"subjects": self.terms})["subjects"]
        return found

    @property
    def size(self) -> int:
        """How many values ``subjects`` names."""
        sides = [side for term in self.terms or () for side in term.values()]
        return sum(
            1 if isinstance(side, list) or "from" in side else read(side).size for side in sides
        )

    def to_json(self) -> dict[str, Any]:
        """As a decision shows it."""
        found: dict[str, Any] = {"rule": self.rule, "datasets": list(self.datasets)}
        if (subjects := self.subjects) is not None:
            found["subjects"] = subjects
        return found | ({"part": True} if self.part else {})


def told(
    body: Body, policy: Policy, people: Population, datasets: Sequence[Dataset]
) -> Iterator[Exhausted]:
    """Yield the list of an event's ``body``, limit by limit, with names: judged by ``policy``, on
    ``datasets`` as they were then. None of an event that has no list.
    """
    limits = {rule.id: rule for rule in policy.limits}
    fired = [rule for rule, code in body.get("fired", ()) if limits_by(limits, rule, code)]
    for entry in body.get(FIELD, ()):
        of = [body["fired"][at][0] for at in read(entry["rules"])] if "rules" in entry else fired
        for rule in of:
            if limits[rule].across:
                names = [ALL]
            elif "datasets" in entry:
                names = [datasets[at].id for at in read(entry["datasets"])]
            else:
                names = [one.id for one in datasets if limits[rule].scope.holds(one)]
            cells = entry.get("subjects")
            yield Exhausted(rule, tuple(names), cells, "part" in entry, people)


def limits_by(limits: Mapping[str, LimitRule], rule: str, code: str) -> bool:
    """Return whether a rule that fired with ``code`` is a limit on which a charge does not fit."""
    return rule in limits and code == limits[rule].code
