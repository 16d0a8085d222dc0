"""OpenDP's noise in the service's words, never cheaper than OpenDP's own map says.

OpenDP draws all noise on a lattice: whole numbers for whole-number answers, multiples of 2^k for
floats, where the smallest k is the default. The answer is rounded to the lattice first, which its
map counts as sensitivity. So noise on a lattice that the caller chose is stated in steps of the
lattice, as the whole-number noise that it is; the default lattice, 2^-1074, is finer than any unit
of a charge, and its noise is stated as Laplace or Gaussian.

Numbers are the decimals that floats are printed as. Where these are cheaper by a last digit than
the float that OpenDP reckons with, the scale is stated smaller by as much.
"""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, Final

from accountant.adapters.opendp.losses import Loss, declare
from accountant.client.amounts import Amount, exact
from accountant.client.mechanisms import mechanism

_CLOSE: Final = 17  # Digits that tell any two floats apart
_UP: Final = Context(prec=_CLOSE, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX)
_DOWN: Final = Context(prec=_CLOSE, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX)
_PRECISE: Final = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)
_FINE: Final = 2**53
"""From so many steps on a lattice is stated as no lattice: the sensitivity grows by more than the
two steps and the square of one by which the divergences of whole-number noise can be larger."""
_MARGIN: Final = 1 + Fraction(1, 2**50)


def number(value: Amount) -> Fraction:
    """Return a number as it is printed and stated; a fraction as it is."""
    return value if isinstance(value, Fraction) else Fraction(exact(value))


def exactly(value: float) -> Fraction:
    """Return the number that OpenDP reckons with, to the last bit."""
    return Fraction(value if isinstance(value, int) else float(value))


def up(value: Fraction) -> Decimal:
    """Return the next decimal of 17 digits that is not less."""
    return _UP.divide(Decimal(value.numerator), Decimal(value.denominator))


def down(value: Fraction) -> Decimal:
    """Return the next decimal of 17 digits that is not more."""
    return _DOWN.divide(Decimal(value.numerator), Decimal(value.denominator))


def root(value: Fraction) -> Fraction:
    """Return the square root, rounded up where it is no fraction."""
    exact_root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if exact_root * exact_root == value:
        return exact_root
    quotient = _PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))
    square = _PRECISE.next_plus(quotient)
    return Fraction(_PRECISE.next_plus(_PRECISE.sqrt(square)))


class Answer:
    """What noise is added to: whole numbers or floats, one or several."""

    def __init__(self, carrier: Any) -> None:
        text = str(carrier)
        self.atom = re.findall(r"\w+", text)[-1]
        self.whole = self.atom[0] in "iuIU"
        self.several = "<" in text


def laplace_noise(
    answer: Answer, width: Amount, scale: Amount, k: int | None, loss: Loss
) -> dict[str, Any]:
    """Return Laplace noise of ``scale`` on an answer that a unit changes by ``width`` (L1), at
    OpenDP's epsilon as its claim.
    """
    epsilon, size = number(loss.main), number(scale)
    claimed = {"epsilon": loss.main}
    if answer.whole:
        return _whole_laplace(answer, int(number(width)), size, loss)
    if k is None:
        body = _width(answer, number(width), "l1")
        return mechanism("laplace", sensitivity=body, scale=scale, claimed=claimed)
    step = Fraction(2) ** k
    if (steps := epsilon * size / step * _MARGIN) < _FINE:  # never cut down by a last digit
        return _whole_laplace(answer, int(steps), size / step, loss)
    body = _width(answer, epsilon * size * _MARGIN, "l1")
    return mechanism("laplace", sensitivity=body, scale=scale, claimed=claimed)


def _whole_laplace(answer: Answer, steps: int, scale: Fraction, loss: Loss) -> dict[str, Any]:
    """Return whole-number noise; whole numbers less than one apart are the same."""
    if not steps:
        return declare(loss)
    body = _width(answer, Fraction(steps), "l1")
    claimed = {"epsilon": loss.main}
    return mechanism("discrete_laplace", sensitivity=body, scale=scale, claimed=claimed)


def gaussian_noise(
    answer: Answer, width: Amount, scale: Amount, k: int | None, loss: Loss
) -> dict[str, Any]:
    """Return Gaussian noise of ``scale`` on an answer that a unit changes by ``width`` (L2), of at
    least OpenDP's rho.
    """
    size, moved = number(scale), number(width)
    if answer.whole:
        single = not answer.several and moved.denominator == 1
        body = moved if single else {"l2": up(moved)}
        return _gaussian("discrete_gaussian", body, moved, size, loss)
    if k is None:
        return _gaussian("gaussian", _width(answer, moved, "l2"), moved, size, loss)
    moved, step = root(2 * number(loss.main)) * size, Fraction(2) ** k
    if moved / step < _FINE:
        body = {"l2": up(moved / step)}
        return mechanism("discrete_gaussian", sensitivity=body, scale=size / step)
    body = _width(answer, moved * _MARGIN, "l2")
    return mechanism("gaussian", sensitivity=body, scale=scale)


def _gaussian(kind: str, body: Any, width: Fraction, scale: Fraction, loss: Loss) -> dict[str, Any]:
    return mechanism(kind, sensitivity=body, scale=covering(width, scale, loss))


def covering(width: Fraction, scale: Fraction, loss: Loss) -> Decimal | Fraction:
    """Return the scale, or the largest smaller one at which normal noise costs OpenDP's rho."""
    rho = number(loss.main)
    if width * width >= 2 * rho * scale * scale:
        return scale
    return down(width / root(2 * rho))


def _width(answer: Answer, width: Fraction, norm: str) -> Any:
    """Return a sensitivity as it is stated, rounded up if its decimals do not end soon."""
    value: Any = width if width.denominator == 1 else up(width)
    return {norm: value} if answer.several else value
