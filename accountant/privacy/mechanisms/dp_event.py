"""DpEvent trees of the dp_accounting library, read into mechanisms and written from them.

A tree is ``{"class": name, "fields": {…}}``, events inside events likewise. Only the classes listed
here are known; nothing is ever imported by name. They mean what dp_accounting's own ``dp_event.py``
says: the noise of its Gaussian, Laplace and discrete events is relative to a bound C on the norm of
what one record adds, so it is stated under add-or-remove-one, and replacing a record moves the sum
by 2 C. Events that name an epsilon or a rho are taken in the population's relation; trees under
zero_out, and a unit has one leaf. ``SampledWithReplacementDpEvent`` has no meaning here: a record
may be in the sample several times, so that it may cost more than without sampling.

A mechanism is written as its own class if there is one, else as the (epsilon, delta) or the rho
that it costs, with numbers rounded towards more loss. Noise that is stated for replacing one record
is written with half of its sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from accountant.privacy.balls import Number, above
from accountant.privacy.losses import UNBOUNDED, Loss
from accountant.privacy.mechanisms import additive
from accountant.privacy.mechanisms.amounts import NonNegative, Positive, Probability, SamplingRate
from accountant.privacy.mechanisms.base import BaseMechanism, Count, Relation, Truncated
from accountant.privacy.mechanisms.compound import Composed
from accountant.privacy.mechanisms.learning import TreeAggregation
from accountant.privacy.mechanisms.local import RandomizedResponse
from accountant.privacy.mechanisms.pricing import derive
from accountant.privacy.mechanisms.selection import Exponential, PermuteAndFlip

Body = dict[str, Any]

_DIVIDED: Final = Context(prec=30, rounding=ROUND_FLOOR)
_EXACT: Final = Context(prec=100)
_SHORT: Final = Context(prec=40, rounding=ROUND_CEILING)
_ORDERS: Final = (*range(2, 65), 128, 256, 512, 1024)
_ROUNDING: Final = Decimal("1e-12")
_MOST_LEVELS: Final = 8
_ADD: Final = Relation.ADD_OR_REMOVE_ONE
_REPLACE: Final = Relation.REPLACE_ONE
_DOWN: Final = -math.inf
_UP: Final = math.inf


class DpEvent(BaseModel):
    """An event of the dp_accounting library, as ``{"class": …, "fields": {…}}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(alias="class", description="The class's name, for instance GaussianDpEvent.")
    fields: dict[str, Any] = Field(
        default_factory=dict, description="Its fields by name; events inside it are such trees too."
    )


def is_dp_event(value: Any) -> bool:
    """Return true for a value that can only be meant as a DpEvent."""
    return isinstance(value, dict) and "class" in value


def mechanisms_of(tree: Any) -> list[Body]:
    """Return the request bodies of a DpEvent. Raises PydanticCustomError if there are none."""
    return _stated(_read(tree))


def read_dp_events(value: Any) -> Any:
    """Replace DpEvent trees among the mechanisms by the mechanisms that they mean."""
    if not isinstance(value, list) or not any(map(is_dp_event, value)):
        return value
    return [
        body for item in value for body in (mechanisms_of(item) if is_dp_event(item) else [item])
    ]


def _stated(bodies: list[Body]) -> list[Body]:
    """Return bodies with the relation of their noise written out."""
    for body in bodies:
        if body.pop("_noise", False):
            body["neighbouring"] = _ADD.value
    return bodies


def _refuse(text: str) -> PydanticCustomError:
    return PydanticCustomError("dp_event", "{text}", {"text": text})


def _read(tree: Any, level: int = 1) -> list[Body]:
    """Return the bodies of an event. Noise is marked ``_noise``: a sampling may restate it."""
    if level > _MOST_LEVELS:
        raise _refuse("the DpEvent is nested too deeply")
    try:
        event = DpEvent.model_validate(tree)
    except ValidationError:
        raise _refuse('a DpEvent is {"class": name, "fields": {…}}') from None
    if reason := _WITHOUT_MEANING.get(event.name):
        raise _refuse(f"{event.name}: {reason}")
    if event.name not in _CLASSES:
        known = ", ".join(sorted(_CLASSES))
        raise _refuse(f"DpEvent class {event.name!r} has no meaning here; known are: {known}")
    kinds, body = _CLASSES[event.name]
    values = [_value(event, name, kind, level) for name, kind in kinds.items()]
    if unknown := event.fields.keys() - kinds.keys():
        raise _refuse(f"{event.name} has no field {', '.join(sorted(map(str, unknown)))}")
    return body(*values)


def _value(event: DpEvent, name: str, kind: Any, level: int) -> Any:
    """Return a field of ``event``, events inside as their bodies. Raises if missing or wrong."""
    kind, default = kind if isinstance(kind, tuple) else (kind, None)
    value = event.fields.get(name, default)
    if kind is _EVENT:
        return _read(value, level + 1)
    try:
        found = TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        given = f", not {value!s:.60}" if isinstance(value, str | int | float | Decimal) else ""
        raise _refuse(f"{name} of {event.name}: {why}{given}") from None
    return [_read(each, level + 1) for each in found] if kind is _EVENTS else found


def _one(kind: str, **fields: Any) -> list[Body]:
    """Return one body of ``kind``, with numbers as strings."""
    return [{"kind": kind} | {name: str(value) for name, value in fields.items()}]


def _noise(kind: str, scale: Decimal, width: Decimal = Decimal(1), _: Any = None) -> list[Body]:
    """Return noise on a sum of vectors whose records have a norm of at most ``width``."""
    bound = {"l1" if kind.endswith("laplace") else "l2": str(width)}
    return [{"kind": kind, "sensitivity": bound, "scale": str(scale), "_noise": True}]


def _choice(kind: str, epsilon: Decimal) -> list[Body]:
    return _one(kind, sensitivity=epsilon, scale=2)


def _response(noise: Decimal, buckets: int) -> list[Body]:
    truth = str(_EXACT.subtract(Decimal(1), noise))
    return [{"kind": "randomized_response", "truth_probability": truth, "categories": buckets}]


def _concentrated(rho: Decimal, xi: Decimal) -> list[Body]:
    """Return rho, or divergences of xi + rho a, rounded up to what an amount can hold."""
    if not xi:
        return _one("declared", rho=rho)
    found = {str(order): str(_SHORT.add(xi, rho * order)) for order in _ORDERS}
    return [{"kind": "declared", "renyi": found}]


def _tree(scale: Decimal, leaves: Any) -> list[Body]:
    counts = leaves if isinstance(leaves, list) else [leaves]
    tree = {"leaves": counts, "neighbouring": Relation.ZERO_OUT.value}
    return [{"kind": "tree_aggregation", "sensitivity": "1", "scale": str(scale)} | tree]


def _best_run(event: list[Body], mean: Decimal, shape: Any) -> list[Body]:
    """Return tuning: a Poisson number of runs if ``shape`` is infinite."""
    if not event:
        return []
    relations = {body.pop("neighbouring", None) for body in _stated(event)}
    if len(relations) > 1 or any(body["kind"] in ("declared", "non_private") for body in event):
        raise _refuse("RepeatAndSelectDpEvent: nothing is proved here of what it repeats")
    [run] = event if len(event) == 1 else [{"kind": "composed", "mechanisms": event}]
    body: Body = {"kind": "repeat_and_select", "mechanism": run, "mean": str(mean)}
    body |= {"runs": "poisson"} if shape == "infinity" else {"shape": str(shape)}
    [relation] = relations
    return [body | ({"neighbouring": relation} if relation else {})]


def _mixture(scale: Decimal, moves: list[Decimal], chances: list[Decimal]) -> list[Body]:
    if len(moves) != len(chances):
        raise _refuse("MixtureOfGaussiansDpEvent has as many sampling_probs as sensitivities")
    rest = 1 - sum(
        chances, Decimal(0)
    )  # floats rarely add up to one: the furthest move gets what is missing
    if abs(rest) > _ROUNDING:
        raise _refuse("MixtureOfGaussiansDpEvent: sampling_probs do not add up to 1")
    pairs = [*zip(moves, chances, strict=True)]
    pairs.sort()
    place = -1 if rest > 0 else 0
    move, chance = pairs[place]
    if chance + rest < 0:
        raise _refuse("MixtureOfGaussiansDpEvent: sampling_probs do not add up to 1")
    pairs[place] = move, _EXACT.add(chance, rest)
    found = [{"by": str(move), "chance": str(chance)} for move, chance in pairs]
    return [{"kind": "gaussian_mixture", "scale": str(scale), "moves": found, "_noise": True}]


def _truncated(of: int, rate: Decimal, at_most: int, scale: Decimal) -> list[Body]:
    [body] = _noise("gaussian", scale)
    cut = {"rate": str(rate), "of": of, "at_most": at_most}
    return [body | {"sampling": {"truncated": cut}}]


def _repeated(count: int, event: list[Body]) -> list[Body]:
    for body in event:
        body["count"] = TypeAdapter(Count).validate_python(body.get("count", 1) * count)
    return event


def _sampled(event: list[Body], sampling: Body, relation: Relation, name: str) -> list[Body]:
    """Return one mechanism for all that runs on one sample: it is amplified once."""
    for body in event:
        if body.pop("_noise", False) and relation is _REPLACE:
            [(measure, width)] = body["sensitivity"].items()
            body["sensitivity"] = {measure: str(_EXACT.multiply(Decimal(width), Decimal(2)))}
        inner = body.pop("neighbouring", relation.value)
        if inner != relation.value or body["kind"] in ("declared", "non_private"):
            raise _refuse(f"{name} of {body['kind']}: no amplification is proved here")
    if not event:
        return []
    [body] = event if len(event) == 1 else [{"kind": "composed", "mechanisms": event}]
    if "sampling" in body or body.get("count", 1) != 1:
        body = {"kind": "composed", "mechanisms": [body]}
    return [body | {"sampling": sampling, "neighbouring": relation.value}]


def _poisson(rate: Decimal, event: list[Body]) -> list[Body]:
    return _sampled(event, {"poisson": str(rate)}, _ADD, "PoissonSampledDpEvent")


def _drawn(of: int, sample: int, event: list[Body]) -> list[Body]:
    sampling = {"without_replacement": {"of": of, "sample": sample}}
    return _sampled(event, sampling, _REPLACE, "SampledWithoutReplacementDpEvent")


_EVENT: Final = object()  # The kind of a field with an event inside
_EVENTS: Final = Annotated[list[Any], Field(max_length=1000)]
_BUCKETS: Final = Annotated[int, Field(strict=True, ge=2, le=10**9)]
_LEAVES: Final = Count | Annotated[list[Count], Field(min_length=1, max_length=1000)]
_SHAPE: Final = NonNegative | Literal["infinity"]
_FEW: Final = Annotated[list[NonNegative], Field(min_length=1, max_length=200)]

_WITHOUT_MEANING: Final = {
    "SampledWithReplacementDpEvent": (
        "a record may be in the sample several times, and no bound for that is proved here; sample "
        "without replacement"
    ),
    "UnsupportedDpEvent": "it stands for a mechanism whose loss is not known; state the mechanism",
}

_CLASSES: Final[dict[str, tuple[dict[str, Any], Callable[..., list[Body]]]]] = {
    "NoOpDpEvent": ({}, list),
    "NonPrivateDpEvent": ({}, partial(_one, "non_private")),
    "EpsilonDeltaDpEvent": (
        {"epsilon": NonNegative, "delta": Probability},
        lambda epsilon, delta: _one("declared", epsilon=epsilon, delta=delta),
    ),
    "ZCDpEvent": ({"rho": NonNegative, "xi": (NonNegative, Decimal(0))}, _concentrated),
    "GaussianDpEvent": ({"noise_multiplier": Positive}, partial(_noise, "gaussian")),
    "DiscreteGaussianDpEvent": (
        {"sigma": Positive, "sensitivity": (Positive, Decimal(1)), "dimension": (Count | None, 1)},
        partial(_noise, "discrete_gaussian"),  # rho is the same in any number of dimensions
    ),
    "LaplaceDpEvent": ({"noise_multiplier": Positive}, partial(_noise, "laplace")),
    "DiscreteLaplaceDpEvent": (
        {"noise_parameter": Positive, "sensitivity": Count},
        lambda rate, width: _noise("discrete_laplace", _DIVIDED.divide(Decimal(1), rate), width),
    ),
    "RandomizedResponseDpEvent": (
        {"noise_parameter": SamplingRate, "num_buckets": _BUCKETS},
        _response,
    ),
    "ExponentialMechanismDpEvent": ({"epsilon": Positive}, partial(_choice, "exponential")),
    "PermuteAndFlipDpEvent": ({"epsilon": Positive}, partial(_choice, "permute_and_flip")),
    "SingleEpochTreeAggregationDpEvent": (
        {"noise_multiplier": Positive, "step_counts": _LEAVES},
        _tree,
    ),
    "RepeatAndSelectDpEvent": (
        {"event": _EVENT, "mean": Positive, "shape": _SHAPE},
        _best_run,
    ),
    "MixtureOfGaussiansDpEvent": (
        {"standard_deviation": Positive, "sensitivities": _FEW, "sampling_probs": _FEW},
        _mixture,
    ),
    "TruncatedSubsampledGaussianDpEvent": (
        {
            "dataset_size": Count,
            "sampling_probability": SamplingRate,
            "truncated_batch_size": Count,
            "noise_multiplier": Positive,
        },
        _truncated,
    ),
    "ComposedDpEvent": ({"events": _EVENTS}, lambda events: list(chain.from_iterable(events))),
    "SelfComposedDpEvent": ({"count": Count, "event": _EVENT}, _repeated),
    "PoissonSampledDpEvent": ({"sampling_probability": SamplingRate, "event": _EVENT}, _poisson),
    "SampledWithoutReplacementDpEvent": (
        {"source_dataset_size": Count, "sample_size": Count, "event": _EVENT},
        _drawn,
    ),
}
"""The fields of each class, some with a default, and the function that makes bodies of them."""


def dp_event_of(mechanisms: Sequence[BaseMechanism], population: Relation) -> Body:
    """Return ``mechanisms`` as one DpEvent. Raises ValueError if no event says what one costs."""
    events = [_counted(mechanism, population) for mechanism in mechanisms]
    return events[0] if len(events) == 1 else _event("ComposedDpEvent", events=events)


def _counted(mechanism: BaseMechanism, population: Relation) -> Body:
    stated = mechanism.neighbouring or population
    found = derive(mechanism, population)
    tree = None if found.by_claim else _with_sampling(mechanism, stated)
    # Only noise is relative to the contribution of a record, under either relation.
    noise = isinstance(mechanism, additive.Noise) and mechanism.sampling is None
    if tree is None or not (stated is population or noise):
        tree = _by_cost(mechanism.kind, found.larger or UNBOUNDED)
    if mechanism.count == 1:
        return tree
    return _event("SelfComposedDpEvent", event=tree, count=mechanism.count)


def _with_sampling(mechanism: BaseMechanism, stated: Relation) -> Body | None:
    """Return the event of its own class, else None. A sample's group is not the group's sample."""
    sampling, tree = mechanism.sampling, _plain(mechanism, stated)
    if tree is None or sampling is None:
        return tree
    if mechanism.group_size != 1 or sampling.misplaced(stated):
        return None
    if sampling.truncated or sampling.allocation:
        return _truncated_event(mechanism, sampling.truncated)
    if (drawn := sampling.without_replacement) is None:
        rate = _number(sampling.rate, _UP)
        return _event("PoissonSampledDpEvent", sampling_probability=rate, event=tree)
    sizes = {"source_dataset_size": drawn.of, "sample_size": drawn.sample}
    return _event("SampledWithoutReplacementDpEvent", **sizes, event=tree)


def _truncated_event(mechanism: BaseMechanism, cut: Truncated | None) -> Body | None:
    if cut is None or not isinstance(mechanism, additive.Gaussian):
        return None
    return _event(
        "TruncatedSubsampledGaussianDpEvent",
        dataset_size=cut.of,
        sampling_probability=_number(Fraction(cut.rate), _UP),
        truncated_batch_size=cut.at_most,
        noise_multiplier=_number(1 / mechanism.ratio, _DOWN),
    )


def _plain(mechanism: BaseMechanism, stated: Relation) -> Body | None:
    """Return the event without its sampling; None where no class has the same meaning. Records of
    noise are bounded by the sensitivity, or by half of it if that is for replacing one.
    """
    name, group, tree = f"{type(mechanism).__name__}DpEvent", mechanism.group_size, None
    steps = Fraction(group, 2 if stated is _REPLACE else 1)
    match mechanism:
        case TreeAggregation():
            if group == mechanism.leaves_per_unit == 1 and stated is Relation.ZERO_OUT:
                noise = _number(1 / mechanism.ratio, _DOWN)
                fields = {"noise_multiplier": noise, "step_counts": list(mechanism.leaves)}
                tree = _event("SingleEpochTreeAggregationDpEvent", **fields)
        case additive.Laplace() | additive.Gaussian():
            tree = _event(name, noise_multiplier=_number(1 / (mechanism.ratio * steps), _DOWN))
        case additive.DiscreteGaussian():
            sigma = _number(Fraction(mechanism.scale), _DOWN)
            tree = _event(name, sigma=sigma, sensitivity=_number(mechanism.width * steps, _UP))
        case additive.DiscreteLaplace() if (bound := mechanism.width * steps).denominator == 1:
            parameter = _number(1 / Fraction(mechanism.scale), _UP)
            tree = _event(name, noise_parameter=parameter, sensitivity=int(bound))
        case Exponential():
            epsilon = _number(mechanism.epsilon(stated) * group, _UP)
            tree = _event("ExponentialMechanismDpEvent", epsilon=epsilon)
        case PermuteAndFlip():
            tree = _event(name, epsilon=_number(mechanism.epsilon(stated) * group, _UP))
        case RandomizedResponse(truth_probability=Decimal() as truth, group_size=1):
            noise = _number(1 - Fraction(truth), _DOWN)
            tree = _event(name, noise_parameter=noise, num_buckets=mechanism.categories)
        case Composed(group_size=1):
            events = [_counted(part, stated) for part in mechanism.mechanisms]
            tree = _event(name, events=events)
    return tree


def _by_cost(kind: str, loss: Loss) -> Body:
    """Return the cost of one invocation as an event."""
    if loss.epsilon is not None:
        epsilon, delta = _number(loss.epsilon, _UP), _number(loss.delta, _UP)
        return _event("EpsilonDeltaDpEvent", epsilon=epsilon, delta=delta)
    if loss.rho is not None and not loss.delta:
        return _event("ZCDpEvent", rho=_number(loss.rho, _UP), xi=0.0)
    if kind == "non_private":
        return _event("NonPrivateDpEvent")
    raise ValueError(f"no DpEvent says what {kind} costs as it is stated here")


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
