"""The meaning of an epsilon, for readers of reports. Nothing here takes part in a decision.

From Bayes' rule: an observer of the releases can move the odds of any statement about one unit by
at most a factor e^epsilon either way (Kasiviswanathan and Smith 2014). Floats are good enough for
print; they are widened by a part in 1e12 and printed rounded outward.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

_WIDER: Final = 1e-12
_COUNTABLE: Final = Decimal("13.8")
"""Up to about ln(1,000,000) a factor is printed in full; a larger one "exceeds a million"."""


def most_likely(prior: float, epsilon: Decimal | None) -> float:
    """Return the largest belief after ``prior``: p e^eps / (1 - p + p e^eps). None is unbounded."""
    if not 0 <= prior <= 1:
        raise ValueError(f"a prior lies from 0 to 1, not {prior}")
    shrink = 0.0 if epsilon is None else math.exp(-float(epsilon))
    return min(1.0, prior / (prior + (1 - prior) * shrink) * (1 + _WIDER)) if prior else 0.0


def in_plain_words(epsilon: Decimal | None, delta: Decimal, unit: str = "one person") -> str:
    """Return one or two sentences for a report. ``unit`` is protected, such as "one person"."""
    if epsilon is None:
        return f"There is no bound: these releases may have revealed everything about {unit}."
    if epsilon > _COUNTABLE:
        bound = "may be more than a million times"
        belief = "may become all but certainty, either way"
    else:
        factor = math.exp(float(epsilon)) * (1 + _WIDER)
        times = f"{_ceil(factor, 3):.3f}" if factor < 100 else f"{math.ceil(factor):,}"
        bound = f"is at most {times} times"
        # As many digits as it takes for the bounds not to read 0 % and 100 %.
        digits = max(1, math.ceil(float(epsilon) / math.log(10)) - 1)
        high = _ceil(100 * most_likely(0.5, epsilon), digits)
        belief = f"stays between {100 - high:.{digits}f} % and {high:.{digits}f} %"
    failure = f", except with probability about {delta:g}" if delta else ""
    return (
        f"Anything that happens {bound} more or less likely because of the data of {unit}"
        f"{failure}. A belief held at 50 % {belief}."
    )


def _ceil(value: float, digits: int) -> float:
    return math.ceil(value * 10.0**digits) / 10.0**digits
