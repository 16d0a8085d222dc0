"""Noise, drawn by OpenDP, beside the data and never in the service.

Each ``Noise`` holds a sampler together with the words that declare it, so that what is declared and
what runs cannot drift apart. ``epsilon`` is OpenDP's own privacy map, a second opinion on what the
service derives from the declaration; ``covered`` compares the two before anything is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np
import opendp.prelude as dp

dp.enable_features("contrib")

T = TypeVar("T")
_SAMPLER: Final = {"library": "opendp", "version": version("opendp")}


@dataclass(frozen=True, slots=True)
class Noise(Generic[T]):
    """A sampler, its declaration for the service, and OpenDP's epsilon of one use."""

    declaration: dict[str, Any]
    epsilon: float
    draw: Callable[[T], T]


def laplace(scale: Decimal) -> Noise[float]:
    """Laplace noise for a number that one woman's answers change by at most 1.

    OpenDP draws it on a lattice as fine as floats allow and rounds once, so that the bits of the
    result give nothing away (Mironov 2012 showed that naive samplers do).
    """
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    sampler = dp.m.make_laplace(*space, scale=float(scale))
    return _declared("laplace", sampler, 1.0, {"sensitivity": "1", "scale": str(scale)})


def discrete_laplace(scale: Decimal) -> Noise[int]:
    """Whole-number Laplace noise for a count that one woman's answers change by at most 1.

    On whole numbers OpenDP's ``make_laplace`` samples the discrete distribution: another mechanism,
    so it is declared as one.
    """
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    sampler = dp.m.make_laplace(*space, scale=float(scale))
    return _declared("discrete_laplace", sampler, 1, {"sensitivity": "1", "scale": str(scale)})


def two_coins() -> Noise[bool]:
    """Randomized response: the first coin decides between the truth and a second coin's answer.

    OpenDP's parameter is the probability of the true answer however it comes about: 1/2 + 1/4.
    """
    sampler = dp.m.make_randomized_response_bool(0.75)
    return _declared("randomized_response", sampler, 1, {"truth_probability": "0.5"})


FLIPS: Final = 0.375
"""Probability that a reported bit of the unary encoding is wrong."""


def unary_encoding(categories: int) -> Noise[tuple[int, ...]]:
    """A one-hot vector of ``categories`` bits, each flipped with probability ``FLIPS``.

    OpenDP's ``f`` is the probability that a bit is replaced by a fair coin, which flips it in half
    of the cases. Two women's vectors differ in two bits, whatever the number of categories.
    """
    space = dp.bitvector_domain(max_weight=1), dp.discrete_distance()
    sampler = dp.m.make_randomized_response_bitvec(*space, f=2 * FLIPS)

    def draw(bits: tuple[int, ...]) -> tuple[int, ...]:
        packed = np.packbits(np.array(bits, dtype=np.uint8)).tobytes()
        noisy = np.unpackbits(np.frombuffer(sampler(packed), dtype=np.uint8))
        return tuple(int(bit) for bit in noisy[:categories])

    declared = {"p": str(1 - FLIPS), "q": str(FLIPS)}
    noise: Noise[Any] = _declared("unary_encoding", sampler, 1, declared)
    return Noise(noise.declaration, noise.epsilon, draw)


def _declared(kind: str, sampler: Any, distance: float, parameters: dict[str, str]) -> Noise[Any]:
    epsilon = float(sampler.map(distance))
    return Noise(
        {"kind": kind, **parameters, "claimed": {"epsilon": str(epsilon)}, "sampler": _SAMPLER},
        epsilon,
        sampler,
    )


class NotCovered(Exception):
    """What is about to run may cost more than what was granted for it."""


def covered(granted: Decimal, epsilons: Iterable[float]) -> None:
    """Raises NotCovered unless ``granted`` pays for everything that is about to run.

    A pipeline asks this between getting its grant and drawing its noise. Fails only if somebody
    changes the noise and forgets the request.
    """
    needed = sum((Decimal(epsilon) for epsilon in epsilons), start=Decimal(0))
    if needed > granted:
        raise NotCovered(f"OpenDP puts it at epsilon {needed}, granted were {granted}")


Answer = Literal["above", "below"]


class AboveThreshold:
    """The sparse vector technique: Lyu, Su, Li 2017, Algorithm 7, with OpenDP's Laplace noise.

    Many questions of the form "is this count at least so many?"; only answers "above" cost. What
    makes it private, and what the broken variants lack: the threshold is noisy and its noise is
    drawn once; every comparison has fresh noise, scaled with ``positives``, the number of answers
    "above" after which it stops; and no number is ever released.
    """

    def __init__(
        self,
        threshold: float,
        *,
        threshold_scale: Decimal,
        comparison_scale: Decimal,
        positives: int,
    ) -> None:
        drawn_once, self._fresh = laplace(threshold_scale), laplace(comparison_scale)
        # A positive costs twice the sensitivity over the scale: map it at distance 2.
        self.epsilon = drawn_once.epsilon + positives * 2 * self._fresh.epsilon
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
        self._threshold = drawn_once.draw(threshold)  # touches no data yet

    def ask(self, count: float) -> Answer:
        """Whether a count is above. Raises NotCovered after the last positive."""
        if self.left == 0:
            raise NotCovered("the session has used up its positives")
        if self._fresh.draw(count) >= self._threshold:
            self.left -= 1
            return "above"
        return "below"
