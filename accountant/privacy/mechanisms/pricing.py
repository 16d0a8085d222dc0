"""The price of a mechanism: the charge that is booked, and the verdict on its claim."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from accountant.privacy import balls, engine
from accountant.privacy.curves import Orders
from accountant.privacy.losses import UNBOUNDED, Loss
from accountant.privacy.mechanisms import further_units
from accountant.privacy.mechanisms.base import BaseMechanism, Objection, Relation, convert
from accountant.privacy.mechanisms.compound import Compound
from accountant.privacy.mechanisms.further_units import Unit, Units
from accountant.privacy.units import Charge, charge_of

CLAIM_SLACK: Final = Fraction(1, 10_000)
"""A claim may differ by as much, relatively: clients round. The larger is booked either way."""


class Verdict(StrEnum):
    """How a claim compares with the loss that follows from the stated parameters. Whether these
    are what ran cannot be seen from here.
    """

    CONSISTENT = "consistent"
    CONSERVATIVE = "conservative"
    UNDERSTATED = "understated"
    UNVERIFIABLE = "unverifiable"
    UNCLAIMED = "unclaimed"


class Priced(Struct, frozen=True):
    """The ``charge`` of all invocations, booked in any case, and ``objections`` to a request."""

    charge: Charge
    verdict: Verdict
    objections: tuple[Objection, ...]
    per: tuple[Charge, ...] = ()
    """The charge to one of each further unit of the population, in their order."""
    loose: tuple[str, ...] = ()
    """Where a stated sensitivity is more than another one allows, in words."""


class Derivation(Struct, frozen=True):
    """One invocation: ``derived`` and ``claimed`` (None: not known), and the larger, ``booked``.
    ``by_claim``: the claim is clearly the larger, or alone.
    """

    verdict: Verdict
    objections: tuple[Objection, ...]
    derived: Loss | None
    claimed: Loss | None
    booked: Loss | None
    by_claim: bool

    @property
    def larger(self) -> Loss | None:
        """The claim or the derivation, as it is; ``booked`` may be made of both."""
        return self.claimed if self.by_claim else self.derived


def price(
    mechanism: BaseMechanism,
    population: Relation,
    orders: Orders = (),
    version: int | None = None,
    units: Units | None = None,
) -> Priced:
    """Price ``mechanism`` in a population with the relation ``population`` and the further
    ``units`` (None: not known, so that any may be stated), with a Renyi divergence at each of
    ``orders``, by the bounds of ``version`` (default: today's); never raises.
    """
    asked = mechanism, population, orders, version or engine.CURRENT, units
    if isinstance(mechanism, Compound):
        return _price_compound(*asked)
    return _price(*asked) if mechanism.sampling is None else _price_sampled(*asked)


def _price(
    mechanism: BaseMechanism,
    population: Relation,
    orders: Orders,
    version: int,
    units: Units | None,
) -> Priced:
    if engine.in_force() != version:
        with engine.pricing(version):
            return _price(mechanism, population, orders, version, units)
    found = derive(mechanism, population)
    booked = found.booked or UNBOUNDED
    charge = charge_of(booked, mechanism.count, orders)
    if units is None or not (units or further_units.states(mechanism)):
        return Priced(charge, found.verdict, found.objections)
    stated = mechanism.neighbouring or population
    objections = found.objections + further_units.objections(mechanism, stated, units)
    losses = (_for_unit(mechanism, population, booked, unit) for unit in units)
    per = tuple([charge_of(loss, mechanism.count, orders) for loss in losses])
    loose = tuple(further_units.loose(mechanism, stated, units))
    return Priced(charge, found.verdict, objections, per, loose)


def _for_unit(mechanism: BaseMechanism, population: Relation, booked: Loss, unit: Unit) -> Loss:
    """Return the loss of one invocation for one further unit: what its sensitivity gives, or else
    what follows from the loss ``booked`` for one first unit.
    """
    stating = further_units.stating(mechanism, unit.name)
    if stating is None:
        return unit.of(booked, population)
    return derive(stating, population).booked or UNBOUNDED


# These take longer to price than to look up. A compound may be as large as a request.
_price_sampled = lru_cache(maxsize=4_096)(_price)
_price_compound = lru_cache(maxsize=256)(_price)


def derive(mechanism: BaseMechanism, population: Relation) -> Derivation:
    """Derive the loss of one invocation of ``mechanism``, by the bounds in force."""
    stated = mechanism.neighbouring or population
    claim, derived = mechanism.claim(), mechanism.cost(stated)
    objections = mechanism.all_objections(stated) + _misplaced(mechanism, stated, population)
    verdict = Verdict.UNCLAIMED
    if claim is not None:
        beside = mechanism.cost(stated, claim)
        verdict = _compare(claim, beside)
        explained = objections and derived is not None and derived.epsilon is None
        if verdict is Verdict.UNDERSTATED and beside is not None and not explained:
            objections += (mechanism.understated(claim, beside),)
    booked = _booked(mechanism, claim, derived, verdict)
    by_claim = derived is None or verdict is Verdict.CONSERVATIVE
    if verdict is not Verdict.UNDERSTATED and _rests_on_a_word(mechanism):
        verdict = Verdict.UNVERIFIABLE
    if stated is not population:
        losses = derived, claim, booked
        derived, claim, booked = (loss and convert(loss, stated, population) for loss in losses)
    return Derivation(verdict, objections, derived, claim, booked, by_claim)


def _rests_on_a_word(mechanism: BaseMechanism) -> bool:
    """True if some part's loss is declared."""
    if not isinstance(mechanism, Compound):
        return False
    return any(part.kind == "declared" or _rests_on_a_word(part) for part in mechanism.parts())


def _misplaced(
    mechanism: BaseMechanism, stated: Relation, population: Relation
) -> tuple[Objection, ...]:
    replaced, same = stated is Relation.REPLACE_ONE, stated is population
    if mechanism.local and not (replaced and same):
        text = (
            f"{mechanism.kind} hides what a person answered, not that the person answered: it has "
            "a finite loss under replace_one only, in a replace_one population."
        )
        return (Objection("local-needs-replace-one", text),)
    if not same and (replaced or population is Relation.ADD_OR_REMOVE_ONE):
        text = (
            f"The mechanism is stated under {stated} and the population counts in {population}, "
            f"for which nothing follows: state its sensitivity under {population}."
        )
        return (Objection("relation-not-derivable", text),)
    return ()


def _booked(
    mechanism: BaseMechanism, claim: Loss | None, derived: Loss | None, verdict: Verdict
) -> Loss | None:
    """Return the larger of claim and derivation; in every currency if it is clearly the claim."""
    if claim is None or derived is None:
        return claim or derived
    if verdict is Verdict.CONSERVATIVE:
        return derived.at_least(mechanism.worth(claim, derived))
    delta = balls.most(claim.delta, derived.delta)
    if claim.epsilon is None or derived.epsilon is None or claim.epsilon <= derived.epsilon:
        return replace(derived, delta=delta)
    squares = balls.most(derived.squares or claim.epsilon, claim.epsilon * claim.epsilon)
    return replace(derived, epsilon=claim.epsilon, delta=delta, squares=squares)


def _compare(claim: Loss, derived: Loss | None) -> Verdict:
    if derived is None:
        return Verdict.UNVERIFIABLE
    if derived.epsilon is None or claim.epsilon is None:
        return Verdict.UNDERSTATED
    pairs = ((claim.epsilon, derived.epsilon), (claim.delta, derived.delta))
    if any(mine < (1 - CLAIM_SLACK) * theirs for mine, theirs in pairs):
        return Verdict.UNDERSTATED
    if any(mine > (1 + CLAIM_SLACK) * theirs for mine, theirs in pairs):
        return Verdict.CONSERVATIVE
    return Verdict.CONSISTENT
