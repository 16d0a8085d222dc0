"""The best feature, found in two ways on the same data, and what each costs."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from catalogue import without_first
from empirical import lower_bound, refuted
from opening import Opens
from priced import pooled

from accountant import queries
from accountant.client import Client
from accountant.queries.features import agreement, best_feature, by_both, features_above

NAMES = [f"f{i}" for i in range(40)]


def table(size: int, best: int = 25, seed: int = 6) -> dict[str, Any]:
    """Coins of which one nearly always agrees with the target."""
    numbers = np.random.default_rng(seed)
    target = numbers.integers(0, 2, size)
    rows = {name: numbers.integers(0, 2, size) for name in NAMES}
    rows[NAMES[best]] = np.where(numbers.random(size) < 0.9, target, 1 - target)
    return rows | {"target": target}


def survey(ledger: Client, rows: Any) -> Any:
    """Rows as a dataset."""
    return queries.dataset(ledger, "visits", rows)


def test_both_find_the_best(comes_and_goes: Client) -> None:
    """Both name the feature that agrees, the one for its whole epsilon, the other for that of one
    positive; both errors are small beside its lead.
    """
    data = survey(comes_and_goes, table(3000))
    choice = best_feature(data, NAMES, "target", epsilon="0.5")
    search = features_above(data, NAMES, "target", threshold=2100, epsilon="0.5", positives=4)
    before = comes_and_goes.accounts().sequence
    with pytest.raises(ValueError, match="two grants"):
        by_both(choice, search, purpose="test", idempotency_key="both")
    assert comes_and_goes.accounts().sequence == before
    both = by_both(choice, search, purpose="test")
    assert both.chosen.value == NAMES[25]
    assert both.found.value == (NAMES[25],)
    assert both.chosen.receipt.charge["epsilon"] == Decimal("0.5")
    assert Decimal("0.1") < both.found.receipt.charge["epsilon"] < Decimal("0.3")
    assert both.chosen.error.amount < search.error().amount < 600


def test_nothing_is_found_for_the_thresholds_cost(comes_and_goes: Client) -> None:
    """Where no feature is near the threshold, the search costs what the threshold's noise does."""
    data = survey(comes_and_goes, table(300))
    search = features_above(data, NAMES, "target", threshold=10_000, epsilon="0.5")
    answer = search.release(purpose="test")
    assert answer.value == ()
    once = 1 / search.session.what.threshold_scale
    assert float(answer.receipt.charge["epsilon"]) == pytest.approx(float(once), abs=1e-8)


def test_the_error_is_as_in_theory(comes_and_goes: Client) -> None:
    """The choice falls short by ln(N / beta) / epsilon; the search's error is several times that,
    with the logarithm of the number of features too.
    """
    data = survey(comes_and_goes, table(300))
    choice = best_feature(data, NAMES, "target", epsilon="0.5")
    assert choice.error(0.95).amount == pytest.approx(np.log(40 / 0.05) / 0.5, rel=1e-6)
    search = features_above(data, NAMES, "target", threshold=1, epsilon="0.5")
    scale = float(search.session.what.comparison_scale)
    few = search.session.error(0.95, questions=40).amount
    many = search.session.error(0.95, questions=4000).amount
    assert many - few == pytest.approx(scale * np.log(100), rel=0.01)


def test_both_cost_what_was_asked_for(opened: Opens) -> None:
    """Where units are replaced scores are not monotonic, and both charges stay what they are."""
    data = survey(opened("replace_one"), table(40))
    choice = best_feature(data, NAMES, "target", epsilon=1)
    search = features_above(data, NAMES, "target", threshold=1, epsilon=1)
    for query in (choice, search):
        assert Decimal("0.999999") < query.cost(purpose="test").charge["epsilon"] <= 1
    assert not search.session.what.monotonic


EPSILON, TIMES = 2.0, 6000


def few(size: int) -> dict[str, Any]:
    """Two features: the one agrees on the first record only, the other on the second."""
    return {
        "target": np.ones(size, dtype=int),
        "f0": np.eye(size, dtype=int)[0],
        "f1": np.eye(size, dtype=int)[1],
    }


@pytest.mark.parametrize("weak", [1, 3])
def test_no_event_refutes_the_choice(weak: int, comes_and_goes: Client) -> None:
    """Choices on neighbours refute no more than the charge; at a third of the scale they do."""
    rows = {name: column[:2] for name, column in few(3).items()}
    one, other = (
        best_feature(survey(comes_and_goes, each), ["f0", "f1"], "target", epsilon=EPSILON)
        for each in (rows, without_first(rows))
    )
    steps = [replace(step, scale=step.scale / weak) for step in one.steps]
    found = refuted(steps, one, other, TIMES)
    assert (found > EPSILON) == (weak > 1)


@pytest.mark.parametrize("bare", [False, True])
def test_no_event_refutes_the_search(bare: bool, comes_and_goes: Client) -> None:
    """Whether none of four features is found refutes no more than the charge; without noise on the
    threshold it does.
    """
    names = ["f0", "f1", "f2", "f3"]
    rows = {name: np.ones(2, dtype=int) for name in [*names, "target"]}
    both = []
    for each in (rows, without_first(rows)):
        search = features_above(
            survey(comes_and_goes, each), names, "target", threshold=1, epsilon=EPSILON
        )
        what = search.session.what
        scores = [Fraction(agreement("target", each, name)) for name in names]
        begin, place, outcomes = pooled(what, 1), what.place(1), []
        for _ in range(20_000):
            running = replace(begin(), threshold=place) if bare else begin()
            outcomes.append(float(any(running.ask_all(scores))))
        both.append(np.array(outcomes))
    assert (lower_bound(*both) > EPSILON) == bare


def test_bad_features_are_refused(comes_and_goes: Client) -> None:
    """Fewer than two features, one twice, the target among them, and unknown ones are refused."""
    data = survey(comes_and_goes, table(30))
    for names, why in (
        (["f0"], "at least two"),
        (["f0", "f0"], "all different"),
        (["f0", "target"], "none is the target"),
        (["f0", "f99"], "no column 'f99'"),
    ):
        with pytest.raises(ValueError, match=why):
            best_feature(data, names, "target", epsilon=1)
        with pytest.raises(ValueError, match=why):
            features_above(data, names, "target", threshold=1, epsilon=1)
