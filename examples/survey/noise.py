"""Noise drawn by OpenDP, beside the data and never in the service.

A ``Noise`` holds a sampler and its declaration for the service together, so that they agree. The
declaration claims the epsilon of OpenDP's own privacy map. The service books no less than a claim,
and refuses one below its own derivation: a grant always covers OpenDP's cost of the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from opendp import domains, measurements, metrics  # their prelude loads all of scikit-learn
from opendp.mod import enable_features

enable_features("contrib")

FLIPS: Final = 0.375
"""The probability that a reported bit of the unary encoding is wrong."""
_SAMPLER: Final = {"library": "opendp", "version": version("opendp")}


@dataclass(frozen=True, slots=True)
class Noise:
    """A sampler, its declaration for the service, and OpenDP's epsilon of one use."""

    declaration: dict[str, Any]
    epsilon: float
    draw: Callable[[Any], Any]


def laplace(scale: Decimal) -> Noise:
    """Return Laplace noise for a number that one woman's answers change by at most 1. OpenDP draws
    it on a fine lattice and rounds once, so that the bits of the result reveal nothing (Mironov
    2012 broke naive samplers).
    """
    space = domains.atom_domain(T=float, nan=False), metrics.absolute_distance(T=float)
    sampler = measurements.make_laplace(*space, scale=float(scale))
    return _declared("laplace", sampler, 1.0, sensitivity="1", scale=str(scale))


def discrete_laplace(scale: Decimal) -> Noise:
    """Return whole-number Laplace noise for a count that one woman's answers change by at most 1.
    OpenDP's ``make_laplace`` samples this other mechanism where it is given whole numbers.
    """
    space = domains.atom_domain(T=int), metrics.absolute_distance(T=int)
    sampler = measurements.make_laplace(*space, scale=float(scale))
    return _declared("discrete_laplace", sampler, 1, sensitivity="1", scale=str(scale))


def two_coins() -> Noise:
    """Return randomized response: the first coin chooses the truth or a second coin's answer.
    OpenDP's parameter is the probability of the true answer however it arises: 1/2 + 1/4.
    """
    sampler = measurements.make_randomized_response_bool(0.75)
    return _declared("randomized_response", sampler, 1, truth_probability="0.5")


def unary_encoding(categories: int) -> Noise:
    """Return the noise of a one-hot vector of ``categories`` bits: ``FLIPS`` flips each bit.
    OpenDP's ``f`` is the probability that a fair coin replaces a bit, which flips it in half of the
    cases. Two women's vectors differ in two bits, whatever the number of categories.
    """
    space = domains.bitvector_domain(max_weight=1), metrics.discrete_distance()
    sampler = measurements.make_randomized_response_bitvec(*space, f=2 * FLIPS)

    def draw(bits: tuple[int, ...]) -> tuple[int, ...]:
        packed = np.packbits(np.array(bits, dtype=np.uint8)).tobytes()
        noisy = np.unpackbits(np.frombuffer(sampler(packed), dtype=np.uint8))
        return tuple(noisy[:categories].tolist())

    declared = _declared("unary_encoding", sampler, 1, p=str(1 - FLIPS), q=str(FLIPS))
    return replace(declared, draw=draw)


def _declared(kind: str, sampler: Any, distance: float, **parameters: str) -> Noise:
    epsilon = float(sampler.map(distance))
    claimed = {"epsilon": str(epsilon)}
    return Noise(
        {"kind": kind, **parameters, "claimed": claimed, "sampler": _SAMPLER}, epsilon, sampler
    )


class AboveThreshold:
    """The sparse vector technique: Lyu, Su, Li 2017, Algorithm 7, with OpenDP's Laplace noise.

    It answers many questions whether a count reaches a threshold; only answers "above" cost. The
    broken variants lack one of three points: the threshold's noise is drawn once; each comparison
    has fresh noise, scaled with ``positives``, the number of answers "above" after which it stops;
    and no number is released.
    """

    def __init__(
        self,
        threshold: float,
        *,
        threshold_scale: Decimal,
        comparison_scale: Decimal,
        positives: int,
    ) -> None:
        once, self._fresh = laplace(threshold_scale), laplace(comparison_scale)
        # A positive costs twice the sensitivity over the scale: map it at distance 2.
        self.epsilon = once.epsilon + positives * 2 * self._fresh.epsilon
        self.left = positives
        self.declaration = {
            "kind": "sparse_vector",
            "sensitivity": "1",
            "threshold_scale": str(threshold_scale),
            "comparison_scale": str(comparison_scale),
            "max_positives": positives,
            "claimed": {"epsilon": str(self.epsilon)},
            "sampler": _SAMPLER,
        }
        self._threshold = once.draw(threshold)  # reads no data

    def ask(self, count: float) -> bool:
        """Return whether a count is above. Raise RuntimeError after the last positive."""
        if self.left == 0:
            raise RuntimeError("the session has used up its positives")
        above = bool(self._fresh.draw(count) >= self._threshold)
        self.left -= above
        return above
