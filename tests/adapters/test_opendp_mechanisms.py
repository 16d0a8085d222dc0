"""Measurements of OpenDP as mechanisms: what runs, and never cheaper than OpenDP says itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

dp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed")
hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from ledger import ROOMY, charge  # noqa: E402

from accountant.adapters.opendp import mechanisms_of  # noqa: E402
from accountant.adapters.opendp.losses import loss_of  # noqa: E402
from accountant.client import Client, Failed, from_opendp  # noqa: E402

if TYPE_CHECKING:
    from service import Running

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")

WHOLE = dp.atom_domain(T=int), dp.absolute_distance(T=int)
REAL = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
WHOLES = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
REALS = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
ROWS = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
NAMES = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
SCORES = dp.vector_domain(dp.atom_domain(T=int))
PURE, ZCDP = dp.max_divergence(), dp.zero_concentrated_divergence()
COUNT = ROWS >> dp.t.then_count()
SCALES = st.floats(min_value=0.01, max_value=1e4)
DISTANCES = st.integers(min_value=1, max_value=50)
ADDED = {"neighbouring": "add_or_remove_one"}


def stated(measurement: Any, d_in: Any, **how: Any) -> list[dict[str, Any]]:
    """Its mechanisms without the sampler."""
    found = mechanisms_of(measurement, d_in, **how)
    assert all(each["sampler"]["library"] == "opendp" for each in found)
    return [{name: value for name, value in each.items() if name != "sampler"} for each in found]


@pytest.fixture(scope="module")
def people(served: Running) -> Iterator[Client]:
    """A population in which units are there or not."""
    with served.client(served.population(ROOMY, "add_or_remove_one")) as client:
        yield client


@pytest.fixture(scope="module")
def asked_people(served: Running) -> Iterator[Client]:
    """A population in which units are replaced."""
    with served.client(served.population(ROOMY, "replace_one")) as client:
        yield client


def dear_enough(
    client: Client, measurement: Any, d_in: Any, added: int = 1, **how: Any
) -> dict[str, Decimal]:
    """Asserts that the service books at least OpenDP's own map, and returns what it books. OpenDP
    rounds up its floats once for each loss that is ``added``.
    """
    booked = charge(client, mechanisms_of(measurement, d_in, **how))
    own = measurement.map(d_in)
    name = str(measurement.output_measure.type)
    main, delta = own if isinstance(own, tuple) else (own, 0.0)
    currency = "rho" if "ZeroConcentrated" in name else "epsilon"
    ulps = Decimal((added - 1) * math.ulp(main))
    assert booked[currency] >= Decimal(repr(main)) - ulps
    assert booked["delta"] >= Decimal(repr(delta))
    return booked


def test_a_count_is_discrete_laplace_at_its_sensitivity() -> None:
    """The distance goes through the stability map, and the relation is that of the metric."""
    noisy = COUNT >> dp.m.then_laplace(2.0)
    assert stated(noisy, 3) == [
        {
            "kind": "discrete_laplace",
            "sensitivity": "3",
            "scale": "2",
            "claimed": {"epsilon": "1.5"},
        }
        | ADDED
    ]
    changed = dp.vector_domain(dp.atom_domain(T=int)), dp.change_one_distance()
    own = dp.m.make_user_measurement(*changed, PURE, len, float)
    assert stated(own, 1)[0]["neighbouring"] == "replace_one"


@pytest.mark.parametrize(
    ("measurement", "d_in", "wanted"),
    [
        (dp.m.make_laplace(*REAL, 0.3), 1.0, {"kind": "laplace", "sensitivity": "1"}),
        (
            dp.m.make_laplace(*WHOLES, 3.0),
            2,
            {"kind": "discrete_laplace", "sensitivity": {"l1": "2"}, "scale": "3"},
        ),
        (
            dp.m.make_geometric(*WHOLE, 2.0, bounds=(0, 9)),
            1,
            {"kind": "discrete_laplace", "sensitivity": "1", "scale": "2"},
        ),
        (
            dp.m.make_laplace(*REAL, 1.0, k=-3),  # in eighths, of which rounding adds one
            1.0,
            {"kind": "discrete_laplace", "sensitivity": "9", "scale": "8"},
        ),
        (dp.m.make_gaussian(*WHOLE, 2.0), 1, {"kind": "discrete_gaussian", "sensitivity": "1"}),
        (dp.m.make_gaussian(*REAL, 2.0), 1.0, {"kind": "gaussian", "scale": "2"}),
        (
            dp.m.make_gaussian(*REALS, 2.0),
            0.5,
            {"kind": "gaussian", "sensitivity": {"l2": "0.5"}, "scale": "2"},
        ),
        (dp.m.make_noise(*REAL, PURE, 2.0), 1.0, {"kind": "laplace", "scale": "2"}),
        (dp.m.make_noise(*REAL, ZCDP, 2.0), 1.0, {"kind": "gaussian", "scale": "2"}),
        (
            dp.m.make_noisy_max(SCORES, dp.linf_distance(T=int), PURE, 4.0),
            1,
            {"kind": "permute_and_flip", "sensitivity": "1", "scale": "4"},
        ),
        (
            dp.m.make_noisy_max(SCORES, dp.linf_distance(T=int), ZCDP, 4.0),
            1,
            {"kind": "exponential", "sensitivity": "1", "scale": "4"},
        ),
        (
            dp.m.make_noisy_top_k(SCORES, dp.linf_distance(T=int), PURE, 3, 4.0),
            1,
            {"kind": "permute_and_flip", "count": 3, "claimed": {"epsilon": "0.5"}},
        ),
        (
            dp.m.make_private_quantile(*ROWS, PURE, [1, 2, 3], 0.5, 4.0),
            1,
            {"kind": "permute_and_flip", "sensitivity": "0.5", "scale": "4"},
        ),
        (
            dp.m.make_randomized_response_bool(0.75),
            1,
            {"kind": "randomized_response", "theta": "0.75", "categories": 2},
        ),
        (
            dp.m.make_randomized_response(["a", "b", "c"], 0.5),
            1,
            {"kind": "randomized_response", "theta": "0.5", "categories": 3},
        ),
        (
            dp.m.make_randomized_response_bitvec(
                dp.bitvector_domain(max_weight=4), dp.discrete_distance(), f=0.95
            ),
            1,
            {"kind": "unary_encoding", "p": "0.525", "q": "0.475", "hashes": 4},
        ),
        (
            dp.m.make_canonical_noise(*REAL, 1.0, (0.5, 1e-6)),
            1.0,
            {"kind": "declared", "epsilon": "0.5", "delta": "0.000001"},
        ),
        (dp.m.make_laplace(*WHOLE, 0.0), 1, {"kind": "non_private"}),
        (COUNT >> dp.m.then_laplace(1.0), 0, {"kind": "declared", "epsilon": "0"}),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_the_parameters_are_those_of_the_measurement(
    measurement: Any, d_in: Any, wanted: dict[str, Any]
) -> None:
    """Each constructor of noise becomes its kind with its own parameters."""
    [found] = stated(measurement, d_in)
    assert wanted.items() <= found.items()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_deprecated_choice_is_named_for_what_it_draws() -> None:
    """Report noisy max has no Gumbel noise today, whatever its name says."""
    made = dp.m.make_report_noisy_max_gumbel(SCORES, dp.linf_distance(T=int), 4.0)
    assert stated(made, 1)[0]["kind"] == "permute_and_flip"


def test_the_noise_of_choices_is_what_opendp_draws() -> None:
    """Permute-and-flip under an epsilon and the exponential mechanism under a rho are what the
    frequencies of the drawn choices say.
    """
    scores, n = [2, 0], 8_000
    chances = {
        "permute_and_flip": 1 - math.exp(-2) / 2,
        "exponential": 1 / (1 + math.exp(-2)),
    }
    for measure in (PURE, ZCDP):
        best = dp.m.make_noisy_max(SCORES, dp.linf_distance(T=int), measure, 1.0)
        [found] = stated(best, 1)
        share = Counter(best(scores) for _ in range(n))[0] / n
        assert abs(share - chances[found["kind"]]) < 5 * 0.5 / math.sqrt(n)


def test_scores_that_move_together_cost_half(people: Client, asked_people: Client) -> None:
    """Monotonic scores are stated so where units are there or not; elsewhere half the sensitivity
    says the same.
    """
    together = dp.linf_distance(T=int, monotonic=True)
    for measure in (PURE, ZCDP):
        best = dp.m.make_noisy_max(SCORES, together, measure, 4.0)
        [known] = stated(best, 1, neighbouring="add_or_remove_one")
        [unknown] = stated(best, 1)
        assert (known["sensitivity"], known["monotonic"]) == ("1", True)
        assert "monotonic" not in unknown
        assert unknown["sensitivity"][:3] == "0.5"
        for client in (people, asked_people):
            dear_enough(client, best, 1)
        dear_enough(people, best, 1, neighbouring="add_or_remove_one")


def test_compositions_are_lists() -> None:
    """What runs in a row is charged one by one, postprocessing is free."""
    laplace, gaussian = COUNT >> dp.m.then_laplace(2.0), COUNT >> dp.m.then_gaussian(2.0)
    twice = dp.c.make_composition([laplace, laplace >> (lambda x: x + 1)])
    assert [each["kind"] for each in stated(twice, 1)] == ["discrete_laplace"] * 2
    mixed = dp.c.make_composition([dp.c.make_pureDP_to_zCDP(laplace), gaussian])
    assert [each["kind"] for each in stated(mixed, 1)] == ["discrete_laplace", "discrete_gaussian"]


def test_a_list_that_was_changed_since_is_not_believed() -> None:
    """OpenDP keeps the caller's own list of parts: one that no longer adds up to the map is not
    what runs.
    """
    noisy = COUNT >> dp.m.then_laplace(2.0)
    parts = [noisy, noisy]
    twice = dp.c.make_composition(parts)
    parts.pop()
    assert stated(twice, 1) == [{"kind": "declared", "epsilon": "1"} | ADDED]


def test_a_fixed_delta_is_shared(people: Client) -> None:
    """One Gaussian noise claims OpenDP's epsilon at the delta; several share the delta, and cost no
    less than OpenDP says.
    """
    noise = COUNT >> dp.m.then_gaussian(2.0)
    one = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noise), 1e-6)
    epsilon, delta = one.map(1)
    [found] = stated(one, 1)
    assert found["claimed"] == {"epsilon": repr(epsilon), "delta": "0.000001"}
    both = dp.c.make_composition([noise, noise])
    two = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(both), 1e-6)
    assert [each["delta"] for each in stated(two, 1)] == ["0.0000005"] * 2
    for measurement in (one, two):
        assert dear_enough(people, measurement, 1)["delta"] == Decimal(repr(delta))


def test_a_named_delta_gives_gaussian_noise_an_epsilon(people: Client) -> None:
    """Without one it has a rho only. A privacy profile is read at it."""
    noise = COUNT >> dp.m.then_gaussian(2.0)
    assert charge(people, mechanisms_of(noise, 1))["epsilon"].is_infinite()
    assert not charge(people, mechanisms_of(noise, 1, delta=1e-6))["epsilon"].is_infinite()
    profile = dp.c.make_zCDP_to_approxDP(noise)
    read = loss_of(profile, 1, 1e-6)
    assert (read.epsilon, read.delta) == dp.c.make_fix_delta(profile, 1e-6).map(1)
    concentrated = dp.m.make_user_measurement(*WHOLE, ZCDP, lambda x: x, lambda d: d / 10.0)
    approximate = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(concentrated), 1e-6)
    assert stated(approximate, 1)[0]["epsilon"] == repr(approximate.map(1)[0])


def test_what_is_not_recognised_is_declared_in_its_measure(people: Client) -> None:
    """A measurement by the user, or one that is interactive, costs what its map says."""
    for measure, wanted in (
        (PURE, {"epsilon": "0.5"}),
        (ZCDP, {"rho": "0.5"}),
        (dp.approximate(PURE), {"epsilon": "0.5", "delta": "0.25"}),
        (dp.approximate(ZCDP), {"rho": "0.5", "delta": "0.25"}),
    ):
        own: Any = (0.5, 0.25) if "Approximate" in str(measure) else 0.5
        made = dp.m.make_user_measurement(*WHOLE, measure, lambda x: x, lambda _, own=own: own)
        assert stated(made, 1) == [{"kind": "declared", **wanted}]
    curve = dp.m.make_user_measurement(
        *WHOLE, dp.renyi_divergence(), lambda x: x, lambda d: lambda order: order * d * 0.1
    )
    [found] = stated(curve, 2)
    assert (found["renyi"]["2"], found["renyi"]["64"]) == ("0.4", "12.8")
    assert charge(people, mechanisms_of(curve, 2))["epsilon"].is_infinite()
    within = dp.c.make_adaptive_composition(*ROWS, PURE, 1, [0.5, 0.25])
    assert stated(within, 1) == [{"kind": "declared", "epsilon": "0.75"} | ADDED]


def test_what_has_no_price_is_refused() -> None:
    """An odometer, a measure of the user's own, a profile without a delta, another thing."""
    odometer = dp.c.make_fully_adaptive_composition(*ROWS, PURE)
    with pytest.raises(TypeError, match="odometer bounds nothing"):
        mechanisms_of(odometer, 1)
    with pytest.raises(TypeError, match="not a measurement"):
        mechanisms_of(COUNT, 1)
    own = dp.m.make_user_measurement(*WHOLE, dp.user_divergence("mine"), lambda x: x, float)
    with pytest.raises(ValueError, match="nothing is known of the measure"):
        mechanisms_of(own, 1)
    with pytest.raises(ValueError, match="name a delta"):
        loss_of(dp.c.make_zCDP_to_approxDP(COUNT >> dp.m.then_gaussian(2.0)), 1)


def test_a_relation_must_follow_from_the_metric() -> None:
    """Two rows that are removed and added may stand for one that is replaced; one may not."""
    noisy = COUNT >> dp.m.then_laplace(2.0)
    assert stated(noisy, 2, neighbouring="replace_one")[0]["neighbouring"] == "replace_one"
    for d_in, wanted in ((1, "replace_one"), (2, "zero_out")):
        with pytest.raises(ValueError, match="bounds add_or_remove_one"):
            mechanisms_of(noisy, d_in, neighbouring=wanted)
    assert "neighbouring" not in stated(dp.m.make_laplace(*WHOLE, 1.0), 1)[0]


def test_a_replaced_row_is_charged_as_two(people: Client, asked_people: Client) -> None:
    """What is stated for a row that is there or not costs twice where rows are replaced, and what
    is stated for a replaced one has no price where they are not.
    """
    noisy = mechanisms_of(COUNT >> dp.m.then_laplace(2.0), 1)
    assert charge(people, noisy)["epsilon"] == Decimal("0.5")
    assert charge(asked_people, noisy)["epsilon"] == 1
    local = mechanisms_of(dp.m.make_randomized_response_bool(0.75), 1)
    assert charge(asked_people, local)["epsilon"] > 1
    refused = people.preview("visits", local)
    assert "local-needs-replace-one" in {rule.code for rule in refused.rules}


def test_an_understated_map_is_refused_by_the_service(people: Client) -> None:
    """The claim is OpenDP's own number: at less noise than it was made for the service objects."""
    [found] = mechanisms_of(COUNT >> dp.m.then_laplace(2.0), 1)
    preview = people.preview("visits", [found | {"scale": "1"}])
    assert "claim-understated" in {rule.code for rule in preview.rules}


def test_the_client_has_it_too() -> None:
    """``from_opendp`` is the same function, loaded when it is called."""
    noisy = COUNT >> dp.m.then_laplace(2.0)
    assert from_opendp(noisy, 2, neighbouring="replace_one") == mechanisms_of(
        noisy, 2, neighbouring="replace_one"
    )


@given(SCALES, DISTANCES)
def test_whole_noise_never_costs_less_than_its_map(people: Client, scale: float, d_in: int) -> None:
    """For every scale and distance, in the map's own measure."""
    for made in (dp.m.make_laplace(*WHOLE, scale), dp.m.make_gaussian(*WHOLE, scale)):
        dear_enough(people, made, d_in)
    dear_enough(people, dp.m.make_laplace(*WHOLES, scale), d_in)


@given(
    SCALES,
    st.floats(min_value=0.001, max_value=1e3),
    st.none() | st.integers(min_value=-90, max_value=4),
)
def test_real_noise_never_costs_less_than_its_map(
    people: Client, scale: float, d_in: float, k: int | None
) -> None:
    """For every scale, distance and lattice, in the map's own measure."""
    for made in (dp.m.make_laplace(*REAL, scale, k=k), dp.m.make_gaussian(*REAL, scale, k=k)):
        dear_enough(people, made, d_in)


@given(
    SCALES,
    DISTANCES,
    st.sampled_from([PURE, ZCDP]),
    st.booleans(),
    st.integers(min_value=1, max_value=9),
)
def test_choices_never_cost_less_than_their_map(
    people: Client, scale: float, d_in: int, measure: Any, monotonic: bool, times: int
) -> None:
    """For every scale, distance and number of choices, in the map's own measure."""
    metric = dp.linf_distance(T=int, monotonic=monotonic)
    made = dp.m.make_noisy_top_k(SCORES, metric, measure, times, scale)
    dear_enough(people, made, d_in)
    dear_enough(people, made, d_in, neighbouring="add_or_remove_one")
    quantile = dp.m.make_private_quantile(*ROWS, measure, [1, 2, 3], 0.5, scale)
    dear_enough(people, quantile, d_in)


@given(
    st.floats(min_value=0.5, max_value=0.999),
    st.integers(min_value=2, max_value=9),
    st.floats(min_value=0.01, max_value=1.0),
    st.integers(min_value=1, max_value=5),
)
def test_local_answers_never_cost_less_than_their_map(
    asked_people: Client, truth: float, categories: int, flips: float, weight: int
) -> None:
    """For every probability, number of categories and weight."""
    bits = dp.bitvector_domain(max_weight=weight)
    for made in (
        dp.m.make_randomized_response_bool(truth),
        dp.m.make_randomized_response([*range(categories)], truth),
        dp.m.make_randomized_response_bitvec(bits, dp.discrete_distance(), f=flips),
    ):
        dear_enough(asked_people, made, 1)


@given(st.lists(SCALES, min_size=1, max_size=4), st.booleans())
def test_compositions_never_cost_less_than_their_map(
    people: Client, scales: list[float], gaussian: bool
) -> None:
    """For every list of noises, also when its delta is fixed."""
    noise = dp.m.then_gaussian if gaussian else dp.m.then_laplace
    made = dp.c.make_composition([COUNT >> noise(scale) for scale in scales])
    dear_enough(people, made, 1, added=len(scales))
    if gaussian:
        dear_enough(people, dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(made), 1e-6), 1)


def test_numbers_of_numpy_are_read() -> None:
    """Scales and distances may be NumPy's."""
    numpy = pytest.importorskip("numpy")
    made = dp.m.make_laplace(*REAL, float(numpy.float64(0.5)))
    assert stated(made, float(numpy.float64(1)))[0]["scale"] == "0.5"


def test_amounts_out_of_range_are_refused_by_the_service(people: Client) -> None:
    """A scale that the service cannot read is an error of the request: nothing is booked."""
    tiny = mechanisms_of(dp.m.make_laplace(*REAL, 1e-200), 1.0)
    with pytest.raises(Failed, match="finite decimal"):
        charge(people, tiny)
    assert Fraction(tiny[0]["scale"]) == Fraction("1e-200")
