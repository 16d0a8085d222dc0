"""Mechanisms as the service reads them: what will run, with its parameters.

Every function returns a plain dictionary. Numbers of any kind are sent exactly; where a fraction
has no finite decimal, a sensitivity is rounded up and a scale down, so that the charge is never too
small. All take ``count`` (independent invocations) and the other fields that every kind has:
``sampling``, ``group_size``, ``neighbouring``, ``claimed`` and ``sampler``; those that have a
sensitivity take ``sensitivity_per``, by further unit.

    >>> laplace(1, scale=10)
    {'kind': 'laplace', 'sensitivity': '1', 'scale': '10'}
    >>> gaussian(1, scale=4, count=3, sampling=poisson(0.01))["sampling"]
    {'poisson': '0.01'}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack

from accountant.client.amounts import DOWN, UP, Amount, exact

Mechanism = Mapping[str, Any]
"""A mechanism as the service's OpenAPI document describes it; amounts are decimal strings."""

_DEARER: Final = {
    "sensitivity": UP, "l1": UP, "l2": UP, "epsilon": UP, "delta": UP, "rho": UP, "mu": UP,
    "by": UP, "poisson": UP, "rate": UP, "mean": UP, "shape": UP, "scale": DOWN,
    "threshold_scale": DOWN, "comparison_scale": DOWN, "answer_scale": DOWN, "distance_scale": DOWN,
    "threshold": DOWN,
    "noise_multiplier": DOWN, "standard_deviation": DOWN, "sampling_probability": UP,
}  # fmt: skip
"""The side to which a number is rounded where it has no finite decimal: the one that costs more."""
WHOLE: Final = frozenset(
    {"count", "group_size", "categories", "max_positives", "leaves", "leaves_per_unit", "rounds",
     "draws", "budget", "blocks_per_unit", "hashes", "reports", "allocation", "sample", "of",
     "at_most"}
)  # fmt: skip
"""Fields that are counts and stay JSON integers."""


class Common(TypedDict, total=False):
    """The fields of every kind. None is not sent."""

    count: int
    sampling: Mapping[str, Any] | None
    group_size: int | None
    neighbouring: str | None
    claimed: Mapping[str, Amount] | None
    sampler: Mapping[str, str] | None
    sensitivity_per: Mapping[str, Any] | None


def mechanism(kind: str, **fields: Any) -> dict[str, Any]:
    """Return a mechanism of any kind with its numbers spelled exactly; None is left out."""
    body = {name: _spelled(name, value) for name, value in fields.items() if value is not None}
    if body.get("count") == 1:
        del body["count"]
    return {"kind": kind, **body}


def _spelled(name: str, value: Any) -> Any:
    """Return a field's value as it is sent: amounts as strings, counts as integers."""
    if isinstance(value, Mapping):
        unit = name == "sensitivity_per"  # its keys are names of units
        named = ((key, inner) for key, inner in value.items() if inner is not None)
        return {key: _spelled("sensitivity" if unit else key, inner) for key, inner in named}
    if isinstance(value, list | tuple):
        return [_spelled(name, inner) for inner in value]
    if isinstance(value, bool | str):
        return value
    if name in WHOLE:
        if int(value) != value:
            raise ValueError(f"{name} must be a whole number, not {value!r}")
        return int(value)
    return exact(value, _DEARER.get(name))


def laplace(sensitivity: Any, scale: Amount, **common: Unpack[Common]) -> dict[str, Any]:
    """Laplace noise of ``scale`` b on an answer that one unit changes by ``sensitivity`` (L1)."""
    return mechanism("laplace", sensitivity=sensitivity, scale=scale, **common)


def discrete_laplace(sensitivity: Any, scale: Amount, **common: Unpack[Common]) -> dict[str, Any]:
    """Laplace noise on whole numbers (geometric)."""
    return mechanism("discrete_laplace", sensitivity=sensitivity, scale=scale, **common)


def gaussian(
    sensitivity: Any, scale: Amount, *, delta: Amount | None = None, **common: Unpack[Common]
) -> dict[str, Any]:
    """Normal noise of deviation ``scale`` on an answer that one unit changes by ``sensitivity``
    (L2). ``delta``: where the limits count epsilon only.
    """
    return mechanism("gaussian", sensitivity=sensitivity, scale=scale, delta=delta, **common)


def discrete_gaussian(
    sensitivity: Any, scale: Amount, *, delta: Amount | None = None, **common: Unpack[Common]
) -> dict[str, Any]:
    """Normal noise on whole numbers."""
    fields = {"sensitivity": sensitivity, "scale": scale, "delta": delta}
    return mechanism("discrete_gaussian", **fields, **common)


def exponential(
    sensitivity: Amount, scale: Amount, *, monotonic: bool = False, **common: Unpack[Common]
) -> dict[str, Any]:
    """A choice with probabilities in proportion to e^(score / ``scale``), or the largest score with
    Gumbel noise of that scale. epsilon = 2 sensitivity / scale; half of that if ``monotonic``.
    """
    fields = {"sensitivity": sensitivity, "scale": scale, "monotonic": monotonic or None}
    return mechanism("exponential", **fields, **common)


def permute_and_flip(
    sensitivity: Amount, scale: Amount, *, monotonic: bool = False, **common: Unpack[Common]
) -> dict[str, Any]:
    """The largest score with exponential noise of ``scale``."""
    fields = {"sensitivity": sensitivity, "scale": scale, "monotonic": monotonic or None}
    return mechanism("permute_and_flip", **fields, **common)


def randomized_response(
    *,
    truth_probability: Amount | None = None,
    theta: Amount | None = None,
    categories: int = 2,
    **common: Unpack[Common],
) -> dict[str, Any]:
    """One of ``categories``, reported at random. Either the truth outright with
    ``truth_probability``, else any; or the true one with probability ``theta``, else another.
    """
    fields = {"truth_probability": truth_probability, "theta": theta, "categories": categories}
    return mechanism("randomized_response", **fields, **common)


def unary_encoding(p: Amount, q: Amount, **common: Unpack[Common]) -> dict[str, Any]:
    """One bit a category: 1 with probability ``p`` if it is the true one, else ``q``."""
    return mechanism("unary_encoding", p=p, q=q, **common)


def sparse_vector(
    sensitivity: Amount,
    *,
    threshold_scale: Amount,
    comparison_scale: Amount,
    max_positives: int,
    answer_scale: Amount | None = None,
    monotonic: bool = False,
    **common: Unpack[Common],
) -> dict[str, Any]:
    """A session of comparisons with a noisy threshold, which ends after ``max_positives``. With
    ``answer_scale`` each positive also publishes a number with fresh noise.
    """
    releases = None if answer_scale is None else "fresh_noisy_answer"
    scales = {"threshold_scale": threshold_scale, "comparison_scale": comparison_scale}
    more = {"answer_scale": answer_scale, "max_positives": max_positives, "releases": releases}
    fields = {"sensitivity": sensitivity, **scales, **more, "monotonic": monotonic or None}
    return mechanism("sparse_vector", **fields, **common)


def dp_sgd(
    noise_multiplier: Amount,
    sampling_rate: Amount,
    steps: int,
    *,
    records_per_unit: int | None = None,
) -> dict[str, Any]:
    """Training with clipped gradients: each of ``steps`` adds normal noise of ``noise_multiplier``
    times the clipping norm to a sum over a Poisson sample. Precondition: each record is in each
    batch with probability ``sampling_rate``, independently; shuffled batches are not (see
    ``dp_sgd_of_fixed_batches``, and the documentation for training runs).
    """
    return gaussian(
        1, noise_multiplier, count=steps, sampling=poisson(sampling_rate),
        group_size=records_per_unit, neighbouring="add_or_remove_one",
    )  # fmt: skip


def dp_sgd_of_fixed_batches(
    noise_multiplier: Amount, batch: int, of: int, steps: int
) -> dict[str, Any]:
    """Training with batches of a fixed size, drawn anew for each step out of a public number of
    records. Replacing a record moves a sum by twice the clipping norm.
    """
    return gaussian(
        2, noise_multiplier, count=steps, sampling=without_replacement(batch, of),
        neighbouring="replace_one",
    )  # fmt: skip


def dp_ftrl(
    noise_multiplier: Amount,
    leaves: Sequence[int],
    *,
    leaves_per_unit: int | None = None,
    leaves_between: int | None = None,
) -> dict[str, Any]:
    """Running sums by binary trees of noisy partial sums, in the relation zero_out. Of a unit's
    leaves in one tree, two have ``leaves_between`` others between them, or more.
    """
    apart = {"leaves_per_unit": leaves_per_unit, "leaves_between": leaves_between}
    more = apart | {"neighbouring": "zero_out"}
    fields = {"sensitivity": {"l2": 1}, "scale": noise_multiplier, "leaves": list(leaves)}
    return mechanism("tree_aggregation", **fields, **more)


def repeat_and_select(
    repeated: Mechanism, mean: Amount, *, runs: str | None = None, shape: Amount | None = None
) -> dict[str, Any]:
    """A mechanism that is run a random number of times, ``mean`` on average, of which the best run
    is published: tuning. ``runs``: negative_binomial (geometric by its default shape) or poisson.
    """
    return mechanism("repeat_and_select", mechanism=repeated, mean=mean, runs=runs, shape=shape)


def declared(
    *,
    epsilon: Amount | None = None,
    delta: Amount | None = None,
    rho: Amount | None = None,
    mu: Amount | None = None,
    **common: Unpack[Common],
) -> dict[str, Any]:
    """What a tool states about itself. It is flagged as not verifiable: state the mechanism where
    you can.
    """
    return mechanism("declared", epsilon=epsilon, delta=delta, rho=rho, mu=mu, **common)


def composed(*mechanisms: Mechanism, **common: Unpack[Common]) -> dict[str, Any]:
    """Several as one, for instance all that run on one sample."""
    return mechanism("composed", mechanisms=mechanisms, **common)


def plan(*mechanisms: Mechanism, epsilon: Amount, delta: Amount) -> dict[str, Any]:
    """All that will run, fixed in advance, at one (epsilon, delta); it is committed as a whole.
    ``accountant compose --plan`` finds the smallest epsilon that can be stated.
    """
    return mechanism("plan", mechanisms=mechanisms, epsilon=epsilon, delta=delta)


def poisson(rate: Amount) -> dict[str, Any]:
    """Sampling: each unit is in the sample with probability ``rate``, independently."""
    return {"poisson": exact(rate, UP)}


def without_replacement(sample: int, of: int) -> dict[str, Any]:
    """Sampling: ``sample`` units out of a public number ``of`` units."""
    return {"without_replacement": {"sample": sample, "of": of}}


def from_dp_event(event: Any) -> dict[str, Any]:
    """Return a ``DpEvent`` of dp_accounting (or of JAX-Privacy) as a tree that the service reads in
    place of a mechanism.
    """
    if not type(event).__name__.endswith("DpEvent"):
        raise TypeError(f"{type(event).__name__} is not a DpEvent of dp_accounting")
    names = [attribute.name for attribute in type(event).__attrs_attrs__]
    values = {name: getattr(event, name) for name in names}
    fields = {name: _in_tree(name, value) for name, value in values.items() if value is not None}
    return {"class": type(event).__name__, "fields": fields}


def _in_tree(name: str, value: Any) -> Any:
    if hasattr(type(value), "__attrs_attrs__"):
        return from_dp_event(value)
    if isinstance(value, str | bool):
        return value
    if hasattr(value, "name") and hasattr(value, "value"):  # an enumeration
        return str(value.name)
    if hasattr(value, "__iter__"):
        return [_in_tree(name, each) for each in value]
    if value == math.inf:  # the shape that stands for Poisson runs
        return "infinity"
    spelled = exact(value, _DEARER.get(name))
    return int(spelled) if hasattr(value, "__index__") else spelled
