"""Neighbouring relations: which two data sets are hard to tell apart."""

from __future__ import annotations

from enum import StrEnum

from accountant.privacy.losses import Loss


class Relation(StrEnum):
    """A neighbouring relation. Losses stated under different ones never add up."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"


def convert(loss: Loss, stated: Relation, wanted: Relation) -> Loss | None:
    """Return ``loss`` under the relation ``wanted``, or None where it cannot be derived.

    To replace one unit is to remove one and to add one, a group of two: 2 epsilon, (1 + e^epsilon)
    delta, 4 rho, 2 mu (``Loss.group``). The other way is not derivable: two data sets that differ
    in size are never one replacement apart.
    """
    if stated is wanted:
        return loss
    return None if stated is Relation.REPLACE_ONE else loss.group(2)
