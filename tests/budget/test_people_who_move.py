"""Mechanisms under zero_out, where replacing a person may move that person to another cell."""

from __future__ import annotations

from typing import Any

import pytest
from support import SECOND, Book, audited, hospital, laplace, make

from accountant.budget.commands import Envelope, batch_of
from accountant.budget.decide import admission
from accountant.budget.facts import grant_in
from accountant.budget.outcome import ADMITTED, RECORDED, RESERVED
from accountant.ledger.events import Event
from accountant.privacy.units import Currency

LIMIT = "  - {id: a, limit: {epsilon: 5}}\n"
SEX = {"sex": ["f", "m"]}
WOMEN = {"sex": ["f"]}
EMPTIED = laplace("0.5", neighbouring="zero_out")
"""Costs 0.5 for one unit that is emptied, and nothing for the exact number of units."""


def people(membership: str = "private") -> Book:
    """A replace-one population of two cells."""
    return hospital(LIMIT, SEX, membership=membership)


def fired(event: Event) -> list[str]:
    """The rules that fired on a request."""
    return [rule for rule, _ in event.body.get("fired", ())]


def test_what_takes_numbers_as_public_charges_no_part_of_people_who_move() -> None:
    """Under zero_out the number of units is public, so that its exact value may be given out at no
    charge: who moves from one cell to another changes it, and no price for two steps covers that.
    """
    book = people()
    refused = book.grant(EMPTIED, subjects=WOMEN)
    assert refused.type == "grant.refused.v1"
    assert fired(refused) == ["built-in:private-membership", "a"]
    assert "stated under add_or_remove_one" in str(book.decision(refused))
    assert book.grant(EMPTIED).type == RESERVED
    assert [cell[0] for cell in book.used()] == [10**9, 10**9]
    book.record(EMPTIED, subjects=WOMEN)
    assert book.used_in(Currency.EPSILON) == [None, None]
    assert book.replayed().findings == []
    assert audited(book).findings == []


def test_who_stays_in_a_cell_is_charged_there() -> None:
    """With public membership nobody moves, and a part may be charged for two emptied units."""
    book = people("public")
    assert book.grant(EMPTIED, subjects=WOMEN).type == RESERVED
    assert [cell[0] for cell in book.used()] == [10**9, 0]


def before(book: Book, *commands: Any, key: str | None = None) -> list[Event]:
    """What a version before 0.3 wrote: mechanisms under zero_out were let in."""
    parts = tuple(Envelope("pipe", one, emptied=True) for one in commands)
    if len(parts) == 1:
        asked = Envelope("pipe", commands[0], key or f"k{len(book.stored)}", emptied=True)
    else:
        name = key or f"k{len(book.stored)}"
        asked = Envelope("pipe", batch_of(commands), name, commands, listed=parts)
    found: list[Event] = book._take(asked)
    return found


def ask(*mechanisms: dict[str, Any], kind: str = "ask_grant", **more: Any) -> Any:
    """A request, or a record, about women."""
    return make(kind, dataset="d", mechanisms=list(mechanisms), subjects=WOMEN, **more)


def grown() -> Book:
    """A ledger in which a version before 0.3 let such mechanisms in, in every way."""
    book = people()
    book.seals = False
    [reserved] = before(book, ask(EMPTIED | {"count": 2}))
    book.do("commit_grant", grant=grant_in(reserved), mechanisms=[EMPTIED])
    before(book, ask(EMPTIED, laplace("0.1")))
    before(book, ask(EMPTIED), ask(EMPTIED | {"claimed": {"epsilon": "0.5"}}))
    before(book, ask(EMPTIED), ask(EMPTIED | {"count": 9}))
    before(book, ask(EMPTIED, kind="record_invocations"))
    book.now += SECOND
    return book


def test_what_was_let_in_before_is_decided_again_as_it_was() -> None:
    """A ledger that let such mechanisms in goes on: each event is decided again as it was, what is
    told of it is what was decided, and new requests are refused.
    """
    book = grown()
    assert [cell[0] for cell in book.used()] == [4 * 10**9, 0]
    assert "batch.refused.v1" in {Event.from_bytes(body).type for body in book.stored}
    found = [Event.from_bytes(body) for body in book.stored]
    told = [one for one in found if one.type in (RESERVED, RECORDED)]
    assert len(told) == 4
    for event in told:
        assert "private-membership" not in str(book.decision(event))
    assert book.replayed().findings == []
    assert audited(book).findings == []
    assert fired(book.grant(EMPTIED, subjects=WOMEN))[0] == "built-in:private-membership"
    assert book.replayed().findings == []


@pytest.mark.parametrize("at_least", [None, 1])
def test_what_waited_before_is_admitted_as_it_was(at_least: int | None) -> None:
    """A request that a version before 0.3 let wait is admitted, and so it is decided again."""
    book = people()
    book.seals = False
    [held] = before(book, ask(laplace("2.5", neighbouring="add_or_remove_one")))
    more: dict[str, Any] = {} if at_least is None else {"at_least": at_least}
    before(book, ask(EMPTIED | {"count": 2 if at_least is None else 9}, wait=3600, **more))
    book.do("release_grant", grant=grant_in(held), reason="not run")
    last = Event.from_bytes(book.stored[-1])
    assert last.type == ADMITTED
    assert "private-membership" not in str(book.decision(last))
    assert admission(book.state, book.now) is None
    assert book.replayed().findings == []
