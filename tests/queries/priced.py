"""What the service derives from a mechanism, and sessions that are begun in little time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from pydantic import TypeAdapter

from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation
from accountant.queries.sparse import Running, SparseVector, fresh

_READ: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)


def epsilon_of(mechanism: Any, relation: Relation = Relation.ADD_OR_REMOVE_ONE) -> Fraction:
    """The epsilon of one invocation, exactly."""
    read = _READ.validate_python(dict(mechanism))
    assert not read.all_objections(relation)
    loss = read.cost(relation)
    assert loss is not None
    assert loss.epsilon is not None
    return Fraction(loss.epsilon)


def pooled(what: SparseVector, threshold: Fraction | int = 0) -> Callable[[], Running]:
    """Return what begins sessions that share their sources of noise, which give nothing twice: many
    are begun in little time.
    """
    level, place = fresh(what.noise(what.threshold_scale)), what.place(threshold, up=True)
    base = what.begin(Fraction(threshold))
    return lambda: replace(base, threshold=place + level(), positives=0)
