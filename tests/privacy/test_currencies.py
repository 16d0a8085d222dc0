"""What the catalogue charges in each currency, against distributions computed another way."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from accountant.privacy.balls import FIRST_BITS, Number, Real, above, precision
from accountant.privacy.conversions import concentrated_epsilon, intercept
from accountant.privacy.losses import Loss, bounded_range, pure
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
ADD, REPLACE, ZERO_OUT = Relation
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "currencies.json").read_text())
HAIR, ZERO = Fraction(1, 10**20), Fraction(0)


def cost(kind: str, stated: Relation = ADD, **fields: Any) -> Loss:
    """What one invocation costs under the relation it is stated in."""
    loss = ADAPTER.validate_python({"kind": kind} | fields).cost(stated)
    assert loss is not None
    return loss


def real(value: Number) -> mpmath.mpf:
    """The value at the working precision, rounded up in its sixtieth decimal."""
    value = above(value)
    return mpmath.mpf(value.numerator) / value.denominator


def divergence(p: list[Any], q: list[Any], order: int) -> Any:
    """The Renyi divergence of two finite distributions."""
    return mpmath.log(
        mpmath.fsum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))
    ) / (order - 1)


def kl(p: list[Any], q: list[Any]) -> Any:
    """The divergence at order 1."""
    return mpmath.fsum(a * mpmath.log(a / b) for a, b in zip(p, q, strict=True) if a)


def bounds(loss: Loss, p: list[Any], q: list[Any], orders: tuple[int, ...] = (2, 7, 40)) -> bool:
    """True if rho, tau and epsilon of ``loss`` hold for the pair, both ways round."""
    assert loss.rho is not None
    assert loss.epsilon is not None
    for one, other in ((p, q), (q, p)):
        worst = max(abs(mpmath.log(a / b)) for a, b in zip(one, other, strict=True))
        if worst > real(loss.epsilon) + mpmath.mpf("1e-12"):
            return False
        if kl(one, other) > real(loss.rho) + mpmath.mpf("1e-15"):
            return False
        for order in orders:
            tau, found = loss.curve.at(order), divergence(one, other, order)
            assert tau is not None
            slack = mpmath.mpf("1e-15")
            if found > real(tau) + slack or found > order * real(loss.rho) + slack:
                return False
    return True


@pytest.mark.parametrize("row", GOLDEN["mechanism_rdp"], ids=str)
def test_golden_renyi_divergences(row: dict[str, str]) -> None:
    """Laplace noise and pure privacy at the golden orders, never below and hardly above."""
    order = Fraction(row["alpha"])
    if order.denominator != 1:
        return  # only whole orders are charged
    noise = cost("laplace", sensitivity=row["eps"], scale="1")
    for loss, name in ((noise, "laplace"), (pure(Fraction(row["eps"])), "pure_dp_tight_RR")):
        tau = loss.curve.at(int(order))
        assert tau is not None
        assert -HAIR < tau - Fraction(row[name]) < HAIR
    chosen = bounded_range(Fraction(row["eps"])).curve.at(int(order))
    assert chosen is not None
    assert chosen <= Fraction(row["exponential_BR_zcdp"]) + HAIR


@pytest.mark.parametrize("row", GOLDEN["laplace_zcdp_tight"], ids=str)
def test_golden_rho(row: dict[str, str]) -> None:
    """rho of Laplace noise is eps + e^-eps - 1, of a bounded range eps^2/8, of pure privacy less
    than eps^2/2.
    """
    epsilon = Fraction(row["eps"])
    rho = cost("laplace", sensitivity=row["eps"], scale="1").rho
    assert rho is not None
    assert -HAIR < rho - Fraction(row["rho_tight"]) < HAIR
    ranged, whole = bounded_range(epsilon).rho, pure(epsilon).rho
    assert ranged is not None
    assert whole is not None
    assert ranged <= Fraction(row["rho_bounded_range"])
    assert whole <= Fraction(row["rho_pure"])


@pytest.mark.parametrize("row", GOLDEN["zcdp_to_approxdp"], ids=str)
def test_golden_conversion_of_rho(row: dict[str, str]) -> None:
    """rho converts at its best order (Canonne, Kamath, Steinke 2020)."""
    found = concentrated_epsilon(Fraction(row["rho"]), Fraction(row["delta"]))
    golden = Fraction(row["eps_cks20"])
    assert golden <= found + HAIR
    assert found <= golden * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize("row", GOLDEN["rdp_to_approxdp"], ids=str)
def test_golden_conversion_of_tau(row: dict[str, str]) -> None:
    """tau + c at the golden orders."""
    at = intercept(Fraction(row["alpha"]), Fraction(row["delta"]))
    assert -HAIR < Fraction(row["tau"]) + at - Fraction(row["eps_cks20"]) < HAIR


@settings(max_examples=examples(60), deadline=None)
@given(st.fractions(Fraction(1, 10**6), 60, max_denominator=10**6), st.integers(2, 3000))
def test_pure_privacy_is_randomised_response(epsilon: Fraction, order: int) -> None:
    """tau and rho of a pure mechanism are those of randomised response, to fifty digits; rho times
    the order is never less than tau.
    """
    loss = pure(epsilon)
    tau = loss.curve.at(order)
    assert tau is not None
    assert loss.rho is not None
    with mpmath.workdps(80):
        e = real(epsilon)
        p = [mpmath.exp(e) / (1 + mpmath.exp(e)), 1 / (1 + mpmath.exp(e))]
        exact = divergence(p, p[::-1], order)
        assert exact - mpmath.mpf("1e-45") <= real(tau) <= exact + mpmath.mpf("1e-45")
        assert -mpmath.mpf("1e-45") <= real(loss.rho) - kl(p, p[::-1]) <= mpmath.mpf("1e-45")
    assert tau <= order * loss.rho + HAIR


@settings(max_examples=examples(60), deadline=None)
@given(st.builds(lambda n, e: n * Fraction(10) ** e, st.integers(1, 99), st.integers(-9, 0)))
def test_the_mu_of_pure_privacy_lies_below_its_trade_off(epsilon: Fraction) -> None:
    """No test tells two answers of a pure mechanism apart better than mu-GDP allows, and a
    billionth less mu would not do.
    """
    mu_squared = pure(epsilon).mu_squared
    assert mu_squared is not None
    with mpmath.workdps(120):
        mu, corner = mpmath.sqrt(real(mu_squared)), 1 / (1 + mpmath.exp(real(epsilon)))

        def beta(alpha: mpmath.mpf, m: mpmath.mpf) -> mpmath.mpf:
            quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * alpha)
            return mpmath.ncdf(quantile - m)

        assert beta(corner, mu) <= corner
        assert beta(corner, mu * (1 - mpmath.mpf("1e-9"))) > corner
        for share in (0.01, 0.3, 0.9):
            alpha = corner * share  # on the straight line from (0, 1) to the corner
            assert beta(alpha, mu) <= 1 - alpha * mpmath.exp(real(epsilon))


@given(st.fractions(0, Fraction(1, 8), max_denominator=10**15))
@settings(max_examples=examples(200))
def test_mu_of_a_small_epsilon_by_its_series(epsilon: Fraction) -> None:
    """Up to epsilon 1/8 the ball of the series holds mu^2, which the inverse error function gives
    at more bits, and seldom reaches over a unit.
    """
    mu_squared = pure(epsilon).mu_squared
    assert isinstance(mu_squared, Real)
    with precision(FIRST_BITS):
        found = mu_squared.ball()
    with precision(4 * FIRST_BITS):
        exactly = mu_squared.ball()
        assert found.contains(exactly)
        assert 2 * found.rad() <= exactly / 2**67


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(-6, 6), st.floats(0, 1)), min_size=2, max_size=5),
    st.booleans(),
    st.sampled_from(["0.3", "1", "4"]),
)
def test_choices_keep_their_bounds(
    scores: list[tuple[int, float]], monotonic: bool, scale: str
) -> None:
    """The exact probabilities of the exponential mechanism and of permute-and-flip, before and
    after one unit moves the scores, are within epsilon, rho and every tau.
    """
    moves = [m if monotonic else 2 * m - 1 for _, m in scores]
    b = float(scale)
    before = [score / b for score, _ in scores]
    after = [(score + move) / b for (score, _), move in zip(scores, moves, strict=True)]
    for kind, chance in (("exponential", softmax), ("permute_and_flip", permuted)):
        loss = cost(kind, sensitivity="1", scale=scale, monotonic=monotonic)
        assert bounds(loss, chance(before), chance(after))


def softmax(scores: list[float]) -> list[Any]:
    """The exponential mechanism's probabilities."""
    weights = [mpmath.exp(s) for s in scores]
    return [w / mpmath.fsum(weights) for w in weights]


def permuted(scores: list[float]) -> list[Any]:
    """Permute-and-flip's, summed over all orders in which candidates are looked at."""
    chances = [mpmath.exp(s - max(scores)) for s in scores]
    found = [mpmath.mpf(0)] * len(scores)
    orders = list(permutations(range(len(scores))))
    for order in orders:
        left = mpmath.mpf(1)
        for i in order:
            found[i] += left * chances[i] / len(orders)
            left *= 1 - chances[i]
    return found


@pytest.mark.parametrize(("width", "scale"), [(1, "0.5"), (1, "3"), (3, "2"), (7, "20")])
def test_discrete_laplace_is_within_its_bounds(width: int, scale: str) -> None:
    """The exact masses of the geometric mechanism keep every bound; at sensitivity 1 with equality,
    where the formulas of continuous Laplace noise would be too small.
    """
    loss = cost("discrete_laplace", sensitivity=str(width), scale=scale)
    with mpmath.workdps(40):
        s = mpmath.exp(-1 / mpmath.mpf(scale))
        ks = range(-400, 401)
        p = [(1 - s) / (1 + s) * s ** abs(k) for k in ks]
        q = [(1 - s) / (1 + s) * s ** abs(k - width) for k in ks]
        assert bounds(loss, p, q)
        if width == 1:
            assert loss.rho is not None
            assert abs(kl(p, q) - real(loss.rho)) < mpmath.mpf("1e-8")
            continuous = cost("laplace", sensitivity="1", scale=scale).rho
            assert continuous is not None
            assert real(continuous) < kl(p, q)


@pytest.mark.parametrize(("width", "scale"), [(1, "1"), (1, "0.4"), (2, "1.7"), (5, "20")])
def test_discrete_gaussian_is_within_its_bounds(width: int, scale: str) -> None:
    """The exact masses keep rho at every order, and the epsilon at a delta; there is no mu, and at
    sigma 1 the continuous curve would be too small.
    """
    loss = cost("discrete_gaussian", sensitivity=str(width), scale=scale, delta="1e-6")
    assert loss.mu_squared is None
    assert loss.rho is not None
    assert loss.epsilon is not None
    with mpmath.workdps(40):
        s = mpmath.mpf(scale)
        reach = int(20 * s) + 20
        mass = {
            k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)) for k in range(-reach, reach + 1)
        }
        whole = mpmath.fsum(mass.values())
        pairs = [
            (mass.get(k, 0) / whole, mass.get(k - width, 0) / whole)
            for k in range(-reach, reach + width + 1)
        ]
        bound = mpmath.exp(real(loss.epsilon))
        assert mpmath.fsum(max(0, p - bound * q) for p, q in pairs) <= mpmath.mpf("1e-6")
        inner = [(p, q) for p, q in pairs if p and q]
        for order in (2, 7, 20):
            found = divergence([p for p, _ in inner], [q for _, q in inner], order)
            assert found <= order * real(loss.rho) * (1 + mpmath.mpf("1e-12"))


@pytest.mark.parametrize("rate", ["1e-6", "0.001", "0.01", "0.2", "0.9"])
@pytest.mark.parametrize("noise", ["0.4", "1.1", "8"])
def test_dp_sgd_is_that_of_the_oracle(rate: str, noise: str) -> None:
    """The sampled Gaussian's tau agrees with dp-accounting's at every whole order, never below."""
    loss = cost("gaussian", sensitivity="1", scale=noise, sampling={"poisson": rate})
    orders = [2, 3, 8, 22, 64, 300]
    theirs = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(
        float(rate), float(noise), orders
    )
    for order, oracle in zip(orders, theirs, strict=True):
        tau = loss.curve.at(order)
        assert tau is not None
        assert float(tau) >= oracle * (1 - 1e-6) - 1e-13
        assert float(tau) <= max(oracle * (1 + 1e-6), oracle + 1e-12)


@pytest.mark.parametrize("order", [65, 176, 1024])
@pytest.mark.parametrize("rate", ["1e-25", "0.01", "0.5", "0.99999999999999999999"])
@pytest.mark.parametrize("noise", ["0.05", "1.1", "10.5", "300"])
def test_no_term_of_dp_sgd_is_missed(noise: str, rate: str, order: int) -> None:
    """The sum over the terms that count is that of all terms, to the last decimal that is kept."""
    tau = cost("gaussian", sensitivity="1", scale=noise, sampling={"poisson": rate}).curve.at(order)
    assert tau is not None
    with mpmath.workdps(120):
        q, rho = mpmath.mpf(rate), 1 / mpmath.mpf(noise) ** 2 / 2
        total = mpmath.fsum(
            math.comb(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(k * (k - 1) * rho)
            for k in range(order + 1)
        )
        due = min(mpmath.log(total) / (order - 1), order * rho)
        assert 0 <= real(tau) - due < mpmath.mpf("1.1e-60")


def test_dp_sgd_by_integration() -> None:
    """Both directions of the sampled Gaussian, integrated at thirty digits, are within tau."""
    loss = cost("gaussian", sensitivity="1", scale="1.5", sampling={"poisson": "0.1"})
    with mpmath.workdps(30):
        mu, q = 1 / mpmath.mpf("1.5"), mpmath.mpf("0.1")

        def base(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.npdf(x)

        def mixed(x: mpmath.mpf) -> mpmath.mpf:
            return (1 - q) * mpmath.npdf(x) + q * mpmath.npdf(x, mu)

        for order in (2, 5):
            tau = loss.curve.at(order)
            assert tau is not None
            both = []
            for p, r in ((mixed, base), (base, mixed)):
                whole = mpmath.quad(
                    lambda x, p=p, r=r, a=order: p(x) ** a * r(x) ** (1 - a),
                    [-12, -4, 0, 4, 8, 16],
                )
                both.append(mpmath.log(whole) / (order - 1))
            assert max(both) <= real(tau) + mpmath.mpf("1e-15")
            assert real(tau) - max(both) < mpmath.mpf("1e-9")


@pytest.mark.parametrize("row", GOLDEN["subsampling_approxdp"], ids=str)
def test_golden_amplification(row: dict[str, str]) -> None:
    """ln(1 + q (e^eps - 1)) and q delta, by Poisson sampling and without replacement."""
    rate = Fraction(row["q"])
    loss = pure(Fraction(row["eps"]), Fraction(row["delta"]))
    for poisson in (True, False):
        found = loss.sampled(rate, poisson=poisson)
        assert found.epsilon is not None
        assert -HAIR < found.epsilon - Fraction(row["eps_amp"]) < HAIR
        assert found.delta == rate * loss.delta


def test_one_sample_is_amplified_once() -> None:
    """Five answers on one secret sample cost what one mechanism of five times the epsilon does."""
    five = {"kind": "laplace", "sensitivity": "1", "scale": "1", "count": 5}
    once = cost("composed", mechanisms=[five], sampling={"poisson": "0.01"})
    assert once.epsilon is not None
    assert abs(float(once.epsilon) - math.log(1 + 0.01 * (math.exp(5) - 1))) < 1e-12
    assert round(float(once.epsilon), 3) == 0.906


def test_gaussians_on_one_sample_are_one_sampled_gaussian() -> None:
    """Several Gaussian answers on one sample are one of the summed mu^2, sampled once."""
    parts = [{"kind": "gaussian", "sensitivity": "1", "scale": "5", "count": 4}]
    several = cost("composed", mechanisms=parts, sampling={"poisson": "0.05"})
    single = cost("gaussian", sensitivity="2", scale="5", sampling={"poisson": "0.05"})
    assert real(several.curve.at(9) or ZERO) == real(single.curve.at(9) or ZERO)


@pytest.mark.parametrize("row", GOLDEN["group_privacy_approx"], ids=str)
def test_golden_groups(row: dict[str, Any]) -> None:
    """k eps, and delta times (e^(k eps) - 1) / (e^eps - 1)."""
    found = pure(Fraction(row["eps"]), Fraction(row["delta"])).group(row["group"])
    assert found.epsilon == Fraction(row["eps_group"])
    golden = Fraction(row["delta_group"])
    assert golden <= found.delta <= golden * (1 + HAIR)


def test_groups_in_the_other_currencies() -> None:
    """rho grows with the square of the group, mu with its size; a group of one that is sampled and
    another that is not are told apart, and of stated divergences nothing follows.
    """
    assert cost_of_declared(rho="0.1").group(3).rho == Fraction("0.9")
    noise = cost("gaussian", sensitivity="1", scale="10")
    assert noise.group(4).mu_squared == Fraction(16, 100)
    sampled = cost("gaussian", sensitivity="1", scale="10", sampling={"poisson": "0.01"})
    assert sampled.curve.at(8) < sampled.group(2).curve.at(8) < 8 * Fraction(4, 200)
    stated = cost_of_declared(renyi={"8": "0.1"}).group(2)
    assert stated.curve.at(8) is None


def cost_of_declared(**fields: Any) -> Loss:
    """What a declaration claims."""
    claim = ADAPTER.validate_python({"kind": "declared"} | fields).claim()
    assert claim is not None
    return claim


def test_declared_curves_take_the_next_higher_order() -> None:
    """A declared divergence holds at lower orders; above the highest there is none."""
    loss = cost_of_declared(renyi={"4": "0.1", "32": "0.5"})
    assert [loss.curve.at(a) for a in (2, 4, 5, 32, 33)] == [
        Fraction("0.1"),
        Fraction("0.1"),
        Fraction("0.5"),
        Fraction("0.5"),
        None,
    ]
    assert loss.epsilon is loss.rho is loss.mu_squared is None
    rho = cost_of_declared(rho="0.01")
    assert (rho.rho, rho.curve.at(7), rho.epsilon) == (Fraction("0.01"), Fraction("0.07"), None)


@pytest.mark.parametrize(("scale", "threshold"), [("2", "6"), ("1", "0"), ("5", "40")])
@pytest.mark.parametrize("distances", [(0, 0), (0, 1), (3, 4)])
def test_propose_test_release_on_its_own_terms(
    scale: str, threshold: str, distances: tuple[int, int]
) -> None:
    """The test's outcome, joined with a release that tells all when neither data set respects the
    bound, keeps (epsilon, delta) exactly.
    """
    release = {"kind": "laplace", "sensitivity": "1", "scale": "4"}
    loss = cost("propose_test_release", distance_scale=scale, threshold=threshold, release=release)
    assert loss.epsilon == 1 / Fraction(scale) + Fraction(1, 4)

    def passes(distance: int) -> float:
        gap = (float(threshold) - distance) / float(scale)
        return math.exp(-gap) / 2 if gap >= 0 else 1 - math.exp(gap) / 2

    one, other = map(passes, distances)
    bound = math.exp(float(loss.epsilon))
    for p, q in ((one, other), (other, one)):
        silent = max(0.0, (1 - p) - bound * (1 - q))
        told = p if distances == (0, 0) else max(0.0, p - bound / math.exp(0.25) * q)
        assert silent + told <= float(loss.delta) * (1 + 1e-12) + 1e-15 or distances != (0, 0)
        if distances != (0, 0):
            assert silent == told == 0


@pytest.mark.parametrize(("theta", "k"), [("0.5", 2), ("0.75", 4), ("0.1", 2), ("0.2", 5)])
def test_theta_is_the_ratio_of_the_two_answers(theta: str, k: int) -> None:
    """The true category against another, whichever is likelier."""
    loss = cost("randomized_response", REPLACE, theta=theta, categories=k)
    ratio = Fraction(theta) / ((1 - Fraction(theta)) / (k - 1))
    assert loss.epsilon is not None
    assert abs(float(loss.epsilon) - abs(math.log(ratio))) < 1e-12


@pytest.mark.parametrize("reports", [1, 2, 5, 40])
def test_memoised_reports_keep_their_bound(reports: int) -> None:
    """RAPPOR's reports of one memoised value, with their exact probabilities, lose no more than is
    charged; without memoisation they would lose as many times as much as there are reports.
    """
    f, p, q = 0.5, 0.75, 0.5
    body = {"p": str(p), "q": str(q), "memoised": str(f), "reports": reports}
    loss = cost("unary_encoding", REPLACE, **body)

    def chance(bit: int, ones: int) -> float:
        kept = [1 - f / 2, f / 2] if bit else [f / 2, 1 - f / 2]
        return sum(
            w * s**ones * (1 - s) ** (reports - ones) for w, s in zip(kept, (p, q), strict=True)
        )

    worst = max(
        abs(math.log(chance(1, a) * chance(0, b) / (chance(0, a) * chance(1, b))))
        for a, b in product(range(reports + 1), repeat=2)
    )
    assert loss.epsilon is not None
    assert worst <= float(loss.epsilon) * (1 + 1e-12)
    assert loss.epsilon <= 2 * Fraction(math.log(3) + 1e-12)


def test_compounds_cost_their_parts() -> None:
    """Rounds, draws and budgets multiply what their parts cost, in every currency."""
    noise = {"kind": "laplace", "sensitivity": "1", "scale": "20"}
    choice = {"kind": "exponential", "sensitivity": "1", "scale": "40"}
    part, pick = cost(**noise), cost(**choice)
    weights = cost("multiplicative_weights", rounds=10, selection=choice, measurement=noise)
    boosted = cost("boosting", rounds=3, draws=7, draw=choice, base=noise)
    assert weights.epsilon == 10 * (part.epsilon + pick.epsilon)  # type: ignore[operator]
    assert real(weights.rho or ZERO) == real(10 * (part.rho + pick.rho))  # type: ignore[operator]
    assert boosted.epsilon == 3 * (part.epsilon + 7 * pick.epsilon)  # type: ignore[operator]
    parts = 3 * (part.curve.at(5) + 7 * pick.curve.at(5))  # type: ignore[operator]
    assert real(boosted.curve.at(5) or ZERO) == real(parts)
    scales = {"threshold_scale": "2", "comparison_scale": "4", "answer_scale": "1"}
    held = cost("reusable_holdout", sensitivity="0.01", budget=5, **scales)
    # per disagreement 0.01 / 2 + 2 x 0.01 / 4 + 0.01 / 1
    assert held.epsilon == 5 * Fraction("0.02")


def test_aggregation_is_stated_for_replacing_a_block() -> None:
    """Whoever is added or removed replaces the result of one block; who replaces another may lie
    in a second one.
    """
    inner = {"kind": "exponential", "sensitivity": "1", "scale": "10", "monotonic": True}
    found = ADAPTER.validate_python({"kind": "subsample_and_aggregate", "aggregator": inner})
    [objection] = found.all_objections(ADD)
    assert objection.code == "monotonic-needs-add-or-remove"
    plain = {"aggregator": inner | {"monotonic": False}, "blocks_per_unit": 3}
    assert cost("subsample_and_aggregate", **plain).epsilon == 3 * Fraction(2, 10)
    assert cost("subsample_and_aggregate", REPLACE, **plain).epsilon == 6 * Fraction(2, 10)


@settings(max_examples=examples(60))
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_a_vector_of_laplace_answers_costs_no_more_than_one(parts: list[int]) -> None:
    """Independent noise on each entry: the entries' rho and tau add up to no more than is charged
    for the whole L1 sensitivity.
    """
    each = [cost("laplace", sensitivity=str(Decimal(p) / 10), scale="1") for p in parts]
    whole = cost("laplace", sensitivity={"l1": str(Decimal(sum(parts)) / 10)}, scale="1")
    assert sum(loss.rho or 0 for loss in each) <= (whole.rho or 0) + HAIR
    for order in (2, 9, 300):
        parts = sum(loss.curve.at(order) or 0 for loss in each)
        assert parts <= (whole.curve.at(order) or 0) + HAIR


def test_scales_and_counts_of_any_size_stay_finite() -> None:
    """Scales from 1e-9 to 1e9 have a finite epsilon, rho, mu and tau at the lowest and the highest
    candidate order.
    """
    for exponent in np.arange(-9, 10):
        for kind in ("laplace", "discrete_laplace", "exponential", "permute_and_flip"):
            loss = cost(kind, sensitivity="1", scale=f"1e{exponent}")
            numbers = [loss.epsilon, loss.rho, loss.mu_squared, *map(loss.curve.at, (2, 16384))]
            assert all(n is not None and n > 0 for n in numbers)
        loss = cost("gaussian", sensitivity="1", scale=f"1e{exponent}", sampling={"poisson": "0.1"})
        numbers = [loss.rho, *map(loss.curve.at, (2, 16384))]
        assert all(n is not None and n > 0 for n in numbers)


positive = st.builds(lambda n, e: n * Fraction(10) ** e, st.integers(1, 999), st.integers(-12, 3))
deltas = st.builds(lambda n, e: n * Fraction(10) ** e, st.integers(1, 9), st.integers(-20, -2))


@settings(max_examples=examples(100), deadline=None)
@given(positive, positive, deltas, deltas)
def test_conversions_are_monotone(
    one: Fraction, other: Fraction, first: Fraction, second: Fraction
) -> None:
    """A larger rho or a smaller delta never converts to a smaller epsilon, but for the hair by
    which the order is not the very best; at a fixed order the intercept falls with delta.
    """
    low, high = sorted((one, other))
    small, large = sorted((first, second))
    hair = 1 + Fraction(1, 10**9)
    assert concentrated_epsilon(low, small) <= concentrated_epsilon(high, small) * hair
    assert concentrated_epsilon(low, large) <= concentrated_epsilon(low, small) * hair
    assert intercept(1 + one, large) <= intercept(1 + one, small)


@settings(max_examples=examples(60), deadline=None)
@given(positive, st.integers(2, 3000))
def test_more_epsilon_is_more_of_everything(epsilon: Fraction, order: int) -> None:
    """rho, mu and every tau of a pure mechanism rise with epsilon, and none exceeds epsilon's own
    consequences: tau <= epsilon, rho <= epsilon^2 / 2.
    """
    less, more = pure(epsilon), pure(epsilon * Fraction(11, 10))
    assert less.rho is not None
    assert less.mu_squared is not None
    assert less.rho <= min(epsilon, epsilon**2 / 2)
    assert less.rho <= (more.rho or 0)
    assert less.mu_squared <= (more.mu_squared or 0)
    assert (less.curve.at(order) or 0) <= min(epsilon, more.curve.at(order) or 0)
