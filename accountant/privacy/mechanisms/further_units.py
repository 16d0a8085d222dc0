"""What a mechanism costs a further unit of privacy: a part of the first unit, or a group of them.

A population protects one unit, say a person. It may promise something to a *part* of it beside, as
to a person-day (what one person did on one day), or to a *group*, as to a household. Neighbours for
a further unit differ in one of these, in the same manner as the population's neighbours do in one
person: it is there or not (add_or_remove_one), its contents are others (replace_one; it stays a
part of the same person), or it is empty (zero_out).

**Where the mechanism states its sensitivity for the unit** (``sensitivity_per``), the price is that
of the mechanism with this sensitivity: the derivations of the catalogue hold for any relation of
neighbours for which the sensitivity does. Not on a sample: a sample of persons hides whether a
person is in it, and two data sets that differ in a person-day differ, given that the person is in
the sample, from both the data without the person. No theorem on add-or-remove then applies, so that
``sensitivity_per`` beside ``sampling`` is refused.

**A part, without a statement.** Let D and D' be neighbours for the part: a person p has the records
r in D and r' in D', and nothing else differs.

* replace_one: D and D' are neighbours for the person, whose records r are replaced by r'. The
  part's loss is at most the person's, in every currency.
* add_or_remove_one: here they are *not* neighbours for the person, unless r or r' is empty. The
  person's neighbour of both is D without p. From D to D' it is one step to remove (p, r), and one
  to add (p, r'): the loss for two steps (``Loss.replaced``), in epsilon twice the person's. That is
  tight: a sum of values from -1 to 1, one for each person, has sensitivity 1 for persons, and a
  person whose last day turns +1 into -1 moves it by 2.
* zero_out: the same by way of p's empty unit.

**A group of at most k, without a statement.** D and D' differ in the records of at most k persons:
k steps, all in the same direction (``Loss.group``, which names the theorems: k epsilon; delta times
1 + e^epsilon + ... + e^((k-1) epsilon); k^2 rho; k mu; Renyi curves where the curve of the group is
known, else no bound). Under replace_one each of the k steps is one replacement. Precondition: a
group has at most k members, whoever they are; where they replace each other, as many before as
after.

**A unit that is stated late.** What ran before can state nothing for it. As a whole it was one
adaptive sequence, which is (E, D)-private for each first unit of a cell, E and D being the sums
that hold along every path (Rogers et al. 2016). A neighbour for the unit is ``steps`` steps away,
each of them one for a first unit: for a part 1 under replace_one and else 2, for a group k, in
whatever cells its members are. So with D = 0 it was steps x E for the unit, E of the cell for a
part, the largest E of a cell for a group. With D > 0 the deltas of several steps grow with e^E,
which no sum of units holds: then a unit of several steps is refused.

**What follows for statements.** By the triangle inequality the true sensitivity for a part is at
most ``steps`` (1 under replace_one, else 2) times that for the whole. A larger one that is stated
contradicts that: one of both is wrong, and the mechanism is refused. The true sensitivity for a
whole of at most k parts is at most k times that for a part, under replace_one 2 k times (each of
its parts is emptied, and others filled), if all that the data hold of the whole is in its parts. A
larger one that is stated is no error: a bound may be loose. It is flagged, for more likely the
smaller is wrong, and it is never charged instead: that would rest on a count of parts that no
pipeline has enforced here.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from accountant.privacy.losses import Loss
from accountant.privacy.mechanisms.base import BaseMechanism, Objection, Relation, Sensitive, norm
from accountant.privacy.mechanisms.compound import Composed

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTRADICT: Final = "sensitivities-contradict"
LOOSE: Final = "sensitivities-apart"
UNKNOWN: Final = "unit-not-named"


class Unit(NamedTuple):
    """A further unit of a population: a part of its first unit, or a group of these."""

    name: str
    group: bool
    """It is a group of first units; else a part of one."""
    at_most: int | None
    """The most first units in a group; of a part, how many of them a first unit has (None: any
    number)."""
    called: str | None = None
    """One of them in words, such as “one person on one day”."""

    @property
    def words(self) -> str:
        """One of them, for a sentence."""
        return self.called or f"one {self.name}"

    @property
    def described(self) -> str:
        """What it is, in words."""
        most = "" if self.at_most is None else f", at most {self.at_most}"
        return ("a group" if self.group else "a part") + most

    def steps(self, population: Relation) -> int:
        """Return how many steps from one neighbour for a first unit to the next it is to one for
        this.
        """
        return (self.at_most or 1) if self.group else 2 if population.present else 1

    def of(self, loss: Loss, population: Relation) -> Loss:
        """Return what follows for one of them from the ``loss`` of one first unit, in the relation
        of the population.
        """
        if self.group:
            return loss.group(self.at_most or 1)
        return loss.replaced() if population.present else loss


Units = tuple[Unit, ...]


def stating(mechanism: BaseMechanism, unit: str) -> BaseMechanism | None:
    """Return ``mechanism`` with its sensitivity for ``unit`` in place of that for the first unit;
    None if it does not state one. A list states one if all its parts do.
    """
    if isinstance(mechanism, Sensitive):
        stated = dict(mechanism.sensitivity_per or ()).get(unit)
        return None if stated is None else _with(mechanism, sensitivity=stated)
    if type(mechanism) is not Composed or mechanism.sampling is not None:
        return None
    parts = [stating(part, unit) for part in mechanism.parts()]
    return None if None in parts else _with(mechanism, mechanisms=tuple(parts))


def _with(mechanism: BaseMechanism, **fields: object) -> BaseMechanism:
    """Return it with other ``fields``, for one whole unit, and without a claim for the first."""
    same = {"claimed": None, "sensitivity_per": None, "group_size": 1}
    known = {name: value for name, value in same.items() if name in type(mechanism).model_fields}
    return mechanism.model_copy(update=known | fields)


def states(mechanism: BaseMechanism) -> bool:
    """Return whether it, or a part of it, states a sensitivity for a further unit."""
    if isinstance(mechanism, Composed):
        return any(map(states, mechanism.parts()))
    return isinstance(mechanism, Sensitive) and mechanism.sensitivity_per is not None


def objections(mechanism: BaseMechanism, stated: Relation, units: Units) -> tuple[Objection, ...]:
    """Return the objections to what ``mechanism``, which is stated under ``stated``, says of
    further units.
    """
    known, found = {unit.name: unit for unit in units}, list[Objection]()
    steps = 2 if stated.present else 1
    for each in _sensitive(mechanism):
        for name in dict(each.sensitivity_per or ()):
            if name not in known:
                text = f"{each.kind} states its sensitivity for {name!r}, which the population does"
                names = ", ".join(known) or "none"
                found.append(Objection(UNKNOWN, f"{text} not name among its units ({names})"))
                continue
            part, whole = _sides(each, known[name])
            if part > steps * whole:
                text = f"the sensitivity for a part, {_plain(part)}, is more than {steps} times "
                text += f"that for the whole, {_plain(whole)} ({each.kind}, unit {name})"
                found.append(Objection(CONTRADICT, f"{text}: correct the one that is wrong"))
    return tuple(found)


def loose(mechanism: BaseMechanism, stated: Relation, units: Units) -> Iterator[str]:
    """Yield, in words, where a sensitivity for a whole is more than its parts allow."""
    steps = 1 if stated.present else 2
    for each in _sensitive(mechanism):
        for unit in units:
            if unit.name in dict(each.sensitivity_per or ()) and unit.at_most is not None:
                part, whole = _sides(each, unit)
                most = unit.at_most * steps
                if whole > most * part:
                    yield (
                        f"{each.kind} states a sensitivity of {_plain(whole)} for the whole and "
                        f"{_plain(part)} for one of at most {unit.at_most} parts (unit "
                        f"{unit.name}): {most} times that is less. Is the smaller one right?"
                    )


def _sensitive(mechanism: BaseMechanism) -> Iterator[Sensitive]:
    if isinstance(mechanism, Sensitive):
        yield mechanism
    for part in mechanism.parts() if isinstance(mechanism, Composed) else ():
        yield from _sensitive(part)


def _sides(mechanism: Sensitive, unit: Unit) -> tuple[Fraction, Fraction]:
    """Return the sensitivities for the part and for the whole in the mechanism's norm."""
    first = norm(mechanism.sensitivity, mechanism.norm) or Fraction(0)
    first *= mechanism.group_size
    other = norm(dict(mechanism.sensitivity_per or ())[unit.name], mechanism.norm) or Fraction(0)
    return (first, other) if unit.group else (other, first)


def _plain(value: Fraction) -> str:
    return f"{float(value):g}" if value.denominator != 1 else str(value)
