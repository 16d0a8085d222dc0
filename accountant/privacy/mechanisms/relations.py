"""Neighbouring relations: which two data sets a mechanism makes hard to tell apart."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import Final

from accountant.privacy.decimals import exp_up
from accountant.privacy.units import Loss


class Relation(StrEnum):
    """Losses stated under different relations are different currencies and never add up."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"


_CERTAIN: Final = Fraction(1)
_NO_NEED_TO_COMPUTE: Final = 1000
"""From this epsilon on, delta (1 + e^epsilon) is taken to be 1: every delta is at most that, and
no delta that can be stated is small enough to make a difference."""


def convert(loss: Loss, stated: Relation, wanted: Relation) -> Loss | None:
    """``loss`` under the relation ``wanted``, or None where that cannot be derived.

    To replace one unit is to remove one and to add one, so that group privacy of size two applies
    (Dwork-Roth 2014, Thm. 2.2; Vadhan 2017, Lemma 2.2): 2 epsilon and (1 + e^epsilon) delta. The
    other way is not derivable: two data sets that differ in size are never one replacement apart.
    """
    if stated is wanted:
        return loss
    if stated is Relation.REPLACE_ONE:
        return None
    if loss.epsilon is None:
        return loss
    return Loss(2 * loss.epsilon, _delta_of_two(loss.epsilon, loss.delta))


def _delta_of_two(epsilon: Fraction, delta: Fraction) -> Fraction:
    if delta == 0:
        return delta
    if epsilon >= _NO_NEED_TO_COMPUTE:
        return _CERTAIN
    return min(_CERTAIN, delta * (1 + exp_up(epsilon)))
