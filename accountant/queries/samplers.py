"""OpenDP's samplers: whole-number Laplace and normal noise, and the exponential mechanism.

They are exact: a float that is given as a scale is taken as the fraction that it is, noise is added
in whole numbers of any size, and only the result is cut to 64 bits (Canonne, Kamath, Steinke 2020;
OpenDP's ``samplers::cks20``). OpenDP takes a second to load, so it is loaded for the first draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

WholeNoise = Callable[[Sequence[int]], list[int]]
"""Adds independent noise to each number."""


@cache
def library() -> dict[str, str]:
    """Return the library and its version, as a mechanism names them. Raise ImportError."""
    try:
        return {"library": "opendp", "version": version("opendp")}
    except PackageNotFoundError:
        raise ImportError("queries draw their noise with OpenDP: pip install opendp") from None


@cache
def _opendp() -> Any:
    import opendp.prelude as dp  # noqa: PLC0415 (a second)

    dp.enable_features("contrib")
    return dp


def discrete_laplace(scale: float) -> WholeNoise:
    """Return noise k with probability in proportion to e^(-|k| / scale)."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    found: WholeNoise = dp.m.make_laplace(*space, scale=scale)
    return found


def discrete_gaussian(scale: float) -> WholeNoise:
    """Return noise k with probability in proportion to e^(-k^2 / (2 scale^2))."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    found: WholeNoise = dp.m.make_gaussian(*space, scale=scale)
    return found


def exponential(scale: float) -> Callable[[Sequence[float]], int]:
    """Return the choice of a place i of finite scores with probability in proportion to e^(score[i]
    / scale). In OpenDP the measure selects the noise: with this one it is a place at random that is
    taken with probability e^((score - best) / scale), until one is taken.
    """
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    found: Callable[[Sequence[float]], int] = dp.m.make_noisy_max(
        *space, dp.zero_concentrated_divergence(), scale=scale
    )
    return found
