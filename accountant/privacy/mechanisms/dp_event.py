"""DpEvent trees of the dp_accounting library, read into mechanisms and written from them.

A tree is ``{"class": name, "fields": {…}}``, events inside events likewise. Only the classes listed
here are known; nothing is ever imported by name. Their meaning is that of dp_accounting's own
``dp_event.py``: the noise of its Gaussian, Laplace and discrete events is relative to a bound C on
the norm of what one record adds, so it is stated under add-or-remove-one, and replacing a record
moves the sum by 2 C. Events that name an epsilon or a rho state no relation: they are taken in the
population's.

A mechanism is written as its own class if there is one, else as the (epsilon, delta) or the rho
that it costs, with numbers rounded towards more privacy loss. Noise that is stated for replacing
one record is written with half of its sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from accountant.privacy.balls import Number, above
from accountant.privacy.losses import UNBOUNDED
from accountant.privacy.mechanisms.additive import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
)
from accountant.privacy.mechanisms.amounts import NonNegative, Positive, Probability, SamplingRate
from accountant.privacy.mechanisms.base import BaseMechanism, Count, norm
from accountant.privacy.mechanisms.compound import Composed
from accountant.privacy.mechanisms.local import RandomizedResponse
from accountant.privacy.mechanisms.pricing import Verdict, derive
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.mechanisms.selection import Exponential, PermuteAndFlip

Body = dict[str, Any]

_DIVIDED: Final = Context(prec=30, rounding=ROUND_FLOOR)
_EXACT: Final = Context(prec=100)
_MOST_LEVELS: Final = 8
_MOST_EVENTS: Final = 1000
_COUNT: TypeAdapter[int] = TypeAdapter(Count)
_ADD: Final = Relation.ADD_OR_REMOVE_ONE
_REPLACE: Final = Relation.REPLACE_ONE
_DOWN: Final = -math.inf
_UP: Final = math.inf
_Noise = Laplace | Gaussian | DiscreteLaplace | DiscreteGaussian


class DpEvent(BaseModel):
    """An event of the dp_accounting library, as ``{"class": …, "fields": {…}}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(alias="class", description="The class's name, for instance GaussianDpEvent.")
    fields: dict[str, Any] = Field(
        default_factory=dict, description="Its fields by name; events inside it are such trees too."
    )


def is_dp_event(value: Any) -> bool:
    """True for what can only be meant as a DpEvent."""
    return isinstance(value, dict) and "class" in value


def mechanisms_of(tree: Any) -> list[Body]:
    """Return the mechanisms that a DpEvent stands for, as request bodies.

    Raises PydanticCustomError for unknown classes, and for events that no mechanism expresses.
    """
    bodies = _read(tree, 1)
    for body in bodies:
        if body.pop("_noise", False):
            body["neighbouring"] = _ADD.value
    return bodies


def _refuse(text: str) -> PydanticCustomError:
    return PydanticCustomError("dp_event", "{text}", {"text": text})


def _read(tree: Any, level: int) -> list[Body]:
    """Return the bodies of an event. Noise is marked ``_noise``: a sampling may restate it."""
    if level > _MOST_LEVELS:
        raise _refuse("the DpEvent is nested too deeply")
    try:
        event = DpEvent.model_validate(tree)
    except ValidationError:
        raise _refuse('a DpEvent is {"class": name, "fields": {…}}') from None
    fields = _Fields(event)
    if event.name in _NESTED:
        return _NESTED[event.name](fields, level)
    if event.name not in _LEAVES:
        known = ", ".join(sorted(_LEAVES.keys() | _NESTED.keys()))
        raise _refuse(f"DpEvent class {event.name!r} has no meaning here; known are: {known}")
    kinds, body = _LEAVES[event.name]
    bodies = body(*(fields.get(name, kind) for name, kind in kinds.items()))
    fields.done()
    return bodies


class _Fields:
    """The fields of one event, each asked for by name and type."""

    def __init__(self, event: DpEvent) -> None:
        self.name, self.left = event.name, dict(event.fields)

    def get(self, name: str, kind: Any) -> Any:
        """Return the field, checked. Raises if it is missing without a default, or wrong."""
        if name not in self.left and (self.name, name) in _DEFAULTS:
            return _DEFAULTS[self.name, name]
        value = self.left.pop(name, None)
        try:
            return TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            given = f", not {value!s:.60}" if isinstance(value, str | int | float | Decimal) else ""
            raise _refuse(f"{name} of {self.name}: {why}{given}") from None

    def event(self, level: int) -> list[Body]:
        """Return the bodies of the event inside, which is the last field."""
        bodies = _read(self.left.pop("event", None), level + 1)
        self.done()
        return bodies

    def done(self) -> None:
        """Raise if a field is left over."""
        if self.left:
            unknown = ", ".join(sorted(map(str, self.left)))
            raise _refuse(f"{self.name} has no field {unknown}")


def _noise(kind: str, scale: Decimal, width: Decimal = Decimal(1), _: Any = None) -> list[Body]:
    """Return noise on a sum of vectors whose records have a norm of at most ``width``."""
    bound = {"l1" if kind.endswith("laplace") else "l2": str(width)}
    return [{"kind": kind, "sensitivity": bound, "scale": str(scale), "_noise": True}]


def _discrete_laplace(parameter: Decimal, sensitivity: int) -> list[Body]:
    scale = _DIVIDED.divide(Decimal(1), parameter)
    return _noise("discrete_laplace", scale, Decimal(sensitivity))


def _response(noise: Decimal, buckets: int) -> list[Body]:
    truth = str(_EXACT.subtract(Decimal(1), noise))
    return [{"kind": "randomized_response", "truth_probability": truth, "categories": buckets}]


def _choice(kind: str, epsilon: Decimal) -> list[Body]:
    return [{"kind": kind, "sensitivity": str(epsilon), "scale": "2"}]


def _concentrated(rho: Decimal, xi: Decimal) -> list[Body]:
    if xi:
        raise _refuse("ZCDpEvent with xi above 0 has no rho; declare its renyi divergences")
    return [{"kind": "declared", "rho": str(rho)}]


_LEAVES: Final[dict[str, tuple[dict[str, Any], Callable[..., list[Body]]]]] = {
    "NoOpDpEvent": ({}, list),
    "NonPrivateDpEvent": ({}, lambda: [{"kind": "non_private"}]),
    "EpsilonDeltaDpEvent": (
        {"epsilon": NonNegative, "delta": Probability},
        lambda epsilon, delta: [{"kind": "declared", "epsilon": str(epsilon), "delta": str(delta)}],
    ),
    "ZCDpEvent": ({"rho": NonNegative, "xi": NonNegative}, _concentrated),
    "GaussianDpEvent": ({"noise_multiplier": Positive}, partial(_noise, "gaussian")),
    "DiscreteGaussianDpEvent": (
        {"sigma": Positive, "sensitivity": Positive, "dimension": Count | None},
        partial(_noise, "discrete_gaussian"),  # rho is the same in any number of dimensions
    ),
    "LaplaceDpEvent": ({"noise_multiplier": Positive}, partial(_noise, "laplace")),
    "DiscreteLaplaceDpEvent": (
        {"noise_parameter": Positive, "sensitivity": Count},
        _discrete_laplace,
    ),
    "RandomizedResponseDpEvent": (
        {
            "noise_parameter": SamplingRate,
            "num_buckets": Annotated[int, Field(strict=True, ge=2, le=10**9)],
        },
        _response,
    ),
    "ExponentialMechanismDpEvent": ({"epsilon": Positive}, partial(_choice, "exponential")),
    "PermuteAndFlipDpEvent": ({"epsilon": Positive}, partial(_choice, "permute_and_flip")),
}
"""Classes without events inside: their fields, and the bodies that they stand for."""

_DEFAULTS: Final[dict[tuple[str, str], Any]] = {
    ("ZCDpEvent", "xi"): Decimal(0),
    ("DiscreteGaussianDpEvent", "sensitivity"): Decimal(1),
    ("DiscreteGaussianDpEvent", "dimension"): 1,
}


def _repeated(fields: _Fields, level: int) -> list[Body]:
    count = fields.get("count", Count)
    bodies = fields.event(level)
    for body in bodies:
        body["count"] = _COUNT.validate_python(body.get("count", 1) * count)
    return bodies


def _composed(fields: _Fields, level: int) -> list[Body]:
    events = fields.get("events", Annotated[list[Any], Field(max_length=_MOST_EVENTS)])
    fields.done()
    return [body for event in events for body in _read(event, level + 1)]


def _poisson(fields: _Fields, level: int) -> list[Body]:
    rate = fields.get("sampling_probability", SamplingRate)
    return _sampled(fields, {"poisson": str(rate)}, _ADD, level)


def _without_replacement(fields: _Fields, level: int) -> list[Body]:
    drawn = {"of": fields.get("source_dataset_size", Count)}
    drawn["sample"] = fields.get("sample_size", Count)
    return _sampled(fields, {"without_replacement": drawn}, _REPLACE, level)


def _sampled(fields: _Fields, sampling: Body, relation: Relation, level: int) -> list[Body]:
    """Return one mechanism for all that runs on one sample: it is amplified once."""
    bodies = fields.event(level)
    for body in bodies:
        if body.pop("_noise", False) and relation is _REPLACE:
            [(name, width)] = body["sensitivity"].items()
            body["sensitivity"] = {name: str(_EXACT.multiply(Decimal(width), Decimal(2)))}
        inner = body.pop("neighbouring", relation.value)
        if inner != relation.value or body["kind"] in ("declared", "non_private"):
            raise _refuse(f"{fields.name} of {body['kind']}: no amplification is proved here")
    if not bodies:
        return []
    [body] = bodies if len(bodies) == 1 else [{"kind": "composed", "mechanisms": bodies}]
    if "sampling" in body or body.get("count", 1) != 1:
        body = {"kind": "composed", "mechanisms": [body]}
    return [body | {"sampling": sampling, "neighbouring": relation.value}]


_NESTED: Final[dict[str, Callable[[_Fields, int], list[Body]]]] = {
    "ComposedDpEvent": _composed,
    "SelfComposedDpEvent": _repeated,
    "PoissonSampledDpEvent": _poisson,
    "SampledWithoutReplacementDpEvent": _without_replacement,
}


def dp_event_of(mechanisms: Sequence[BaseMechanism], population: Relation) -> Body:
    """Return ``mechanisms`` as one DpEvent, for an accountant with the population's relation.

    Raises ValueError for a mechanism that costs neither an (epsilon, delta) nor a rho.
    """
    events = [_counted(mechanism, population) for mechanism in mechanisms]
    return events[0] if len(events) == 1 else _event("ComposedDpEvent", events=events)


def _counted(mechanism: BaseMechanism, population: Relation) -> Body:
    stated = mechanism.neighbouring or population
    larger = derive(mechanism, population).verdict is Verdict.CONSERVATIVE
    tree = None if larger else _with_sampling(mechanism, stated)
    # Only noise is relative to what a record adds, whatever the population.
    noise = isinstance(mechanism, _Noise) and mechanism.sampling is None
    if tree is None or not (stated is population or noise):
        tree = _by_cost(mechanism, population)
    if mechanism.count == 1:
        return tree
    return _event("SelfComposedDpEvent", event=tree, count=mechanism.count)


def _with_sampling(mechanism: BaseMechanism, stated: Relation) -> Body | None:
    """Return the event of its own class; None where no class has the same meaning. A group of a
    sample is not the sample of a group.
    """
    sampling = mechanism.sampling
    if sampling is None:
        return _plain(mechanism, stated)
    tree = _plain(mechanism, stated) if mechanism.group_size == 1 else None
    if tree is None or sampling.misplaced(stated):
        return None
    if sampling.without_replacement is None:
        rate = _number(sampling.rate, _UP)
        return _event("PoissonSampledDpEvent", sampling_probability=rate, event=tree)
    drawn = sampling.without_replacement
    return _event(
        "SampledWithoutReplacementDpEvent",
        source_dataset_size=drawn.of,
        sample_size=drawn.sample,
        event=tree,
    )


def _plain(mechanism: BaseMechanism, stated: Relation) -> Body | None:
    """Return the event without its sampling; None where no class has the same meaning."""
    match mechanism:
        case Laplace() | Gaussian() | DiscreteLaplace() | DiscreteGaussian():
            halves = 2 if stated is _REPLACE else 1
            return _noise_event(mechanism, Fraction(mechanism.group_size, halves))
        case Exponential() | PermuteAndFlip():
            chosen = isinstance(mechanism, Exponential)
            name = "ExponentialMechanismDpEvent" if chosen else "PermuteAndFlipDpEvent"
            epsilon = mechanism.epsilon(stated) * mechanism.group_size
            return _event(name, epsilon=_number(epsilon, _UP))
        case RandomizedResponse(truth_probability=Decimal() as truth, group_size=1):
            noise = _number(1 - Fraction(truth), _DOWN)
            buckets = mechanism.categories
            return _event("RandomizedResponseDpEvent", noise_parameter=noise, num_buckets=buckets)
        case Composed(group_size=1):
            events = [_counted(part, stated) for part in mechanism.mechanisms]
            return _event("ComposedDpEvent", events=events)
    return None


def _noise_event(mechanism: _Noise, factor: Fraction) -> Body | None:
    """Return noise on an answer whose records are bounded by ``factor`` times the sensitivity."""
    wanted = "l1" if isinstance(mechanism, Laplace | DiscreteLaplace) else "l2"
    bound = (norm(mechanism.sensitivity, wanted) or Fraction(0)) * factor
    name, scale = f"{type(mechanism).__name__}DpEvent", Fraction(mechanism.scale)
    match mechanism:
        case Laplace() | Gaussian():
            return _event(name, noise_multiplier=_number(scale / bound, _DOWN))
        case DiscreteGaussian():
            return _event(name, sigma=_number(scale, _DOWN), sensitivity=_number(bound, _UP))
        case DiscreteLaplace() if bound.denominator == 1:
            parameter = _number(1 / scale, _UP)
            return _event(name, noise_parameter=parameter, sensitivity=int(bound))
    return None


def _by_cost(mechanism: BaseMechanism, population: Relation) -> Body:
    """Return the cost of one invocation as an event, the claim if that is larger."""
    found = derive(mechanism, population)
    larger = found.derived is None or found.verdict is Verdict.CONSERVATIVE
    loss = (found.claimed if larger else found.derived) or UNBOUNDED
    if loss.epsilon is not None:
        epsilon, delta = _number(loss.epsilon, _UP), _number(loss.delta, _UP)
        return _event("EpsilonDeltaDpEvent", epsilon=epsilon, delta=delta)
    if loss.rho is not None and not loss.delta:
        return _event("ZCDpEvent", rho=_number(loss.rho, _UP), xi=0.0)
    if mechanism.kind == "non_private":
        return _event("NonPrivateDpEvent")
    raise ValueError(f"no DpEvent says what {mechanism.kind} costs as it is stated here")


def _event(name: str, **fields: Any) -> Body:
    return {"class": name, "fields": fields}


def _number(value: Number, towards: float) -> float:
    """Return the float whose shortest spelling is ``value`` or the next one ``towards``."""
    value = above(value)
    found = float(value)
    sign = 1 if towards > 0 else -1
    while sign * (Fraction(repr(found)) - value) < 0:
        found = math.nextafter(found, towards)
    return found
