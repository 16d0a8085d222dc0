"""A measurement of OpenDP as mechanisms: its kind and its parameters, from how it was made.

OpenDP notes on every object by which constructor it was made, and from what, so that it can be
serialised. The readers below follow these notes to the noise, and carry the input distance through
the stability maps on the way. What has no reader is declared by its own privacy map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from accountant.adapters.libraries import needs, sampler
from accountant.adapters.opendp import frames, thresholds, wrong
from accountant.adapters.opendp.losses import CURVES, SMALLEST, Loss, declare, loss_of
from accountant.adapters.opendp.stating import (
    Answer,
    down,
    exactly,
    gaussian_noise,
    laplace_noise,
    number,
    root,
    up,
)
from accountant.client.amounts import Amount
from accountant.client.mechanisms import declared, mechanism

with needs("opendp"):
    from opendp.mod import Measurement, Odometer

Body = dict[str, Any]
_ADDED: Final = "add_or_remove_one"
_REPLACED: Final = "replace_one"
_RELATIONS: Final = {
    "SymmetricDistance": _ADDED,
    "InsertDeleteDistance": _ADDED,
    "SymmetricIdDistance": _ADDED,
    "FrameDistance<SymmetricDistance>": _ADDED,
    "FrameDistance<InsertDeleteDistance>": _ADDED,
    "FrameDistance<SymmetricIdDistance>": _ADDED,
    "ChangeOneDistance": _REPLACED,
    "HammingDistance": _REPLACED,
    "ChangeOneIdDistance": _REPLACED,
    "DiscreteDistance": _REPLACED,
}
"""The neighbouring relation of each metric on data; a metric on answers has none."""
_PURE: Final = 7
"""From an epsilon of almost 8 on the service knows a smaller rho of the exponential mechanism than
OpenDP, which is taken at its word there."""
_ROUNDED: Final = 1e-9
_GAUSSIAN: Final = ("gaussian", "discrete_gaussian")


@dataclass(frozen=True, slots=True)
class Asked:
    """A measurement at an input distance. ``delta`` is where Gaussian noise takes its epsilon;
    ``relation`` is the one that the distance bounds, if known.
    """

    measurement: Any
    d_in: Any
    delta: Amount | None
    relation: str | None

    @property
    def loss(self) -> Loss:
        """OpenDP's own answer."""
        return loss_of(self.measurement, self.d_in, self.delta)

    @property
    def answer(self) -> Answer:
        """What its noise is added to."""
        return Answer(self.measurement.input_carrier_type)

    def declared(self) -> list[Body]:
        """Return it on OpenDP's word. Raise WrongMap where that is known to be too little."""
        wrong.refuse(self.measurement, self.d_in, believed=True)
        return [declare(self.loss)]


def mechanisms_of(
    measurement: Any,
    d_in: Any,
    *,
    delta: Amount | None = None,
    neighbouring: str | None = None,
) -> list[Body]:
    """Return the mechanisms that one invocation of ``measurement`` runs, for data sets at most
    ``d_in`` apart: never cheaper than its own map says, and dearer where that is known to be wrong
    (``KNOWN_WRONG``).

    ``delta`` is the one at which Gaussian noise under zCDP gets an epsilon; it is charged once for
    each. ``neighbouring`` says what ``d_in`` bounds where the metric does not: a metric on answers,
    or two rows of a SymmetricDistance that stand for one that is replaced.

    Raise TypeError for what is no measurement, WrongMap or ValueError for one that has no price.
    """
    if isinstance(measurement, Odometer):
        raise TypeError("an odometer bounds nothing: charge the measurements that it is asked")
    if not isinstance(measurement, Measurement):
        raise TypeError(f"{type(measurement).__name__} is not a measurement of OpenDP")
    wrong.refuse(measurement, d_in)
    relation = _relation(measurement.input_metric, d_in, neighbouring)
    found = _parts(Asked(measurement, d_in, delta, relation))
    common = {"neighbouring": relation} if relation else {}
    return [{**each, **common, "sampler": sampler("opendp")} for each in found]


def _relation(metric: Any, d_in: Any, wanted: str | None) -> str | None:
    """Return the relation in which ``d_in`` bounds a unit. Raise ValueError for a wrong one."""
    own = _RELATIONS.get(str(metric.type))
    if wanted is None or wanted == own or own is None:
        return wanted or own
    if own == _ADDED and wanted == _REPLACED and isinstance(d_in, int) and not d_in % 2:
        return wanted
    raise ValueError(
        f"{metric} at distance {d_in} bounds {own}, not {wanted}: to replace a row is to remove "
        "one and to add one, at a SymmetricDistance of 2; leave neighbouring out"
    )


def _parts(asked: Asked) -> list[Body]:
    """Return the mechanisms of a measurement by its reader, or as declared."""
    made = wrong.made(asked.measurement)
    reader = _READERS.get(made.constructor) if made else None
    if made is None or reader is None:
        return asked.declared()
    if made.constructor in _PASSED_ON:
        return reader(asked, made.fields)
    loss = asked.loss
    return [declare(loss)] if loss.infinite or loss.zero else reader(asked, made.fields)


# What is made from another measurement.


def _chained(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    before = fields["transformation0"]
    middle, grown = before.map(asked.d_in), wrong.growth(before)
    if grown > 1:
        middle = math.nextafter(float(Fraction(middle) * grown), math.inf)
    return _parts(replace(asked, measurement=fields["measurement1"], d_in=middle))


def _postprocessed(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    return _parts(replace(asked, measurement=fields["measurement0"]))


def _same_noise(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    """Read through a change of measure: the service converts losses with bounds of its own."""
    return _parts(replace(asked, measurement=fields["measurement"]))


def _composed(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    """Read the parts, if they cost no less than the whole: their list may have changed since then.
    Curves are not compared.
    """
    parts = [replace(asked, measurement=part) for part in fields["measurements"]]
    if str(asked.measurement.output_measure.type) not in CURVES:
        total, whole = math.fsum(part.loss.main for part in parts), asked.loss.main
        if total < whole * (1 - _ROUNDED):
            return asked.declared()
    return [body for part in parts for body in _parts(part)]


def _at_delta(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    """Read a fixed delta: one Gaussian noise claims OpenDP's epsilon there, several share it."""
    inner = replace(asked, measurement=fields["measurement"], delta=None)
    found = _parts(replace(inner, delta=fields["delta"]))
    noise = [body for body in found if body["kind"] in _GAUSSIAN]
    rest = [body for body in found if body["kind"] not in _GAUSSIAN]
    if any(body.get("epsilon") is None for body in rest if body["kind"] == "declared"):
        return asked.declared()  # by a rho, of which nothing says how the delta is shared
    if len(found) == 1 and noise:
        loss = asked.loss
        claimed = {"epsilon": loss.main, "delta": loss.delta}
        return [mechanism(**found[0] | {"delta": loss.delta, "claimed": claimed})]
    share = down(number(fields["delta"]) / max(len(noise), 1))
    return [mechanism(**body | {"delta": share}) if body in noise else body for body in found]


# Noise on numbers.


def _laplace(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    width, k = asked.d_in, fields.get("k")
    return [laplace_noise(asked.answer, width, fields["scale"], k, asked.loss)]


def _gaussian(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    width, k = asked.d_in, fields.get("k")
    body = gaussian_noise(asked.answer, width, fields["scale"], k, asked.loss)
    return [mechanism(**body, delta=asked.delta)]


def _noise(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    """Read the noise that suits the measure: Laplace for epsilons, Gaussian for rhos."""
    return (_laplace if asked.loss.rho is None else _gaussian)(asked, fields)


def _thresholded(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    """Read noisy counts of which those from a threshold on are seen: the noise, and the delta."""
    keys, total, single = asked.d_in
    loss, answer, gaussian = asked.loss, asked.answer, asked.loss.rho is not None
    most = number(single) * (root(Fraction(keys)) if gaussian else keys)
    width, k = min(number(total), most), fields.get("k")
    alone = min(exactly(single), width)
    state = gaussian_noise if gaussian else laplace_noise
    body = state(answer, width, fields["scale"], k, replace(loss, delta=0.0))
    body = mechanism(**body, delta=asked.delta) if gaussian else body
    tail = thresholds.gaussian_tail if gaussian else thresholds.laplace_tail
    step = Fraction(1) if answer.whole else Fraction(2) ** (_finest(answer) if k is None else k)
    left = _steps(exactly(fields["threshold"]), step) - _steps(alone, step)
    seen = thresholds.of_keys(tail(max(left, 0), exactly(fields["scale"]) / step), keys)
    delta = max(seen, Decimal(loss.delta), Decimal(SMALLEST))
    return [body, declared(epsilon=0, delta=up(Fraction(delta)))]


def _steps(value: Fraction, step: Fraction) -> int:
    """Return the nearest multiple of the lattice, halves upward."""
    return math.floor(value / step + Fraction(1, 2))


def _finest(answer: Answer) -> int:
    """Return the k of the default lattice of floats."""
    return -149 if answer.atom == "f32" else -1074


# Choices and answers at random.


def _best(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    """Read the best of noisy scores. Those that all move in one direction cost half of it."""
    return _chosen(asked, fields, number(asked.d_in))


def _quantile(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    """Read a private quantile, the best of noisy scores that nobody sees."""
    return _chosen(asked, fields, None)


def _chosen(asked: Asked, fields: Mapping[str, Any], width: Fraction | None) -> list[Body]:
    """Return choices by scores that a unit changes by ``width``; where that is not known, by what
    explains the map: with exponential noise, which is permute-and-flip, under an epsilon, and with
    Gumbel noise, which is the exponential mechanism, under a rho.
    """
    loss, scale, times = asked.loss, number(fields["scale"]), int(fields.get("k") or 1)
    gumbel, one = loss.rho is not None, number(loss.main) / times
    epsilon = root(8 * one) if gumbel else one
    if gumbel and epsilon > _PURE:
        return asked.declared()
    halved = width is not None and 2 * epsilon * scale < 3 * width
    monotonic = halved and asked.relation == _ADDED
    if width is None or (halved and not monotonic):
        width = Fraction(up(epsilon * scale / 2))
    needed = epsilon if monotonic else epsilon / 2
    if width < needed * scale:
        scale = Fraction(down(width / needed))
    return [
        mechanism(
            "exponential" if gumbel else "permute_and_flip",
            sensitivity=width,
            scale=scale,
            monotonic=monotonic or None,
            count=times,
            claimed=None if gumbel else {"epsilon": up(one)},
        )
    ]


def _flipped(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    categories = len(set(fields["categories"])) if "categories" in fields else 2
    claimed = {"epsilon": asked.loss.main}
    return [
        mechanism(
            "randomized_response", theta=fields["prob"], categories=categories, claimed=claimed
        )
    ]


def _flipped_bits(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    """Read bits each of which is flipped with half the probability f, of which a value sets m."""
    if wrong.BITS.dated(wrong.installed()):
        return [mechanism("non_private")]
    chance, claimed = number(fields["f"]), {"epsilon": asked.loss.main}
    one = 2 * math.log((2 - float(chance)) / float(chance))
    weight = round(asked.loss.main / one)
    p, q = 1 - chance / 2, chance / 2
    return [mechanism("unary_encoding", p=p, q=q, hashes=weight, claimed=claimed)]


def _frame(asked: Asked, fields: Mapping[str, Any]) -> list[Body]:
    return frames.mechanisms(asked.measurement, asked.d_in, asked.delta)


Reader = Callable[[Asked, Mapping[str, Any]], list[Body]]
_PASSED_ON: Final[dict[str, Reader]] = {
    "make_chain_mt": _chained,
    "make_chain_pm": _postprocessed,
    "make_composition": _composed,
    "make_basic_composition": _composed,
    "make_approximate": _same_noise,
    "make_pureDP_to_zCDP": _same_noise,
    "make_zCDP_to_approxDP": _same_noise,
    "make_fixed_approxDP_to_approxDP": _same_noise,
    "make_fix_delta": _at_delta,
}
_READERS: Final[dict[str, Reader]] = _PASSED_ON | {
    "make_laplace": _laplace,
    "make_geometric": _laplace,
    "make_gaussian": _gaussian,
    "make_noise": _noise,
    "make_laplace_threshold": _thresholded,
    "make_gaussian_threshold": _thresholded,
    "make_noise_threshold": _thresholded,
    "make_noisy_max": _best,
    "make_noisy_top_k": _best,
    "make_report_noisy_max_gumbel": _best,
    "make_private_quantile": _quantile,
    "make_randomized_response": _flipped,
    "make_randomized_response_bool": _flipped,
    "make_randomized_response_bitvec": _flipped_bits,
    "make_private_lazyframe": _frame,
}
