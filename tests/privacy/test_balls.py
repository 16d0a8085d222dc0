"""Integers next to real numbers, held against mpmath at sixty digits and more."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import pytest
from effort import examples
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.privacy import balls
from accountant.privacy.balls import MOST_BITS, Number, Real, ball, ceiling, floor, least, most
from accountant.privacy.losses import Loss, bounded_range, pure
from accountant.privacy.mechanisms import Relation
from accountant.privacy.mechanisms.additive import Laplace
from accountant.privacy.units import Currency, charge_of

NANO, FEMTO = 10**9, 10**15
THIRD = Fraction(1, 3)


def real(value: Fraction) -> mpmath.mpf:
    """The value at the working precision."""
    return mpmath.mpf(value.numerator) / value.denominator


positive = st.builds(
    lambda digits, exponent: Fraction(digits) * Fraction(10) ** exponent,
    st.integers(1, 10**12),
    st.integers(-40, 30),
)


@given(positive, st.sampled_from([1, NANO, FEMTO]))
def test_logarithms_fall_between_their_integers(value: Fraction, scale: int) -> None:
    """Ceiling and floor of a logarithm are those of mpmath; ln 1 is 0 exactly."""
    with mpmath.workdps(90):
        truth = mpmath.log(real(value)) * scale
        assert ceiling(balls.log(value), scale) == mpmath.ceil(truth)
        assert floor(balls.log(value), scale) == mpmath.floor(truth)
    assert balls.log(Fraction(1)) == 0


@given(st.fractions(), st.sampled_from([1, NANO, FEMTO]))
def test_fractions_stay_exact(value: Fraction, scale: int) -> None:
    """A fraction is rounded as a fraction."""
    assert ceiling(value, scale) == -((-value * scale) // 1)
    assert floor(value, scale) == value * scale // 1


@given(above=st.integers(0, 10**40), below=st.integers(1, 10**40))
def test_ratios_and_squares_are_fractions_in_lowest_terms(above: int, below: int) -> None:
    """As the class itself makes them: equal ones have equal terms, and equal hashes."""
    for found, same in [
        (balls.ratio(above, below), Fraction(above, below)),
        (balls.square(Fraction(above, below)), Fraction(above, below) ** 2),
    ]:
        assert isinstance(found, Fraction)
        assert found.as_integer_ratio() == same.as_integer_ratio()
        assert hash(found) == hash(same)


@pytest.mark.parametrize("exponent", [-50, -900, -30_000])
def test_a_ball_that_straddles_an_integer_is_computed_again(exponent: int) -> None:
    """1 + 2^-50 and 1 + 2^-900 are above 1, though a hundred bits do not show it; what 4,096 bits
    do not show either is taken to be above.
    """
    near = Real(lambda: 1 + arb(2) ** exponent + (arb(3).log() - arb(3).log()))
    below = Real(lambda: 1 - arb(2) ** exponent + (arb(3).log() - arb(3).log()))
    assert (ceiling(near), floor(below)) == (2, 0)
    assert (floor(near), ceiling(below)) == ((0, 2) if exponent < -MOST_BITS else (1, 1))


def test_what_stands_on_an_integer_is_never_rounded_past_it() -> None:
    """A ball that no precision tells from 2 is booked as 3 and allows 1: too much, or too little
    room, never the reverse.
    """
    two = Real(lambda: arb(2).sqrt() * arb(2).sqrt())
    assert (ceiling(two), floor(two)) == (3, 1)
    assert not two < 2
    assert not two > 2


@given(st.lists(st.fractions(0, 9), min_size=1, max_size=6), st.lists(st.integers(2, 9)))
def test_sums_and_extremes_are_those_of_mpmath(exact: list[Fraction], logs: list[int]) -> None:
    """Fractions and reals add up and compare; where a fraction is the extreme it stays one."""
    numbers: list[Number] = [*exact, *(balls.log(Fraction(n)) for n in logs)]
    with mpmath.workdps(60):
        truths = [real(v) for v in exact] + [mpmath.log(n) for n in logs]
        for found, truth in (
            (balls.total(*numbers), mpmath.fsum(truths)),
            (least(*numbers), min(truths)),
            (most(*numbers), max(truths)),
        ):
            # The truth of a fraction is rounded, perhaps to just above a whole number.
            assert ceiling(found, FEMTO) == mpmath.ceil(truth * FEMTO - mpmath.mpf(10) ** -30)
        if max(truths) in truths[: len(exact)]:
            assert isinstance(most(*numbers), Fraction)


def test_the_callers_precision_neither_matters_nor_changes() -> None:
    """Whatever precision is in force, before an error too."""
    before = ctx.prec
    try:
        ctx.prec = 7
        assert ceiling(balls.log(Fraction(3)), FEMTO) == 1098612288668110
        with pytest.raises(ZeroDivisionError):
            ceiling(Real(lambda: ball(1 / Fraction(int(ctx.prec > MOST_BITS)))))
        assert ctx.prec == 7
    finally:
        ctx.prec = before


def test_threads_do_not_disturb_one_another() -> None:
    """FLINT's precision is one for the process: evaluations take turns."""

    def work(n: int) -> int:
        return sum(ceiling(balls.log(Fraction(n + i, 7)), 10 ** (9 + i)) for i in range(60))

    alone = [work(n) for n in range(8, 16)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8, 16))) == alone


def pure_truths(epsilon: Fraction, order: int) -> dict[str, mpmath.mpf]:
    """rho, mu^2 and tau of randomised response, from their definitions."""
    e = real(epsilon)
    p = 1 / (1 + mpmath.exp(-e))
    divergence = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
    return {
        "rho": (2 * p - 1) * e,
        "tau": mpmath.log(divergence) / (order - 1),
    }


def laplace_truths(epsilon: Fraction, order: int) -> dict[str, mpmath.mpf]:
    """rho and tau of Laplace noise (Harrison and Manurangsi 2026; Mironov 2017, Prop. 6)."""
    e, a = real(epsilon), order
    raised = a * mpmath.exp((a - 1) * e) + (a - 1) * mpmath.exp(-a * e)
    return {"rho": e + mpmath.expm1(-e), "tau": mpmath.log(raised / (2 * a - 1)) / (a - 1)}


def laplace(epsilon: Fraction) -> Loss:
    """Laplace noise of ``epsilon``, whose numerator and denominator are short."""
    noise = Laplace.model_validate(
        {"kind": "laplace", "sensitivity": epsilon.numerator, "scale": epsilon.denominator}
    )
    return noise.loss(Relation.ADD_OR_REMOVE_ONE)


def ranged_truths(epsilon: Fraction, order: int) -> dict[str, mpmath.mpf]:
    """rho (Cesar and Rogers 2021) and tau of a bounded range: of the pairs with the losses t and
    t - epsilon, e^t = y, the hardest.
    """
    e, a = real(epsilon), order
    rest = mpmath.exp(-(a - 1) * e)
    y = mpmath.mpf(a - 1) / a * (mpmath.exp(e) - rest) / (1 - rest)
    likely = (mpmath.exp(e) - y) / mpmath.expm1(e)
    moment = likely * y ** (a - 1) + (1 - likely) * (y * mpmath.exp(-e)) ** (a - 1)
    rho = min(e * e / 8, pure_truths(epsilon, order)["rho"])
    return {"rho": rho, "tau": mpmath.log(moment) / (a - 1)}


@pytest.mark.parametrize(
    ("loss_of", "truths"),
    [(pure, pure_truths), (laplace, laplace_truths), (bounded_range, ranged_truths)],
    ids=["pure", "laplace", "bounded range"],
)
@settings(max_examples=examples(60), deadline=None)
@given(
    epsilon=st.builds(
        lambda n, e: n * Fraction(10) ** e, st.integers(1, 999), st.integers(-12, -1)
    ),
    order=st.integers(2, 300),
)
def test_what_is_booked_is_the_least_that_is_true(
    loss_of: Callable[[Fraction], Loss],
    truths: Callable[[Fraction, int], dict[str, mpmath.mpf]],
    epsilon: Fraction,
    order: int,
) -> None:
    """Every currency is booked as the least whole number of units that is not below the truth."""
    charge = charge_of(loss_of(epsilon), 1, (order,))
    assert charge.units(Currency.EPSILON) == max(1, ceiling(epsilon, NANO))
    with mpmath.workdps(120):
        found = truths(epsilon, order)
        for currency, name in ((Currency.RHO, "rho"), (Currency.tau(order), "tau")):
            truth = found[name] * FEMTO - mpmath.mpf("1e-60")  # some are whole numbers
            assert charge.units(currency) == max(1, mpmath.ceil(truth))


@settings(max_examples=examples(60), deadline=None)
@given(st.builds(lambda n, e: n * Fraction(10) ** e, st.integers(1, 999), st.integers(-7, -1)))
def test_the_mu_that_is_booked_is_the_least(epsilon: Fraction) -> None:
    """With m units of mu^2 both errors reach the corner of randomised response, with m - 1 they do
    not: Phi(-mu / 2) <= 1 / (1 + e^epsilon) (Dong, Roth, Su 2022).
    """
    units = charge_of(pure(epsilon), 1).units(Currency.MU_SQUARED)
    assert units is not None
    with mpmath.workdps(80):
        corner = 1 / (1 + mpmath.exp(real(epsilon)))

        def tail(m: int) -> mpmath.mpf:
            return mpmath.ncdf(-mpmath.sqrt(real(Fraction(m, FEMTO))) / 2)

        assert tail(units) <= corner
        assert units == 1 or tail(units - 1) > corner
