"""What was priced is known as long as the terms are the same, whatever else is asked with it."""

from __future__ import annotations

from support import laplace, make

from accountant.budget.commands import Envelope, batch_of
from accountant.budget.request import Terms
from accountant.runtime.prices import Pricing

ONE, OTHER = Terms("add_or_remove_one", (2,), 0), Terms("replace_one", (2, 3), 0)


def sampled(epsilon: str) -> dict[str, object]:
    """Laplace noise on a sample, which takes long to price."""
    return laplace(epsilon) | {"sampling": {"poisson": "0.5"}}


def record(epsilon: str, ran_at: str) -> Envelope:
    """An invocation that ran."""
    mechanisms = [sampled(epsilon)]
    return Envelope(
        "pipe", make("record_invocations", dataset="d", mechanisms=mechanisms, ran_at=ran_at), "k"
    )


def test_what_differs_in_when_it_ran_is_priced_once() -> None:
    """The mechanisms alone bear on the price; other terms are other prices, side by side."""
    pricing = Pricing()
    first, again = record("0.1", "2026-11-01T10:00:00Z"), record("0.1", "2026-11-02T10:00:00Z")
    assert pricing.left(ONE, [first])
    pricing.price(ONE, first)
    assert not pricing.left(ONE, [first])
    assert not pricing.left(ONE, [again])
    assert pricing.left(OTHER, [again])
    pricing.price(OTHER, again)
    assert not pricing.left(ONE, [first])
    assert pricing.left(ONE, [record("0.2", "2026-11-01T10:00:00Z")])


def test_a_batch_is_priced_as_a_whole() -> None:
    """Batches of other items are other batches."""
    pricing = Pricing()
    items = tuple(
        make("ask_grant", dataset="d", mechanisms=[sampled(e)]) for e in ("0.1", "0.2", "0.3")
    )
    one = Envelope("pipe", batch_of(items[:2]), "a", items[:2])
    other = Envelope("pipe", batch_of(items[1:]), "b", items[1:])
    pricing.price(ONE, one)
    assert not pricing.left(ONE, [one])
    assert pricing.left(ONE, [other])


def test_what_takes_no_time_is_not_priced_ahead() -> None:
    """Plain noise is priced where it is decided; to hand it on would take longer."""
    plain = Envelope("pipe", make("ask_grant", dataset="d", mechanisms=[laplace("0.1")]), "k")
    many = Envelope("pipe", make("ask_grant", dataset="d", mechanisms=[laplace("0.1")] * 30), "k")
    assert not Pricing().left(ONE, [plain])
    assert Pricing().left(ONE, [many])
