"""Wide groups: sets of positions in one spelling, registrations that take several events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from support import Book, hospital, laplace, make, snapshot

from accountant.budget.apply import fold
from accountant.budget.commands import STORED, Envelope, command_from_json
from accountant.budget.decide import Repeated
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.facts import grant_in
from accountant.budget.population.packing import LONGEST, in_names, packed, packed_as
from accountant.budget.population.positions import read, spell
from accountant.budget.population.selection import Positions, select
from accountant.budget.replay import replay
from accountant.budget.sealing import seal, seal_again
from accountant.ledger.events import MAX_BYTES, Event, canonical

JOINED = {"week": "the week a person joined never changes"}
WEEKS = [f"week-{number:05d}" for number in range(6_000)]
RULES = "  - {id: a, limit: {epsilon: 1}}\n"

sets = st.one_of(
    st.sets(st.integers(0, 60), min_size=1),
    st.sets(st.integers(0, 999_999), min_size=1, max_size=30),
    st.tuples(st.integers(0, 3_000), st.integers(1, 3_000)).map(lambda r: set(range(r[0], sum(r)))),
)


def wide() -> Book:
    """A population with 12,000 cells."""
    return hospital(RULES, {"week": WEEKS, "sex": ["f", "m"]}, fixed=JOINED)


def asking(names: Any, **more: Any) -> Any:
    """A grant about some weeks."""
    subjects = {"week": names} | more
    return make("ask_grant", dataset="d", mechanisms=[laplace("0.1")], subjects=subjects)


@given(sets)
def test_a_set_has_one_spelling(positions: set[int]) -> None:
    """What is spelled reads back as it was, and is the shorter of both codes."""
    ordered = np.array(sorted(positions), dtype=np.int64)
    spelled = spell(ordered)
    assert read(spelled).tolist() == ordered.tolist()
    [text] = spelled.values()
    assert len(text) <= (ordered[-1] // 8 + 1) * 4 // 3 + 3


@given(st.sampled_from(["bits", "gaps"]), st.text("ABCDwxyz0189-_=+/", max_size=12))
def test_nothing_else_is_read(code: Any, text: str) -> None:
    """Any other text, or another spelling of a set, is a ValueError, for a set has one digest."""
    try:
        positions = read({code: text})
    except ValueError:
        return
    assert spell(positions) == {code: text}


@pytest.mark.parametrize("text", ["", "AAA", "__", "////", "-----w", "_____w8", "gICAgAE", "gIA"])
@pytest.mark.parametrize("code", ["bits", "gaps"])
def test_what_is_cut_off_or_beyond_all_cells_is_refused(code: Any, text: str) -> None:
    """No spelling can ask for more memory than a million cells take."""
    try:
        found = read({code: text})
    except ValueError:
        return
    assert found[-1] < 10**6


def test_long_lists_are_held_as_positions_and_short_ones_as_names() -> None:
    """Up to 4 KiB a list stays as it was sent, byte for byte, in its order."""
    book = wide()
    short = asking(WEEKS[100:400][::-1])
    assert packed(book.state.people(), short) is short
    some = WEEKS[::3]
    long = packed(book.state.people(), asking(some))
    stored = long.to_json()["subjects"]["week"]
    assert stored.keys() in ({"bits"}, {"gaps"})
    assert len(canonical(stored)) < LONGEST < len(canonical(some))
    assert in_names(book.state.people(), long.to_json())["subjects"] == {"week": some}
    unknown = asking([*some, "no week"])
    assert packed(book.state.people(), unknown) is unknown
    with pytest.raises(Invalid, match="no value 'no week'"):
        book.ask(unknown)


@given(st.lists(st.integers(0, len(WEEKS) - 1), min_size=400, max_size=900), st.booleans())
def test_positions_mean_the_cells_that_the_names_mean(places: list[int], union: bool) -> None:
    """However a list is held, in a union or alone, it selects the same cells."""
    people = PEOPLE
    names = [WEEKS[place] for place in places]
    subjects: Any = (
        [{"week": names, "sex": ["f"]}, {"week": WEEKS[:9]}] if union else {"week": names}
    )
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.1")], subjects=subjects)
    held: Any = command_from_json(packed(people, command).to_json())
    asked: Any = command
    assert select(people, held.subjects) == select(people, asked.subjects)


PEOPLE = wide().state.people()


def test_nobody_can_ask_by_positions() -> None:
    """A request names values; positions are how the ledger holds them."""
    stored = spell(np.arange(0, 900, 2))
    [text] = stored.values()
    with pytest.raises(ValidationError, match="a list of names, or a range"):
        type(asking(["x"])).model_validate(
            {"dataset": "d", "mechanisms": [laplace("1")], "subjects": {"week": stored}}
        )
    for bad in ({"bits": text, "gaps": text}, {}, {"bits": "AA"}, {"bits": 1}):
        with pytest.raises(ValidationError):
            TypeAdapter(Positions).validate_python(bad, context=STORED)


def test_a_retry_is_known_in_any_order_of_a_long_list() -> None:
    """A long list is a set: another order is the same request, another set is not; and a list that
    was recorded as names before there were positions is still known.
    """
    book = wide()
    some = WEEKS[::3]
    shuffled = [*some[7:], *some[:7]]

    def sealed(names: list[str], stored: list[Event] | None = None) -> Any:
        asked = Envelope("pipe", asking(names), "k")
        if stored is None:
            return seal(book.state, asked, lambda: b"")[0]
        return seal_again(book.state, asked, stored, {})

    first = book.ask(sealed(some).command, key="k")
    assert book.ask(sealed(shuffled, first).command, key="k") == Repeated(first[0].sequence)
    with pytest.raises(Invalid, match="another request"):
        book.ask(sealed(some[1:], first).command, key="k")
    book.seals = False
    old = book.ask(asking(some), key="old")
    assert old[0].body["command"]["subjects"] == {"week": some}
    again = packed_as(book.state.people(), asking(some), old[0].body["command"])
    assert book.ask(again, key="old") == Repeated(old[0].sequence)


def test_wide_charges_are_booked_extended_and_replayed() -> None:
    """A grant on scattered cells, in one event: booked, widened by new values of dimensions that
    it does not name, given back, and replayed.
    """
    book = wide()
    held = packed(book.state.people(), asking(WEEKS[::3]))
    grant = grant_in(book.ask(held)[0])
    assert sum(cell[0] > 0 for cell in book.used()) == 4_000
    assert len(book.stored[-1]) < 3_000
    book.register({"week": [*WEEKS, "week-more"], "sex": ["f", "m", "x"]}, attested_new=True)
    assert sum(cell[0] > 0 for cell in book.used()) == 6_000
    book.do("release_grant", grant=grant, reason="never run")
    assert not any(cell[0] for cell in book.used())
    result = list(replay("fair", book.stored))[-1]
    assert result.findings == []
    assert snapshot(result.state) == snapshot(book.state)


def test_positions_beyond_the_dimension_are_found() -> None:
    """A forged set that names positions which nobody has registered is a finding."""
    book = wide()
    event = book.ask(packed(book.state.people(), asking(WEEKS[::3])))[0]
    forged = event.to_json()
    forged["command"] = forged["command"] | {"subjects": {"week": spell(np.array([1, 5, 7_000]))}}
    assert list(replay("fair", [*book.stored[:-1], canonical(forged)]))[-1].findings


@pytest.mark.parametrize("attested", [True, False])
def test_a_large_registration_takes_several_events(attested: bool) -> None:
    """A dimension that no event can hold is registered, and later extended, by one command: all of
    it or nothing, with the same cells as if it had fitted.
    """
    book = hospital(RULES, {"week": WEEKS[:5_500], "sex": ["f", "m"]}, fixed=JOINED)
    assert len(book.stored) > 3
    assert max(map(len, book.stored)) <= MAX_BYTES
    assert dict(book.state.people().dimensions) == {"week": tuple(WEEKS[:5_500]), "sex": ("f", "m")}
    before = len(book.stored)
    book.register({"week": WEEKS[:5_500], "sex": ["f", "m"]})
    assert len(book.stored) == before
    book.record(laplace("0.1"), subjects={"sex": ["f"]})
    book.register({"week": WEEKS, "sex": ["f", "m", "x"]}, attested_new=attested)
    assert dict(book.state.people().dimensions) == {"week": tuple(WEEKS), "sex": ("f", "m", "x")}
    charged = sum(cell[0] > 0 for cell in book.used())
    assert charged == (5_500 if attested else 12_000)
    for wrong in (
        {"week": WEEKS[1:]},
        {"week": WEEKS},
        {"week": WEEKS[:10], "sex": ["f", "m", "x"]},
    ):
        with pytest.raises(Conflict):
            book.register(wrong)
    with pytest.raises(Invalid, match="twice"):
        book.register({"week": [*WEEKS, "new", "new"], "sex": ["f", "m", "x"]})
    assert book.replayed().findings == []
    again = fold("fair", map(Event.from_bytes, book.stored))
    assert snapshot(again) == snapshot(book.state)


@pytest.mark.parametrize(
    "added", [{}, {"age": ["1"]}, {"week": [WEEKS[0]]}, {"sex": ["x", "x"]}], ids=str
)
def test_what_is_appended_is_new(added: dict[str, list[str]]) -> None:
    """An extension can only append values that are not there, to dimensions that are."""
    book = hospital(RULES, {"week": WEEKS[:10], "sex": ["f", "m"]}, fixed=JOINED)
    with pytest.raises((Conflict, Invalid)):
        book.do("extend_population", "admin", added=added)
