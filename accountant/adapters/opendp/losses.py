"""What OpenDP itself says that a measurement costs, in each of its measures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

from accountant.client.amounts import Amount
from accountant.client.mechanisms import declared, mechanism

ORDERS: Final = (*range(2, 65), 128, 256, 512, 1024)
"""The orders at which a Renyi curve is read."""
CURVES: Final = ("RenyiDivergence", "SmoothedMaxDivergence")
"""The measures whose losses are functions, which do not add up as numbers do."""
SMALLEST: Final = 1e-30
"""The smallest amount but zero that the service reads; what is smaller is stated as this."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A privacy map's answer: epsilon, rho or Renyi divergences by order, beside a delta."""

    epsilon: float | None = None
    rho: float | None = None
    delta: float = 0.0
    renyi: dict[int, float] = field(default_factory=dict)

    @property
    def main(self) -> float:
        """Epsilon or rho; of a curve its smallest divergence."""
        if self.epsilon is not None:
            return self.epsilon
        return self.rho if self.rho is not None else min(self.renyi.values(), default=math.inf)

    @property
    def infinite(self) -> bool:
        """True if it bounds nothing."""
        return not math.isfinite(self.main) or self.delta >= 1

    @property
    def zero(self) -> bool:
        """True if nothing is lost."""
        return not self.infinite and not self.main and not self.delta and not self.renyi


def loss_of(measurement: Any, d_in: Any, delta: Amount | None = None) -> Loss:
    """Return ``measurement.map(d_in)`` read by the measurement's measure. ``delta`` is where a
    privacy profile is read. Raise ValueError for a measure without a meaning here.
    """
    measure, found = str(measurement.output_measure.type), measurement.map(d_in)
    match measure:
        case "MaxDivergence":
            return Loss(epsilon=found)
        case "Approximate<MaxDivergence>":
            return Loss(epsilon=found[0], delta=found[1])
        case "ZeroConcentratedDivergence":
            return Loss(rho=found)
        case "Approximate<ZeroConcentratedDivergence>":
            return Loss(rho=found[0], delta=found[1])
        case "RenyiDivergence":
            return Loss(renyi=_points(found))
        case "SmoothedMaxDivergence" if delta is not None:
            return Loss(epsilon=found.epsilon(delta=float(delta)), delta=float(delta))
        case "SmoothedMaxDivergence":
            raise ValueError(
                "the measurement has a privacy profile, not one epsilon: name a delta, or use "
                "make_fix_delta"
            )
    raise ValueError(
        f"nothing is known of the measure {measurement.output_measure}: make the measurement in "
        "MaxDivergence, ZeroConcentratedDivergence, RenyiDivergence or an approximation of these"
    )


def _points(curve: Any) -> dict[int, float]:
    """Return the finite divergences of a curve at whole orders."""
    found = {order: float(curve(float(order))) for order in ORDERS}
    return {order: value for order, value in found.items() if math.isfinite(value)}


def declare(loss: Loss) -> dict[str, Any]:
    """Return the mechanism that costs ``loss``, on OpenDP's word; non_private if it is infinite."""
    if loss.infinite:
        return mechanism("non_private")
    delta = max(loss.delta, SMALLEST) if loss.delta else None
    if loss.renyi:
        return mechanism("declared", renyi={str(key): each for key, each in loss.renyi.items()})
    return declared(epsilon=loss.epsilon, rho=loss.rho, delta=delta)
