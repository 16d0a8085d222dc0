"""The one thing of the client that needs an adapter: nothing that adapters import may import it."""

from __future__ import annotations

from typing import Any


def from_opendp(measurement: Any, d_in: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the mechanisms of one invocation of an OpenDP ``Measurement`` for data sets at most
    ``d_in`` apart. ``options`` are those of ``accountant.adapters.opendp.mechanisms_of``, which
    says what is derived and what is declared; it is loaded when this is called.
    """
    from accountant.adapters.opendp import mechanisms_of  # noqa: PLC0415 (needs OpenDP)

    return mechanisms_of(measurement, d_in, **options)
