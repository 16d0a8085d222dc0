"""OpenDP 0.14 leaves the last bit of a report as it is, and it is charged as that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

dp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed")
if not dp.__version__.startswith("0.14."):
    pytest.skip(f"OpenDP {dp.__version__} is not 0.14", allow_module_level=True)

from ledger import ROOMY, charge  # noqa: E402

from accountant.adapters.opendp import mechanisms_of  # noqa: E402

if TYPE_CHECKING:
    from service import Running

dp.enable_features("contrib")


def test_the_last_bit_is_not_private(served: Running) -> None:
    """At a half the bits of a report say nothing, but the last one says the truth: the charge is
    infinite, whatever OpenDP's map says.
    """
    bits = dp.bitvector_domain(max_weight=1), dp.discrete_distance()
    report = dp.m.make_randomized_response_bitvec(*bits, f=0.5)
    assert {report(b"\x80")[0] >> 7 for _ in range(200)} == {1}
    assert {report(b"\x01")[0] & 1 for _ in range(200)} == {0, 1}
    stated = mechanisms_of(report, 1)
    assert stated[0]["kind"] == "non_private"
    assert report.map(1) < 3
    with served.client(served.population(ROOMY, "replace_one")) as people:
        assert charge(people, stated)["epsilon"].is_infinite()


def test_other_noise_is_stated_as_in_later_versions() -> None:
    """Counts and choices are read from the same notes."""
    rows = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    noisy = rows >> dp.t.then_count() >> dp.m.then_laplace(2.0)
    [found] = mechanisms_of(noisy, 1)
    assert (found["kind"], found["sensitivity"], found["scale"]) == ("discrete_laplace", "1", "2")
    assert found["sampler"] == {"library": "opendp", "version": dp.__version__}
