"""Many requests that are answered in one step get the answers that they would get one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice, repeat
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import (
    CLIENTS,
    GROUPS,
    MECHANISMS,
    Ops,
    clients,
    datasets,
    groups,
    ledger,
    mechanisms,
    ops,
    purposes,
)
from support import NON_PRIVATE, SECOND, Book, declared, gaussian, laplace, make, snapshot

from accountant.budget.commands import Asked, batch_of
from accountant.budget.errors import Problem
from accountant.budget.express import runs
from accountant.budget.express.asking import Asking
from accountant.budget.express.runs import FEWEST
from accountant.budget.keeper import Keeper
from accountant.budget.sealing import Opened
from accountant.budget.state import State
from accountant.privacy.filters import GATES
from accountant.privacy.units import LARGEST
from accountant.runtime.clock import Reading
from accountant.runtime.unit_of_work import Round
from accountant.store import projection as books

request = st.tuples(
    st.sampled_from(["ask_grant", "ask_grant", "record_invocations"]),
    clients,
    datasets,
    mechanisms,
    groups,
    purposes,
)
odd = st.tuples(st.integers(0, 199), st.sampled_from(["again", "odd"]))
"""Who comes with a key that was used before, or with one that is not its own JSON."""
crowds = st.tuples(
    st.lists(request, min_size=1, max_size=6), st.integers(20, 200), st.lists(odd, max_size=3)
)
"""So many ask for a few things by turns."""
Crowd = tuple[list[Any], int, list[tuple[int, str]]]


class Nothing:
    """What is stored of texts before the round."""

    def begin(self) -> None:
        """Nothing else is to begin."""

    def texts(self, *_: Any) -> list[Any]:
        """None."""
        return []


class Answering:
    """A keeper of its own that follows a ledger, and the rounds on it."""

    def __init__(self, followed: Book) -> None:
        self.book = books.Book("fair", lambda: Keeper(State("fair")))
        self.now = followed.now
        for body in followed.stored:
            self.book.fold.follow(body)
        self.runs: list[int] = []
        """How many were answered in one step, each time."""

    def round(self, *, drawn: bool = False) -> Round:
        """A round whose seals do not depend on who drew salts before, unless they are ``drawn``."""
        stored: Any = Nothing()
        turn = Round(self.book, stored, Reading(self.now, None))
        return turn if drawn else replace(turn, salts=repeat(b"s" * 32))

    def told(self, crowd: list[Asked], *, together: bool) -> tuple[list[Any], list[Any]]:
        """What each is answered, and all texts."""
        turn, found = self.round(), list[Any]()
        while left := crowd[len(found) :]:
            run = turn.answer_run(left) if together else []
            if run:
                self.runs.append(len(run))
            found += [answer.entries for answer in run] or [self._alone(turn, left[0])]
        return found, turn.texts

    def _alone(self, turn: Round, asked: Asked) -> Any:
        try:
            answer = turn.answer(asked)
        except Problem as problem:
            return problem.code, problem.detail
        return answer.entries


def asked_by(crowd: Crowd) -> list[Asked]:
    """What a crowd asks, word for word the same where it asks for the same."""
    made: dict[str, Asked] = {}
    found: list[Asked] = []
    pool, count, keys = crowd
    for number, one in enumerate(islice(cycle(pool), count)):
        kind, client, dataset, stated, group, purpose = one
        fields = {"dataset": dataset, "subjects": GROUPS[group], "purpose": purpose}
        if kind == "record_invocations" and stated % 2:
            fields["ran_at"] = f"2026-11-{1 + number % 28:02}T10:00:00Z"
        command = make(kind, mechanisms=MECHANISMS[stated], **fields)
        asked = Asked(client, command)
        asked = made.setdefault(repr(asked), asked)
        names = {"again": f"n{number // 2}", "odd": f'é"{number}'}
        found.append(asked.again(client, names.get(dict(keys).get(number, ""), f"n{number}")))
    return found


@settings(max_examples=90)
@given(st.sampled_from(sorted(GATES)), st.booleans(), ops, crowds, st.sampled_from([3, FEWEST]))
def test_a_run_answers_as_each_alone(
    gate: str, wide: bool, before: Ops, crowd: Crowd, fewest: int
) -> None:
    """Whatever a crowd asks, whatever was asked before: the same bytes, texts and state, whether it
    is answered in one step or one after another.
    """
    past = ledger(gate, wide, before)
    together, alone = Answering(past), Answering(past)
    for turn in range(2):  # the second time all words have been tried
        asked = [one.again(one.by, f"t{turn}{one.key}") for one in asked_by(crowd)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runs, "FEWEST", fewest)
            told = together.told(asked, together=True)
        assert told == alone.told(asked, together=False)
        together.now = alone.now = past.now + (turn + 1) * SECOND
    assert snapshot(together.book.fold.whole()) == snapshot(alone.book.fold.whole())


def fair(rules: str, **dimensions: list[str]) -> Book:
    """A ledger of two datasets under ``rules``."""
    book = Book()
    book.register(dimensions, neighbouring="add_or_remove_one")
    book.dataset("d")
    book.dataset("e")
    book.policy(rules)
    return book


def asks(book: Book, *bodies: dict[str, Any], count: int = 200) -> list[Asked]:
    """Requests by turns."""
    made = [Asked("pipe", make(**{"kind": "ask_grant", "dataset": "d"} | body)) for body in bodies]
    book.keys += count
    return [
        one.again("pipe", f"a{book.keys}.{n}") for n, one in enumerate(islice(cycle(made), count))
    ]


def assert_the_same(book: Book, *crowds: list[dict[str, Any]]) -> Answering:
    """Asks together and one by one, and compares; who answered together."""
    one, other = Answering(book), Answering(book)
    for bodies in crowds:
        crowd = asks(book, *bodies)
        assert one.told(crowd, together=True) == other.told(crowd, together=False)
    assert snapshot(one.book.fold.whole()) == snapshot(other.book.fold.whole())
    return one


TWO = ({"mechanisms": [laplace("0.01")]}, {"mechanisms": [laplace("0.02")], "purpose": "a text"})


def test_who_asks_again_is_answered_in_one_step() -> None:
    """Once all words were tried a crowd takes one step, or nothing is tested here."""
    book = fair("  - {id: a, limit: {epsilon: 1000}}\n")
    answering = Answering(book)
    answering.told(asks(book, *TWO), together=True)
    answering.runs.clear()
    answering.told(asks(book, *TWO), together=True)
    assert answering.runs == [200]


def test_what_comes_after_a_retry_is_hardly_looked_at_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who asks again with the same key ends a run; not all behind are opened anew each time."""
    book, counted = fair("  - {id: a, limit: {epsilon: 1000}}\n"), list[Any]()
    answering, opened = Answering(book), Asking.opened
    monkeypatch.setattr(Asking, "opened", lambda *of: (counted.append(1), opened(*of))[1])
    first, others = asks(book, *TWO), asks(book, *TWO)
    crowd = [*first, *first, *(one for both in zip(others, first, strict=True) for one in both)]
    found, _ = answering.told(crowd, together=True)
    assert found[200:400] == found[401::2] == found[:200]
    assert len(counted) < 4 * len(crowd)


def test_a_run_ends_where_the_budget_does() -> None:
    """Of a crowd that wants more than there is as many are granted as one by one, and no more."""
    book = fair("  - {id: a, limit: {epsilon: 1}, gate: basic}\n")
    one, other = Answering(book), Answering(book)
    crowd = asks(book, TWO[0], count=150)
    found = one.told(crowd, together=True)
    assert found == other.told(crowd, together=False)
    assert [entry.type for [entry] in found[0]] == ["grant.reserved.v1"] * 100 + [
        "grant.refused.v1"
    ] * 50
    assert max(one.runs) > FEWEST


def test_a_warning_comes_when_it_has_to() -> None:
    """A threshold that is passed within a crowd fires for the same request as one by one."""
    rules = "  - {id: a, limit: {epsilon: 4}, gate: basic}\n  - {id: near, of: a, at: 50%}\n"
    assert len(assert_the_same(fair(rules), *[[TWO[0]]] * 3).runs) > 2


def test_no_cell_that_leads_in_everything() -> None:
    """Where one cell has used most epsilon and another most of the gate's own currency, each is
    looked at alone, with the same answers; also where either of them was the tightest before.
    """
    book = fair("  - {id: a, limit: {epsilon: 1000, delta: 1e-6}, gate: zcdp}\n", sex=["f", "m"])
    all_of_them = {"mechanisms": [laplace("0.001")]}
    f = {"mechanisms": [laplace("0.01", 200)], "subjects": {"sex": ["f"]}}
    m = {"mechanisms": [gaussian("0.2", "1e-9")], "subjects": {"sex": ["m"]}}
    assert_the_same(book, [f, all_of_them], [m, all_of_them], [f, m, all_of_them], [m, all_of_them])


def test_groups_of_several_boxes() -> None:
    """A union of groups is looked at box by box, whichever was used most."""
    rules = "  - {id: a, limit: {epsilon: 1000}, gate: basic}\n"
    book = fair(rules, age=["17", "22", "27"], sex=["f", "m"])
    union = {"mechanisms": [laplace("0.01")], "subjects": [{"sex": ["f"]}, {"age": ["22", "27"]}]}
    one = {"mechanisms": [laplace("0.1")], "subjects": {"sex": ["f"]}}
    other = {"mechanisms": [laplace("0.3")], "subjects": {"age": ["22", "27"], "sex": ["m"]}}
    assert_the_same(book, [one, union], [other, union], [union], [one, other, union])


ONE, ALL = {"mechanisms": [laplace("0.01")]}, "  - {id: a, limit: {epsilon: 1000}, gate: basic}\n"
WOMEN, MEN = ({**ONE, "subjects": {"sex": [sex]}} for sex in "fm")


def test_a_finding_names_the_group_that_leads() -> None:
    """Where another group comes to have used most, it is the one that is named."""
    lead = [WOMEN, ONE], [WOMEN, ONE], *[[MEN, MEN, ONE]] * 4
    assert assert_the_same(fair(ALL, sex=["f", "m"]), *lead).runs


def test_among_equals_the_first_group_is_named() -> None:
    """Where two have used as much, the first is named, whichever has led before."""
    ties = [WOMEN, ONE], [MEN, ONE], [MEN, ONE], [WOMEN, ONE], [ONE]
    assert assert_the_same(fair(ALL, sex=["f", "m"]), *ties).runs


def test_an_infinite_sum_is_never_told_as_finite() -> None:
    """After a release without noise, in words that came before, each gets its answer at length."""
    book = fair(ALL)
    open_data = {"kind": "record_invocations", "mechanisms": [NON_PRIVATE]}
    one, other = Answering(book), Answering(book)
    crowds = asks(book, ONE), asks(book, ONE), asks(book, open_data, count=1), asks(book, ONE)
    for crowd in crowds:
        assert one.told(crowd, together=True) == other.told(crowd, together=False)
    assert snapshot(one.book.fold.whole()) == snapshot(other.book.fold.whole())


def test_what_was_decided_at_length_counts() -> None:
    """After a request that has no form the next ones find what it has used."""
    book = fair("  - {id: a, limit: {epsilon: 1000}, gate: basic}\n")
    one, other = Answering(book), Answering(book)
    for _ in range(3):
        crowd = asks(book, *TWO)
        crowd[60] = replace(crowd[60], key=f'"{book.keys}"')
        assert one.told(crowd, together=True) == other.told(crowd, together=False)
    assert max(one.runs) == 139


def test_each_has_seals_of_its_own() -> None:
    """The same text, asked in one step, has another salt each time, and each is kept."""
    book = fair("  - {id: a, limit: {epsilon: 1000}}\n")
    answering = Answering(book)
    for _ in range(2):
        turn = answering.round(drawn=True)
        answers = turn.answer_all(asks(book, TWO[1]))
    kept = {text.sequence: text for text in turn.texts}
    assert len({text.salt for text in kept.values()}) == len(answers) == 200
    for [entry] in (answer.entries for answer in answers):
        sealed = orjson.loads(entry.body)["command"]["purpose"]["sealed"]
        assert Opened(kept[entry.sequence].salt, "a text").digest == sealed


def test_accounts_near_the_largest_sum() -> None:
    """Where a sum could pass 2^62 units a run ends before it does."""
    book = fair("  - {id: a, limit: {epsilon: 1}, gate: basic}\n")
    body = {"kind": "record_invocations", "mechanisms": [declared(LARGEST // 10**9 // 250)]}
    assert assert_the_same(book, *[[body]] * 3).runs


@settings(max_examples=60)
@given(st.sampled_from(sorted(GATES)), st.booleans(), crowds, st.sampled_from(CLIENTS))
def test_a_batch_is_a_run(gate: str, past: bool, crowd: Crowd, client: str) -> None:
    """The items of a batch are answered as those of one that is decided at length."""
    kind = "record_invocations" if past else "ask_grant"
    items = tuple(a.command for a in asked_by(crowd) if a.command.command == kind)
    book = ledger(gate, True, [])
    one, other = Answering(book), Answering(book)
    for turn in range(3 if items else 0):
        asked = Asked(client, batch_of(items), f"b{turn}", items)
        other.book.fold.whole()
        other.book.fold._express.forget()  # knows no form, so decides at length
        assert one.told([asked], together=True) == other.told([asked], together=False)
    assert snapshot(one.book.fold.whole()) == snapshot(other.book.fold.whole())


def test_texts_that_do_not_come_again_are_not_kept() -> None:
    """Who says something else each time is answered from the same form, and nothing is remembered
    of what was said.
    """
    book = fair("  - {id: a, limit: {epsilon: 1000}}\n")
    answering = Answering(book)
    for turn in range(2):
        bodies = [TWO[0] | {"purpose": f"run {turn}.{n}"} for n in range(200)]
        answering.told(asks(book, *bodies), together=True)
    assert max(answering.runs) == 200
    assert not answering.book.fold._express._asking._templates
