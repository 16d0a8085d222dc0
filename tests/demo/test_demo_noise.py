"""The demonstration's noise: what is declared is what is drawn, and OpenDP agrees on its price.

Statistical bounds are wide: a correct sampler fails less than once in a million runs.
"""

from __future__ import annotations

import math
from decimal import Decimal
from statistics import fmean
from typing import Any

import pytest
from pydantic import TypeAdapter

from accountant.privacy.mechanisms import Mechanism, Relation, Verdict, price
from accountant.privacy.units import Currency
from examples.survey import noise

DRAWS = 8_000
SPARSE = noise.AboveThreshold(
    550, threshold_scale=Decimal(8), comparison_scale=Decimal(16), positives=5
)
ALL: dict[str, Any] = {
    "laplace": noise.laplace(Decimal(4)),
    "laplace, no round scale": noise.laplace(Decimal("3.3")),
    "discrete laplace": noise.discrete_laplace(Decimal(4)),
    "discrete laplace, little noise": noise.discrete_laplace(Decimal("0.5")),
    "two coins": noise.two_coins(),
    "unary encoding": noise.unary_encoding(5),
    "sparse vector": SPARSE,
}


@pytest.mark.parametrize("name", ALL)
def test_price(name: str) -> None:
    """OpenDP's privacy map is at most what the service charges for the declaration."""
    declared = TypeAdapter(Mechanism).validate_python(ALL[name].declaration)
    priced = price(declared, Relation.REPLACE_ONE)
    assert priced.verdict is Verdict.CONSISTENT
    assert not priced.objections
    charged = Decimal(priced.charge[Currency.EPSILON]) / 10**9
    assert Decimal(ALL[name].epsilon) <= charged <= Decimal(ALL[name].epsilon) * Decimal("1.000001")


@pytest.mark.parametrize("scale", [1, 4, 16])
def test_laplace(scale: int) -> None:
    """Laplace noise has mean 0 and mean absolute value b, and is not whole."""
    sampler = noise.laplace(Decimal(scale))
    draws = [sampler.draw(100.0) - 100 for _ in range(DRAWS)]
    assert abs(fmean(draws)) < 6 * math.sqrt(2) * scale / math.sqrt(DRAWS)
    assert abs(fmean(map(abs, draws)) - scale) < 6 * scale / math.sqrt(DRAWS)
    assert any(draw != round(draw) for draw in draws)


@pytest.mark.parametrize("scale", [1, 4])
def test_discrete_laplace(scale: int) -> None:
    """Discrete Laplace noise is whole, and 0 with probability tanh(1 / 2b)."""
    sampler = noise.discrete_laplace(Decimal(scale))
    draws = [sampler.draw(100) - 100 for _ in range(DRAWS)]
    assert all(isinstance(draw, int) for draw in draws)
    zero = math.tanh(1 / (2 * scale))
    share = fmean(draw == 0 for draw in draws)
    assert abs(share - zero) < 6 * math.sqrt(zero * (1 - zero) / DRAWS)


@pytest.mark.parametrize(("answer", "share"), [(True, 0.75), (False, 0.25)])
def test_two_coins(answer: bool, share: float) -> None:
    """Two coins report the truth three times in four."""
    sampler = noise.two_coins()
    yes = fmean(sampler.draw(answer) for _ in range(DRAWS))
    assert abs(yes - share) < 6 * math.sqrt(0.25 * 0.75 / DRAWS)


def test_unary_encoding() -> None:
    """Each bit of the encoding is reported wrong with probability 0.375, for itself."""
    sampler = noise.unary_encoding(5)
    reports = [sampler.draw((0, 0, 1, 0, 0)) for _ in range(DRAWS)]
    bound = 6 * math.sqrt(0.375 * 0.625 / DRAWS)
    for i, column in enumerate(zip(*reports, strict=True)):
        assert abs(fmean(column) - (0.625 if i == 2 else 0.375)) < bound
    both = fmean(report[0] * report[1] for report in reports)
    assert abs(both - 0.375**2) < 6 * math.sqrt(0.375**2 / DRAWS)


def test_sparse_vector_stops() -> None:
    """The session stops at its last positive, and clear questions get the clear answer."""
    session = noise.AboveThreshold(
        500, threshold_scale=Decimal(8), comparison_scale=Decimal(16), positives=2
    )
    answers = [session.ask(count) for count in (0, 5_000, 0, 5_000)]
    assert answers == [False, True, False, True]
    with pytest.raises(RuntimeError):
        session.ask(0)


def test_sparse_vector_noise() -> None:
    """A count just at the threshold is answered either way: threshold and comparison are noisy."""
    answers = set()
    for _ in range(100):
        session = noise.AboveThreshold(
            500, threshold_scale=Decimal(8), comparison_scale=Decimal(16), positives=1
        )
        answers.add(session.ask(500))
    assert answers == {True, False}
