"""Where OpenDP's own maps are too small: the truth is charged, or nothing runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

dp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed")
pytest.importorskip("hypothesis", reason="hypothesis is not installed")
mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from ledger import ROOMY, charge  # noqa: E402

from accountant.adapters.opendp import (  # noqa: E402
    KNOWN_WRONG,
    WrongMap,
    mechanisms_of,
    thresholds,
)
from accountant.adapters.opendp.wrong import BITS, Made, growth, refuse  # noqa: E402
from accountant.client import Client  # noqa: E402

if TYPE_CHECKING:
    from service import Running

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
mpmath.mp.dps = 40

CLOSE = 1 + mpmath.mpf(10) ** -15
NAMES = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
COUNTS = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
SUMS = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=float, nan=False))
BY_ONE = dp.l01inf_distance(dp.absolute_distance(T=int))
BY_TWO = dp.l02inf_distance(dp.absolute_distance(T=int))
REAL_BY_ONE = dp.l01inf_distance(dp.absolute_distance(T=float))
REAL_BY_TWO = dp.l02inf_distance(dp.absolute_distance(T=float))
ORDERED = dp.insert_delete_distance()


@pytest.fixture(scope="module")
def people(served: Running) -> Iterator[Client]:
    """A population in which units are there or not."""
    with served.client(served.population(ROOMY, "add_or_remove_one")) as client:
        yield client


def true_laplace(steps: int, scale: float) -> Any:
    """The probability of at least ``steps`` of whole-number Laplace noise, with its series summed
    by mpmath.
    """
    b = mpmath.mpf(scale)
    return mpmath.nsum(lambda k: mpmath.exp(-k / b), [steps, mpmath.inf]) / (
        2 * mpmath.nsum(lambda k: mpmath.exp(-k / b), [0, mpmath.inf]) - 1
    )


def true_gaussian(steps: int, scale: float) -> Any:
    """The same of whole-number Gaussian noise, added up; all of it is a theta function."""
    s, reach = mpmath.mpf(scale), int(16 * scale) + 20
    terms = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)) for k in range(steps, steps + reach)]
    return mpmath.fsum(terms) / mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * s * s)))


def of_keys(single: Any, keys: int) -> Any:
    """The probability that one of several independent keys is seen."""
    return 1 - (1 - single) ** keys


def delta_of(mechanisms: list[dict[str, Any]]) -> Any:
    """The delta that is stated beside the noise."""
    [_, hidden] = mechanisms
    assert (hidden["kind"], hidden["epsilon"]) == ("declared", "0")
    return mpmath.mpf(hidden["delta"])


@settings(max_examples=25)
@given(
    st.integers(min_value=1, max_value=40),
    st.integers(min_value=1, max_value=5),
    st.integers(min_value=1, max_value=4),
    st.floats(min_value=0.2, max_value=8),
)
def test_thresholds_cost_the_probability_that_a_lonely_key_is_seen(
    above: int, single: int, keys: int, scale: float
) -> None:
    """The delta is that of noise that reaches the threshold, added up independently; it is never
    below it, nor below OpenDP's own, and above both by rounding only.
    """
    threshold = single + above
    for make, metric, truth in (
        (dp.m.make_laplace_threshold, BY_ONE, true_laplace),
        (dp.m.make_gaussian_threshold, BY_TWO, true_gaussian),
    ):
        made = make(COUNTS, metric, scale, threshold)
        d_in = keys, keys * single, single
        stated = delta_of(mechanisms_of(made, d_in))
        wanted = of_keys(truth(above, scale), keys)
        own = mpmath.mpf(made.map(d_in)[1])
        assert stated >= max(wanted, own)
        assert stated <= max(wanted * CLOSE, own * CLOSE, mpmath.mpf(10) ** -29)


@settings(max_examples=25)
@given(
    st.integers(min_value=1, max_value=30),
    st.integers(min_value=1, max_value=3),
    st.sampled_from([0, -1, -3]),
    st.floats(min_value=0.5, max_value=4),
)
def test_thresholds_on_a_coarse_lattice(above: int, keys: int, k: int, scale: float) -> None:
    """Floats are rounded to the lattice, then noise of its own steps is added: the probability is
    that of those steps.
    """
    step = 2.0**k
    for make, metric, truth in (
        (dp.m.make_laplace_threshold, REAL_BY_ONE, true_laplace),
        (dp.m.make_gaussian_threshold, REAL_BY_TWO, true_gaussian),
    ):
        made = make(SUMS, metric, scale, 2.0 + above * step, k=k)
        d_in = keys, keys * 2.0, 2.0
        wanted = of_keys(truth(above, scale / step), keys)
        stated = delta_of(mechanisms_of(made, d_in))
        own = mpmath.mpf(made.map(d_in)[1])
        assert max(wanted, own) <= stated <= max(wanted, own) * CLOSE


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_thresholds_on_the_finest_lattice(scale: float) -> None:
    """There the noise is continuous, but for what no float can hold."""
    for make, metric, truth in (
        (
            dp.m.make_laplace_threshold,
            REAL_BY_ONE,
            lambda x: mpmath.exp(-x / mpmath.mpf(scale)) / 2,
        ),
        (
            dp.m.make_gaussian_threshold,
            REAL_BY_TWO,
            lambda x: mpmath.erfc(x / (scale * mpmath.sqrt(2))) / 2,
        ),
    ):
        made = make(SUMS, metric, scale, 5.0)
        stated = delta_of(mechanisms_of(made, (1, 1.0, 1.0)))
        own = mpmath.mpf(made.map((1, 1.0, 1.0))[1])
        assert max(truth(4), own) <= stated <= max(truth(4) * mpmath.mpf("1.002"), own * CLOSE)


def test_what_is_seen_is_as_often_as_charged() -> None:
    """A hundred thousand keys of one unit each: as many are published as the charge says, and more
    than OpenDP's own delta.
    """
    users = [f"user {i}" for i in range(100_000)]
    release = dp.t.make_count_by(*NAMES) >> dp.m.then_laplace_threshold(scale=1.0, threshold=5)
    share = len(release(users)) / len(users)
    stated = float(delta_of(mechanisms_of(release, 1)))
    margin = 6 * math.sqrt(stated / len(users))
    assert abs(share - stated) < margin
    assert share > release.map(1)[1] + margin


def test_the_corrected_delta_is_booked(people: Client) -> None:
    """The service adds it to the noise's epsilon, or rho."""
    laplace = dp.m.make_laplace_threshold(COUNTS, BY_ONE, 1.0, 5)
    booked = charge(people, mechanisms_of(laplace, (1, 1, 1)))
    assert 1 <= booked["epsilon"] <= Decimal("1.000000001")
    assert abs(booked["delta"] - Decimal(str(true_laplace(4, 1.0)))) < Decimal("1e-14")
    gaussian = dp.m.make_gaussian_threshold(COUNTS, BY_TWO, 1.0, 5)
    booked = charge(people, mechanisms_of(gaussian, (1, 1, 1)))
    assert Decimal("0.5") <= booked["rho"] <= Decimal("0.500000000000001")
    assert booked["epsilon"].is_infinite()
    assert booked["delta"] > Decimal(repr(gaussian.map((1, 1, 1))[1]))


@pytest.mark.parametrize("scale", [6_000, 10**9])
def test_tails_of_large_scales_are_bounded_in_blocks(scale: int) -> None:
    """What cannot be added up is at most a thousandth above normal noise, and never below."""
    for multiple in (0, 1, 4, 9):
        found = mpmath.mpf(str(thresholds.gaussian_tail(multiple * scale, Fraction(scale))))
        normal = mpmath.erfc((multiple * scale - mpmath.mpf("0.5")) / (scale * mpmath.sqrt(2))) / 2
        assert normal * (1 - mpmath.mpf(10) ** -5) <= found <= normal * mpmath.mpf("1.0012")


def test_tails_of_certain_and_rare_keys() -> None:
    """Probabilities of one and of next to nothing come out as such."""
    assert thresholds.of_keys(Decimal(1), 3) == 1
    assert thresholds.of_keys(Decimal("1e-60"), 3) == Decimal("3e-60")
    assert thresholds.laplace_tail(0, Fraction(1, 10**6)) == 1


def squares(low: float, high: float, size: int) -> Any:
    """The sum of squared deviations of clamped floats."""
    bounded = dp.atom_domain(bounds=(low, high), nan=False)
    space = dp.vector_domain(bounded, size=size), dp.symmetric_distance()
    return dp.t.make_sum_of_squared_deviations(*space)


@given(
    st.integers(min_value=2, max_value=200),
    st.sampled_from([0.0, 1.0, 2.0**20, 2.0**40, 2.0**50]),
    st.sampled_from([1.0, 3.0, 10.0]),
    st.randoms(use_true_random=False),
)
def test_sums_of_squares_grow_by_their_rounding(
    size: int, low: float, span: float, random: Any
) -> None:
    """Replacing one value of any data moves the result by no more than the sensitivity that is
    charged.
    """
    sums = squares(low, low + span, size)
    x = [low + span * random.random() for _ in range(size)]
    y = [low + span * random.randrange(2), *x[1:]]
    charged = Fraction(sums.map(2)) * growth(sums)
    assert abs(Fraction(sums(x)) - Fraction(sums(y))) <= charged


def test_the_reported_sum_of_squares_is_covered() -> None:
    """Where OpenDP's own sensitivity is exceeded, the one that is charged is not."""
    low, size = 2.0**50, 1024
    sums = squares(low, low + 1, size)
    x, y = [low + 0.25] * size, [low + 0.5] + [low + 0.25] * (size - 1)
    moved = abs(sums(x) - sums(y))
    assert sums.map(2) < moved <= sums.map(2) * growth(sums)
    noisy = sums >> dp.m.then_laplace(100.0)
    [stated] = mechanisms_of(noisy, 2)
    assert Fraction(stated["sensitivity"]) >= Fraction(moved)
    small = squares(0.0, 100.0, 1000) >> dp.m.then_laplace(100.0)
    [stated] = mechanisms_of(small, 2)
    assert 1 < Fraction(stated["claimed"]["epsilon"]) / Fraction(small.map(2)) < 1 + 1e-9
    assert growth(dp.t.make_count(*NAMES)) == 1


def test_a_sum_of_squares_without_a_bound_is_refused() -> None:
    """A single value has no deviation of which a part could be charged."""
    with pytest.raises(WrongMap, match="no bound is known"):
        growth(squares(0.0, 1.0, 1))


WHOLES = dp.vector_domain(dp.atom_domain(T=int), size=3)


def bounded() -> Any:
    """Ordered rows as places, of which OpenDP says that one changes; all of them can."""
    cast = dp.t.make_metric_bounded(WHOLES, ORDERED)
    assert cast.map(2) < sum(a != b for a, b in zip([0, 1, 2], [1, 2, 3], strict=True))
    own = dp.m.make_user_measurement(WHOLES, dp.hamming_distance(), dp.max_divergence(), len, float)
    return cast >> own


def resized() -> Any:
    """Ordered rows of a fixed number, shuffled or cut off."""
    rows = dp.vector_domain(dp.atom_domain(T=int)), ORDERED
    resize = dp.t.make_resize(*rows, size=3, constant=0, MO="InsertDeleteDistance")
    seen = {tuple(resize([0, 1, 2])) for _ in range(200)}
    assert {tuple(resize([0, 1, 2, 9])) for _ in range(200)} == {(0, 1, 2)}
    assert (2, 1, 0) in seen  # three edits away
    assert resize.map(1) == 2
    return resize >> dp.m.make_user_measurement(WHOLES, ORDERED, dp.max_divergence(), len, float)


@pytest.mark.parametrize("make", [bounded, resized])
def test_stability_maps_that_are_wrong_are_refused(make: Any) -> None:
    """Each is shown to be wrong in the installed version, and has no price in any form."""
    measurement = make()
    for made in (measurement, dp.c.make_composition([measurement])):
        with pytest.raises(WrongMap, match="opendp/opendp/issues"):
            mechanisms_of(made, 1)


def test_a_map_that_is_corrected_is_not_believed_where_it_cannot_be() -> None:
    """What is corrected by reading it is refused inside of what has no reader: a sample, whose map
    is computed from the map that says too little.
    """
    rows = dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0), nan=False), size=100)
    space = rows, dp.symmetric_distance()
    variance = space >> dp.t.then_variance() >> dp.m.then_laplace(scale=1.0)
    mean = space >> dp.t.then_mean() >> dp.m.then_laplace(scale=1.0)
    assert mechanisms_of(variance, 2)[0]["kind"] == "laplace"
    with pytest.raises(WrongMap, match="2923"):
        mechanisms_of(dp.c.make_population_amplification(variance, 1000), 2)
    [sampled] = mechanisms_of(dp.c.make_population_amplification(mean, 1000), 2)
    assert sampled["kind"] == "declared"


def test_unordered_rows_are_not_refused() -> None:
    """The same transformations are charged where their maps are right."""
    rows = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    resize = dp.t.make_resize(*rows, size=3, constant=0)
    noisy = resize >> dp.t.then_clamp((0, 9)) >> dp.t.then_sum() >> dp.m.then_laplace(9.0)
    assert mechanisms_of(noisy, 1)[0]["kind"] == "discrete_laplace"


def test_theil_sen_is_refused() -> None:
    """OpenDP's regression cuts off a row that it does not count."""
    numpy = pytest.importorskip("numpy")
    linear = pytest.importorskip("opendp.extras.sklearn.linear_model._make_private_theil_sen")
    predict = linear.make_pairwise_predict(numpy.array([25.0, 75.0]))
    x = numpy.array([[1.0, 1.0], [2.0, 3.0]])
    y = numpy.array([[9.0, 3.0], [1.0, 1.0], [2.0, 3.0]])  # one row more
    assert predict.map(1) == 1
    assert not {tuple(row) for row in predict(x)} & {tuple(row) for row in predict(y)}
    made = linear.make_private_theil_sen(dp.max_divergence(), (0, 100), (0, 100), scale=1.0)
    with pytest.raises(WrongMap, match="Theil-Sen"):
        mechanisms_of(made, 1)


def test_versions_before_a_repair_are_told_apart() -> None:
    """Biased noise is refused in versions that have it, and in no later one."""
    noisy = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
    with pytest.raises(WrongMap, match=r"0\.14\.1 states too small a loss for make_laplace"):
        refuse(noisy, 1, at="0.14.1")
    for version in ("0.14.2", "0.15.0", "0.16.0", "0.16.0a20261025001"):
        refuse(noisy, 1, at=version)
    flipped = Made("make_randomized_response_bitvec", {})
    assert BITS.concerns(flipped, "0.14.2")
    assert not BITS.concerns(flipped, "0.15.0")


def test_every_row_has_a_source_and_a_remedy() -> None:
    """What is known is data that can be read and shown."""
    for row in KNOWN_WRONG:
        assert row.source.startswith("https://github.com/opendp/opendp/issues/")
        assert row.what
        assert row.truth
        assert row.remedy in ("corrected", "refused")
        assert all(name.startswith("make_") for name in row.constructors)
