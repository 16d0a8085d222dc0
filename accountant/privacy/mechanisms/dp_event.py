"""DpEvent trees of the dp_accounting library, read into mechanisms and written from them.

A tree is ``{"class": name, "fields": {…}}``, events inside events likewise. Only the classes listed
here are known; nothing is ever imported by name. What each means is said in dp_accounting's own
``dp_event.py``: the noise of its Gaussian, Laplace and discrete events is relative to a bound C on
the norm of what one record adds, so it is stated under add-or-remove-one, and replacing a record
moves the sum by 2 C. Events that name an epsilon or a rho say nothing of a relation: they are taken
in the population's.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from accountant.privacy.mechanisms.amounts import Amount, NonNegative, Positive
from accountant.privacy.mechanisms.base import MOST_INVOCATIONS
from accountant.privacy.mechanisms.relations import Relation

Body = dict[str, Any]

_DOWN: Final = Context(prec=30, rounding=ROUND_FLOOR)
_EXACT: Final = Context(prec=100)
_MOST_LEVELS: Final = 8
_MOST_EVENTS: Final = 1000
_Count = Annotated[int, Field(strict=True, ge=1, le=MOST_INVOCATIONS)]
_COUNT: TypeAdapter[int] = TypeAdapter(_Count)
_ADD: Final = Relation.ADD_OR_REMOVE_ONE
_REPLACE: Final = Relation.REPLACE_ONE


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
    """The mechanisms that a DpEvent stands for, as request bodies.

    Raises PydanticCustomError for classes that are not known, and for what cannot be said here.
    """
    bodies = _read(tree, None, 1)
    for body in bodies:
        if body.pop("_noise", False) and "neighbouring" not in body:
            body["neighbouring"] = _ADD.value
    return bodies


def _refuse(text: str) -> PydanticCustomError:
    return PydanticCustomError("dp_event", "{text}", {"text": text})


def _read(tree: Any, within: Relation | None, level: int) -> list[Body]:
    """``within``: the relation of the sampling around it, if there is any."""
    if level > _MOST_LEVELS:
        raise _refuse("the DpEvent is nested too deeply")
    try:
        event = DpEvent.model_validate(tree)
    except ValidationError:
        raise _refuse('a DpEvent is {"class": name, "fields": {…}}') from None
    reader = _READERS.get(event.name)
    if reader is None:
        raise _refuse(
            f"DpEvent class {event.name!r} has no meaning here; known are: "
            + ", ".join(sorted(_READERS))
        )
    return reader(_Fields(event), within, level)


class _Fields:
    """The fields of one event, each asked for by name and type."""

    def __init__(self, event: DpEvent) -> None:
        self.event, self.left = event, dict(event.fields)

    def get(self, name: str, kind: Any, default: Any = None) -> Any:
        """The field, checked. Raises if it is missing and has no default, or is wrong."""
        if name not in self.left and default is not None:
            return default
        value = self.left.pop(name, None)
        try:
            return TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            given = f", not {value!s:.60}" if isinstance(value, str | int | float | Decimal) else ""
            raise _refuse(f"{name} of {self.event.name}: {why}{given}") from None

    def done(self, body: Body) -> list[Body]:
        """``body``, if no field is left over."""
        if self.left:
            unknown = ", ".join(sorted(map(str, self.left)))
            raise _refuse(f"{self.event.name} has no field {unknown}")
        return [body]


def _noise(kind: str, scale: Decimal, width: Decimal, within: Relation | None) -> Body:
    """Noise on a sum of vectors whose records have a norm of at most ``width``."""
    bound = _EXACT.multiply(width, Decimal(2 if within is _REPLACE else 1))
    norm = "l1" if kind in ("laplace", "discrete_laplace") else "l2"
    return {"kind": kind, "sensitivity": {norm: str(bound)}, "scale": str(scale), "_noise": True}


def _gaussian(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    scale = fields.get("noise_multiplier", Positive)
    return fields.done(_noise("gaussian", scale, Decimal(1), within))


def _laplace(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    scale = fields.get("noise_multiplier", Positive)
    return fields.done(_noise("laplace", scale, Decimal(1), within))


def _discrete_laplace(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    scale = _DOWN.divide(Decimal(1), fields.get("noise_parameter", Positive))
    width = Decimal(fields.get("sensitivity", _Count))
    return fields.done(_noise("discrete_laplace", scale, width, within))


def _discrete_gaussian(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    sigma = fields.get("sigma", Positive)
    width = fields.get("sensitivity", Positive, Decimal(1))
    fields.get("dimension", _Count | None, 1)  # rho is the same in any number of dimensions
    return fields.done(_noise("discrete_gaussian", sigma, width, within))


def _response(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    noise = fields.get("noise_parameter", Annotated[Amount, Field(gt=0, le=1)])
    buckets = fields.get("num_buckets", Annotated[int, Field(strict=True, ge=2, le=10**9)])
    truth = str(_EXACT.subtract(Decimal(1), noise))
    body = {"kind": "randomized_response", "truth_probability": truth, "categories": buckets}
    return fields.done(body)


def _choice(kind: str) -> Reader:
    def read(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
        epsilon = fields.get("epsilon", Positive)
        return fields.done({"kind": kind, "sensitivity": str(epsilon), "scale": "2"})

    return read


def _epsilon_delta(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    epsilon = fields.get("epsilon", NonNegative)
    delta = fields.get("delta", Annotated[Amount, Field(ge=0, le=1)])
    return fields.done({"kind": "declared", "epsilon": str(epsilon), "delta": str(delta)})


def _concentrated(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    rho, xi = fields.get("rho", NonNegative), fields.get("xi", NonNegative, Decimal(0))
    if xi:
        raise _refuse("ZCDpEvent with xi above 0 has no rho; declare its renyi divergences")
    return fields.done({"kind": "declared", "rho": str(rho)})


def _non_private(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    return fields.done({"kind": "non_private"})


def _nothing(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    fields.done({})
    return []


def _repeated(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    count = fields.get("count", _Count)
    bodies = _read(fields.left.pop("event", None), within, level + 1)
    fields.done({})
    for body in bodies:
        body["count"] = _COUNT.validate_python(body.get("count", 1) * count)
    return bodies


def _composed(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    events = fields.get("events", Annotated[list[Any], Field(max_length=_MOST_EVENTS)])
    fields.done({})
    return [body for event in events for body in _read(event, within, level + 1)]


def _poisson(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    rate = fields.get("sampling_probability", Annotated[Amount, Field(gt=0, le=1)])
    return _sampled(fields, {"poisson": str(rate)}, _ADD, level)


def _without_replacement(fields: _Fields, within: Relation | None, level: int) -> list[Body]:
    drawn = {"of": fields.get("source_dataset_size", _Count)}
    drawn["sample"] = fields.get("sample_size", _Count)
    return _sampled(fields, {"without_replacement": drawn}, _REPLACE, level)


def _sampled(fields: _Fields, sampling: Body, relation: Relation, level: int) -> list[Body]:
    """One event: what runs on one sample is one mechanism, amplified once."""
    bodies = _read(fields.left.pop("event", None), relation, level + 1)
    fields.done({})
    if not bodies:
        return []
    for body in bodies:
        body.pop("_noise", None)
        inner = body.pop("neighbouring", relation.value)
        if inner != relation.value or body["kind"] in ("declared", "non_private"):
            raise _refuse(f"{fields.event.name} of {body['kind']}: no amplification is proved here")
    [body] = bodies if len(bodies) == 1 else [{"kind": "composed", "mechanisms": bodies}]
    if "sampling" in body or body.get("count", 1) != 1:
        body = {"kind": "composed", "mechanisms": [body]}
    return [body | {"sampling": sampling, "neighbouring": relation.value}]


Reader = Callable[[_Fields, Relation | None, int], list[Body]]

_READERS: Final[dict[str, Reader]] = {
    "NoOpDpEvent": _nothing,
    "NonPrivateDpEvent": _non_private,
    "EpsilonDeltaDpEvent": _epsilon_delta,
    "ZCDpEvent": _concentrated,
    "GaussianDpEvent": _gaussian,
    "DiscreteGaussianDpEvent": _discrete_gaussian,
    "LaplaceDpEvent": _laplace,
    "DiscreteLaplaceDpEvent": _discrete_laplace,
    "RandomizedResponseDpEvent": _response,
    "ExponentialMechanismDpEvent": _choice("exponential"),
    "PermuteAndFlipDpEvent": _choice("permute_and_flip"),
    "ComposedDpEvent": _composed,
    "SelfComposedDpEvent": _repeated,
    "PoissonSampledDpEvent": _poisson,
    "SampledWithoutReplacementDpEvent": _without_replacement,
}
