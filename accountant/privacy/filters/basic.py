"""Basic composition."""

from __future__ import annotations

from accountant.privacy.filters.base import Filter


class Basic(Filter):
    """The sum of epsilons and the sum of deltas.

    Source: Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters", NeurIPS 2016 (fully
    adaptive); Vadhan and Wang 2021, Vadhan and Zhang 2023 (concurrent interactive mechanisms).
    Precondition: none beyond (epsilon_i, delta_i)-DP of each mechanism given its past.
    """

    name = "basic"
