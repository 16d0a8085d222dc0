"""A denied mechanism kind is denied wherever it stands, and a decision says where that was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Book, audited, gaussian, hospital, laplace, mechanism, sparse_vector

from accountant.budget.request import places_in
from accountant.privacy.mechanisms import KINDS

WIDE = "  - {id: wide, limit: {epsilon: 1000, delta: 1e-3}}\n"
EXPONENTIAL = {"kind": "exponential", "sensitivity": "0.01", "scale": "20"}
HOLDOUT = {
    "kind": "reusable_holdout",
    "sensitivity": "0.0001",
    "threshold_scale": "0.02",
    "comparison_scale": "0.04",
    "answer_scale": "0.01",
    "budget": 5,
}
PLAIN = laplace("0.01")
COMPOSED = {"kind": "composed", "mechanisms": [PLAIN]}
COMPOUNDS: list[tuple[dict[str, Any], str, str]] = [
    (PLAIN, "laplace", "laplace"),
    (COMPOSED, "laplace", "laplace inside composed"),
    (
        {"kind": "composed", "mechanisms": [COMPOSED]},
        "laplace",
        "laplace inside composed inside composed",
    ),
    (
        {"kind": "plan", "mechanisms": [PLAIN], "epsilon": "1", "delta": "1e-9"},
        "laplace",
        "laplace inside plan",
    ),
    (
        {"kind": "subsample_and_aggregate", "aggregator": PLAIN},
        "laplace",
        "laplace inside subsample_and_aggregate",
    ),
    (
        {
            "kind": "propose_test_release",
            "distance_scale": "10",
            "threshold": "200",
            "release": PLAIN,
        },
        "laplace",
        "laplace inside propose_test_release",
    ),
    (
        {
            "kind": "multiplicative_weights",
            "rounds": 2,
            "selection": EXPONENTIAL,
            "measurement": PLAIN,
        },
        "laplace",
        "laplace inside multiplicative_weights",
    ),
    (
        {
            "kind": "multiplicative_weights",
            "updates": sparse_vector(releases="fresh_noisy_answer", answer_scale="100"),
        },
        "sparse_vector",
        "sparse_vector inside multiplicative_weights",
    ),
    (
        {"kind": "boosting", "rounds": 2, "draws": 3, "draw": EXPONENTIAL, "base": PLAIN},
        "exponential",
        "exponential inside boosting",
    ),
    (HOLDOUT, "sparse_vector", "sparse_vector inside reusable_holdout"),
    (
        COMPOSED | {"sampling": {"without_replacement": {"sample": 1, "of": 100}}},
        "laplace",
        "laplace inside composed",
    ),
    (
        {
            "class": "PoissonSampledDpEvent",
            "fields": {
                "sampling_probability": "0.01",
                "event": {
                    "class": "ComposedDpEvent",
                    "fields": {
                        "events": [
                            {"class": "GaussianDpEvent", "fields": {"noise_multiplier": "9"}},
                            {"class": "LaplaceDpEvent", "fields": {"noise_multiplier": "90"}},
                        ]
                    },
                },
            },
        },
        "gaussian",
        "gaussian inside composed",
    ),
]


def ledger(*denied: str) -> Book:
    """A ledger that denies these kinds."""
    return hospital(f"{WIDE}  - {{id: none, mechanisms: [{', '.join(denied)}]}}\n")


@pytest.mark.parametrize(("body", "kind", "words"), COMPOUNDS)
def test_a_denied_kind_is_denied_inside_another(
    body: dict[str, Any], kind: str, words: str
) -> None:
    """Nothing wraps a denied kind so that it passes, and the decision says where it was found."""
    book = ledger(kind)
    event = book.grant(body)
    assert event.type == "grant.refused.v1"
    assert ["none", "mechanism-denied"] in event.body["fired"]
    [found] = [one for one in book.decision(event)["rules"] if one["rule"] == "none"]
    assert found["text"].endswith(f"requested: {words}")


@pytest.mark.parametrize(("body", "kind", "words"), COMPOUNDS)
def test_other_kinds_stay_allowed(body: dict[str, Any], kind: str, words: str) -> None:
    """A rule that denies a kind of which a request is not made does not fire."""
    event = ledger("unary_encoding").grant(body)
    assert ["none", "mechanism-denied"] not in event.body.get("fired", [])


def test_a_session_inside_nothing_is_found_too() -> None:
    """A sparse vector session is a mechanism like any other."""
    book = ledger("sparse_vector")
    event = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
    assert event.type == "grant.refused.v1"


def test_each_place_is_named_once() -> None:
    """A kind in several places is named with each of them, and with each of them once."""
    book = ledger("laplace", "gaussian")
    event = book.grant(PLAIN, laplace("0.02"), COMPOSED, gaussian("0.01", "1e-9"))
    [found] = [one for one in book.decision(event)["rules"] if one["rule"] == "none"]
    assert found["text"].endswith("requested: laplace, laplace inside composed, gaussian")


def test_both_verifiers_agree() -> None:
    """Replay and the small verifier come to the same outcome for every compound."""
    book = ledger("laplace", "sparse_vector")
    for body, *_ in COMPOUNDS:
        book.grant(body)
    assert book.replayed().findings == []
    audit = audited(book)
    assert (audit.findings, audit.believed) == ([], set())


@pytest.mark.parametrize(("body", "kind", "words"), COMPOUNDS[:2])
def test_the_small_verifier_finds_a_grant_of_a_denied_kind(
    body: dict[str, Any], kind: str, words: str
) -> None:
    """A ledger that granted a denied kind, alone or inside another, is not believed."""
    book = ledger("unary_encoding")
    book.grant(body)
    book.stored = [one.replace(b'"unary_encoding"', f'"{kind}"'.encode()) for one in book.stored]
    where = [each["where"] for each in audited(book).findings if "rule none" in each["reason"]]
    assert where == [4]


def kinds_of(body: dict[str, Any]) -> Iterator[str]:
    """The kinds that a mechanism names; a reusable holdout has a part that it does not."""
    yield body["kind"]
    yield from ["sparse_vector"] * (body["kind"] == "reusable_holdout")
    for part in body.get("mechanisms", ()):
        yield from kinds_of(part)


parts = st.recursive(
    st.sampled_from([PLAIN, EXPONENTIAL, gaussian("0.01"), HOLDOUT]),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(
        lambda bodies: {"kind": "composed", "mechanisms": bodies}
    ),
    max_leaves=6,
)


@given(parts)
def test_every_kind_that_is_spelled_is_found(body: dict[str, Any]) -> None:
    """The kinds are those that the body names, and a place ends with the mechanism itself."""
    places = list(places_in(mechanism(body)))
    named = set(kinds_of(body))
    assert {place[0] for place in places} == named <= set(KINDS)
    assert {place[-1] for place in places} == {body["kind"]}
