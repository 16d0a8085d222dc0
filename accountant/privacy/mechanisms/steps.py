"""Mechanisms as the steps of a list that is fixed in advance."""

from __future__ import annotations

from collections.abc import Iterable

from accountant.privacy.losses import Loss
from accountant.privacy.mechanisms.base import BaseMechanism
from accountant.privacy.mechanisms.pricing import Derivation, Verdict, derive
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.steps import NamedPair, Step


def steps_of(mechanisms: Iterable[BaseMechanism], population: Relation) -> list[Step]:
    """All invocations of ``mechanisms``, in the population's relation."""
    flat = [part for mechanism in mechanisms for part in mechanism.apart()]
    return [_step(mechanism, population) for mechanism in flat]


def _step(mechanism: BaseMechanism, population: Relation) -> Step:
    derivation = derive(mechanism, population)
    larger = derivation.verdict is Verdict.CONSERVATIVE
    pair = None if larger else _pair(mechanism, population)
    return Step(mechanism.count, _booked(derivation), pair)


def _pair(mechanism: BaseMechanism, population: Relation) -> NamedPair | None:
    """For as many of the mechanism's own steps as lie between neighbours of the population; None
    where nothing follows from its parameters.
    """
    stated = mechanism.neighbouring or population
    if mechanism.all_objections(stated) or mechanism.local:
        return None
    if stated is population:
        return mechanism.pair(mechanism.group_size, stated)
    if stated is Relation.ADD_OR_REMOVE_ONE:
        return mechanism.pair(2 * mechanism.group_size, stated)
    return None


def _booked(derivation: Derivation) -> Loss | None:
    """Return the larger of claim and derivation, where both are there."""
    if derivation.derived is None or derivation.verdict is Verdict.CONSERVATIVE:
        return derivation.claimed
    return derivation.derived
