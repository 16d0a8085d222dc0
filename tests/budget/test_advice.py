"""What would fit in place of a request that was refused: it does, and nothing larger does."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import (
    SECOND,
    START,
    Book,
    declared,
    gaussian,
    hospital,
    laplace,
    make,
    sparse_vector,
)

from accountant.budget.advice import _number_at, _step_of, in_words, would_fit
from accountant.budget.rises import least_that
from accountant.budget.snapshot import Copied
from accountant.ledger.events import rfc3339

POLICIES = {
    "basic": "  - {id: a, limit: {epsilon: 1}}\n",
    "renyi": "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n",
    "both": "  - {id: a, limit: {epsilon: 3}}\n"
    "  - {id: b, gate: zcdp, limit: {epsilon: 1, delta: 1e-6}}\n",
    "flag": "  - {id: a, limit: {epsilon: 1}}\n  - {id: f, action: flag, limit: {epsilon: 0.1}}\n",
}


def scaled(kind: str, scale: str, **more: Any) -> dict[str, Any]:
    """A mechanism of sensitivity 1."""
    return {"kind": kind, "sensitivity": "1", "scale": scale} | more


def advice(book: Book, *mechanisms: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What would fit in place of a request that is refused."""
    command = make("ask_grant", dataset="d", mechanisms=list(mechanisms), **more)
    return would_fit(book.state, "pipe", command, book.now)


def admitted(book: Book, *mechanisms: dict[str, Any], **more: Any) -> bool:
    """Whether a grant would be reserved; nothing is left of it."""
    before = book.state.sequence
    event = book.grant(*mechanisms, **more)
    assert book.state.sequence == before + 1
    if event.type == "grant.refused.v1":
        return False
    book.do("release_grant", grant=f"g{event.sequence}", reason="it was a trial")
    return True


def above(text: str) -> str:
    """The number of three digits before the one that ``text`` spells."""
    return format(_number_at(_step_of(Decimal(text)) - 1).normalize(), "f")


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@given(
    kind=st.sampled_from(["laplace", "discrete_laplace", "exponential", "gaussian"]),
    scale=st.decimals("0.01", "90", places=3).map(str),
    count=st.integers(1, 10**6),
    used=st.decimals("0", "0.99", places=2).map(str),
)
def test_what_is_named_fits_and_nothing_larger_does(
    policy: str, kind: str, scale: str, count: int, used: str
) -> None:
    """The count and the scale are admitted; one more, or a scale one step smaller, is not. Gaussian
    noise whose own deltas are too many is told a smaller one.
    """
    book = hospital(policy)
    if Decimal(used):
        book.record(laplace(used))
    asked = scaled(kind, scale, count=count) | ({"delta": "1e-9"} if kind == "gaussian" else {})
    assume(not admitted(book, asked))
    found = advice(book, asked)
    smaller = {"delta": found["delta"]} if "delta" in found else {}
    assert found.keys() <= {"count", "scale"} | smaller.keys()
    if smaller:
        assert Decimal(found["delta"]) < Decimal(asked["delta"])
        assert not admitted(book, asked | {"scale": str(Decimal(scale) * 999_999)})
    most = found.get("count", 0)
    assert most < count
    if most:
        assert admitted(book, asked | {"count": most})
    assert not admitted(book, asked | {"count": most + 1})
    if "scale" in found:
        assert Decimal(found["scale"]) >= Decimal(scale)
        assert admitted(book, asked | smaller | {"scale": found["scale"]})
        less = {"scale": above(found["scale"])}
        assert Decimal(less["scale"]) < Decimal(scale) or not admitted(book, asked | smaller | less)
    elif smaller:
        assert admitted(book, asked | smaller)
    else:
        assert not admitted(book, asked | {"scale": str(Decimal(scale) * 999_999)})


def test_all_noise_of_a_list_is_scaled_alike() -> None:
    """Several mechanisms, and a session's scales, are told one factor."""
    book = hospital()
    asked = [scaled("laplace", "1"), scaled("exponential", "2", count=2), scaled("laplace", "1")]
    assert advice(book, *asked) == {"times": "4"}
    session = sparse_vector(threshold_scale="1", comparison_scale="20")
    opened = make("open_sparse_vector", dataset="d", mechanism=session)
    assert would_fit(book.state, "pipe", opened, book.now) == {"times": "1.5"}


@pytest.mark.parametrize(
    "around",
    [
        lambda run: {"kind": "repeat_and_select", "mechanism": run, "mean": "10"},
        lambda run: {"kind": "composed", "mechanisms": [run, run | {"count": 2}]},
        lambda run: {
            "kind": "composed",
            "mechanisms": [{"kind": "repeat_and_select", "mechanism": run, "mean": "10"}, run],
        },
    ],
)
def test_noise_inside_a_mechanism_is_scaled(around: Callable[[Any], dict[str, Any]]) -> None:
    """Tuned and composed runs are told the least factor for the noise inside them."""
    book = hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}, orders: [30]}\n")
    asked = scaled("gaussian", "9", count=3)
    found = advice(book, around(asked))
    assert found.keys() == {"times"}
    for times, fits in ((found["times"], True), (above(found["times"]), False)):
        louder = asked | {"scale": str(Decimal(9) * Decimal(times))}
        assert admitted(book, around(louder)) is fits


def test_a_list_with_something_that_has_no_noise_gets_no_advice() -> None:
    """Nothing is said where more noise is not the answer."""
    assert advice(hospital(), laplace("0.9"), declared("0.9")) == {}
    assert advice(hospital(), declared("1.5")) == {}
    tested = {"kind": "propose_test_release", "distance_scale": "1", "threshold": "9"}
    tested["release"] = laplace("0.9")
    assert advice(hospital(), {"kind": "composed", "mechanisms": [laplace("0.9"), tested]}) == {}


def test_a_claim_is_left_out() -> None:
    """A claim was of the noise that was asked for: without it the scale counts."""
    book = hospital()
    asked = scaled("laplace", "0.5", claimed={"epsilon": "2"})
    assert advice(book, asked) == {"scale": "1"}
    exaggerated = scaled("laplace", "4", claimed={"epsilon": "2"})
    assert advice(book, exaggerated) == {"scale": "4"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (gaussian("0.1"), {"delta": "0.0000001"}),
        (gaussian("5"), {"delta": "0.0000001", "scale": "23.4"}),
        (gaussian("0.1", "1e-7"), None),
    ],
)
def test_a_gaussian_under_a_sum_of_epsilons_is_told_a_delta(
    asked: dict[str, Any], found: dict[str, Any] | None
) -> None:
    """Where only its epsilon is counted it needs a delta of what the limit keeps for that; and
    perhaps more noise.
    """
    book = hospital("  - {id: a, gate: basic, limit: {epsilon: 1, delta: 1e-6}}\n")
    assert admitted(book, asked) == (found is None)
    if found is not None:
        assert advice(book, asked) == found
        assert admitted(book, asked | found)


def test_without_an_own_delta_there_is_none_to_state() -> None:
    """Under a limit without a delta no Gaussian fits, whatever its noise."""
    assert advice(hospital(), gaussian("0.1")) == {}


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        ("  - {id: r, require: [purpose]}\n", laplace("5")),
        ("  - {id: m, mechanisms: [laplace]}\n", laplace("5")),
        ("", {"kind": "non_private"}),
        ("", scaled("laplace", "0.1", claimed={"epsilon": "1"})),
    ],
)
def test_advice_is_about_budgets_only(rules: str, asked: dict[str, Any]) -> None:
    """Where something else than a limit stands against a request, less of it would not fit."""
    assert advice(hospital(POLICIES["basic"] + rules), asked) == {}


def test_nothing_fits_an_account_that_is_used_up() -> None:
    """Neither fewer nor noisier answers fit where nothing is left."""
    book = hospital()
    book.record(laplace("1"))
    assert advice(book, scaled("laplace", "1", count=5)) == {}


def test_advice_changes_nothing_and_never_raises() -> None:
    """Trying leaves the state as it was, to the byte; without a population there is no advice."""
    book = hospital(dimensions={"sex": ["f", "m"]})
    book.record(laplace("0.5"), subjects={"sex": ["f"]})
    before = list(Copied.of(book.state).dump(lambda: None))
    assert advice(book, scaled("laplace", "1", count=8), subjects={"sex": ["f"]}) == {"scale": "16"}
    assert advice(book, scaled("laplace", "2", count=8), subjects={"sex": ["m"]}) == {
        "count": 2,
        "scale": "8",
    }
    assert list(Copied.of(book.state).dump(lambda: None)) == before
    command = make("ask_grant", dataset="d", mechanisms=[laplace("5")])
    assert would_fit(Book().state, "pipe", command, 0) == {}


def test_what_came_back_since_fits_as_it_was_asked() -> None:
    """Advice is of now: a request that would be admitted meanwhile fits as it is."""
    book = hospital()
    assert advice(book, laplace("0.5", 2)) == {"count": 2}
    assert advice(book, laplace("0.5"), laplace("0.25")) == {"times": "1"}


def test_advice_in_words() -> None:
    """One sentence's end."""
    assert in_words({}) == ""
    assert in_words({"count": 3, "scale": "4.17"}) == (
        "it would fit now with count 3, or with scale 4.17 or more"
    )
    assert in_words({"delta": "0.1", "scale": "2"}) == (
        "it would fit now with delta 0.1 and scale 2 or more"
    )
    assert in_words({"times": "1.5"}) == "it would fit now with all noise scales times 1.5"


@given(low=st.integers(-5, 5), size=st.integers(0, 1000), first=st.integers(0, 1000))
def test_the_first_is_found(low: int, size: int, first: int) -> None:
    """Bisection gives what looking at every number would."""
    edge = low + min(first, size)
    assert least_that(lambda n: n >= edge, low, low + size) == edge


HOUR = 3_600 * SECOND
ROLLING = "  - {id: all, limit: {epsilon: 9}}\n  - {id: hour, window: 1h, limit: {epsilon: 1}}\n"


def rolling(*spent: str, rules: str = ROLLING) -> Book:
    """A ledger in which so much was spent, a minute apart, and is to pass from a window."""
    book = hospital(rules)
    for epsilon in spent:
        book.record(laplace(epsilon))
        book.now += 60 * SECOND
    return book


def from_when(book: Book, epsilon: str) -> Any:
    """From when on a request fits, as a client is told: on a copy of what bears on it."""
    command = make("ask_grant", dataset="d", mechanisms=[laplace(epsilon)])
    return would_fit(book.state.about("d", "pipe", book.now), "pipe", command, book.now).get("from")


def test_a_request_fits_when_enough_has_left_a_rolling_window() -> None:
    """To the microsecond, and no sooner."""
    book = rolling("0.5", "0.3", "0.2")
    assert from_when(book, "0.5") == rfc3339(START + HOUR)
    assert from_when(book, "0.7") == rfc3339(START + 60 * SECOND + HOUR)
    assert from_when(book, "1.1") is None
    book.now = START + 60 * SECOND + HOUR - 1
    assert not admitted(book, laplace("0.7"))
    book.now += 1
    assert admitted(book, laplace("0.7"))


def test_nothing_is_told_where_another_limit_is_used_up() -> None:
    """Time alone does not take away what stands in the way there."""
    book = rolling("0.9", rules=ROLLING.replace("epsilon: 9", "epsilon: 1.2"))
    assert from_when(book, "0.4") is None


def test_nothing_is_told_of_a_window_with_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """To copy it would take long, while others wait."""
    book = rolling("0.5", "0.3", "0.2")
    monkeypatch.setattr("accountant.budget.state._MOST_STAMPS", 2)
    assert from_when(book, "0.5") is None
