"""Light rounds: decided from what is in memory, and appended in one step if that was right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from itertools import count, pairwise
from math import inf
from typing import Any

import pytest
from places import Place
from support import World, ask, clean, laplace, make

from accountant.auth.keys import key_digest
from accountant.budget.commands import CommitGrant, Envelope
from accountant.budget.errors import Invalid, Problem
from accountant.budget.facts import grant_in
from accountant.ledger.events import Entry
from accountant.ledger.merkle import Tree
from accountant.runtime import dispatcher as answering
from accountant.runtime.command_queue import Waiting
from accountant.runtime.service import Answer, Service
from accountant.store import projection as books
from accountant.store.ledgers import Ledgers, Moved, Text
from accountant.store.opening import open_ledgers

RICH = "  - {id: a, limit: {epsilon: 100}}\n"


@pytest.fixture
def ledgers(place: Place) -> Iterator[Ledgers]:
    """Two ledgers, ``a`` of three events and ``b`` of two."""
    made = open_ledgers(place.url)
    for ledger, size in (("a", 3), ("b", 2)):
        append(made, ledger, 0, size)
    yield made
    made.close()


def entries(first: int, end: int) -> list[Entry]:
    """Events that nobody decided."""
    return [Entry(n, "x.y.v1", n, b"event %d" % n) for n in range(first, end)]


def append(ledgers: Ledgers, ledger: str, first: int, end: int) -> None:
    """Appends in a transaction."""
    with ledgers.writing(ledger) as writing:
        writing.append(ledger, entries(first, end))
        writing.commit()


def appended_alone(ledgers: Ledgers, head: Tree, beside: Tree, *, relied: bool = True) -> bool:
    """Appends five events to ``a`` in one step; says whether a transaction began on the way."""
    with ledgers.writing("a", "b", light=True) as writing:
        writing.believe(head, beside)
        if relied:
            assert writing.beside == beside
        last = head.size + 5
        writing.append("a", entries(head.size, last), [Text(head.size, "purpose", b"s", "why")])
        writing.commit()
        return writing.locked


def begins(ledgers: Ledgers, head: Tree, beside: Tree, *, reads: bool) -> None:
    """Begins a transaction on ``a`` where something was believed, to read or without a reason."""
    with ledgers.writing("a", "b", light=True) as writing:
        writing.believe(head, beside)
        assert writing.beside == beside
        if reads:
            writing.read("a", 0, 1)
        else:
            writing.lock()


def kept(ledgers: Ledgers, ledger: str = "a") -> list[Any]:
    """All that there is of a ledger."""
    hashes = [ledgers.hashes(ledger, level, 0, 999) for level in range(2)]
    return [ledgers.head(ledger), ledgers.read(ledger), ledgers.texts(ledger, 0, 999), hashes]


def test_what_was_believed_and_is_so_is_appended_in_one_step(ledgers: Ledgers) -> None:
    """Where the ledgers end where they are believed to, all is kept, tree and texts, though no
    transaction has begun; so it is again and again, for few events and for many.
    """
    sizes = [3, 4, 5, 6, 7, 8, 9, 300, 301]
    for first, end in pairwise(sizes):
        with ledgers.writing("a", "b", light=True) as writing:
            writing.believe(ledgers.head("a"), ledgers.head("b"))
            assert (writing.head("a"), writing.beside) == (ledgers.head("a"), ledgers.head("b"))
            after = writing.append("a", entries(first, end), [Text(first, "purpose", b"s", "why")])
            writing.commit()
            assert not writing.locked
        assert ledgers.head("a") == after
    assert [one.body for one in ledgers.stream("a")] == [one.body for one in entries(0, 301)]
    assert after == Tree().grown(ledgers.hashes("a", 0, 0, 999))[0]
    assert len(ledgers.hashes("a", 1, 0, 9)) == 1
    assert [text.sequence for text in ledgers.texts("a", 0, 999)] == sizes[:-1]


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("wrong", ["shorter", "longer", "another", "beside"])
def test_what_was_believed_wrongly_has_moved(ledgers: Ledgers, wrong: str, reads: bool) -> None:
    """A ledger that is shorter, longer or another one of the same size, or one beside it that is,
    and was relied upon, is told as Moved, at the first look or at the commit; nothing is kept.
    """
    head, beside = ledgers.head("a"), ledgers.head("b")
    if wrong == "longer":
        append(ledgers, "a", 3, 4)
    elif wrong == "beside":
        append(ledgers, "b", 2, 3)
    else:
        head = Tree().grown([bytes([n]) * 32 for n in range(2 if wrong == "shorter" else 3)])[0]
    before = kept(ledgers)
    with pytest.raises(Moved):
        appended_alone(ledgers, head, beside)
    with pytest.raises(Moved):
        begins(ledgers, head, beside, reads=reads)
    assert kept(ledgers) == before


def test_a_ledger_beside_itself(ledgers: Ledgers) -> None:
    """The ledger beside may be the one that grows: then too it has to end as was believed."""
    head = ledgers.head("a")
    for beside in (Tree().grown([b"x" * 32])[0], head):
        with ledgers.writing("a", "a", light=True) as writing:
            writing.believe(head, beside)
            assert writing.beside == beside
            writing.append("a", entries(head.size, head.size + 1))
            with nullcontext() if beside == head else pytest.raises(Moved):
                writing.commit()
        assert ledgers.head("a").size == head.size + (beside == head)


def test_nobody_minds_what_was_not_relied_upon(ledgers: Ledgers) -> None:
    """The ledger beside may have gone on, if nobody has asked where it ends."""
    another = Tree().grown([b"x" * 32])[0]
    assert not appended_alone(ledgers, ledgers.head("a"), another, relied=False)
    assert ledgers.head("a").size == 8
    with ledgers.writing("a", "b", light=True) as writing:
        writing.believe(ledgers.head("a"), Tree())
        assert writing.beside == ledgers.head("b")  # nothing is believed of it: it is looked up
        assert writing.locked


def test_whatever_needs_the_database_begins(ledgers: Ledgers) -> None:
    """A transaction that was believed not to be needed begins where something is read or written,
    and then goes on as any other: without a commit nothing is kept.
    """
    before = kept(ledgers)
    for commit in (False, True):
        with ledgers.writing("a", "b", light=True) as writing:
            writing.believe(ledgers.head("a"), ledgers.head("b"))
            assert len(writing.read("a", 0, 9)) == 3
            assert writing.locked
            writing.append("a", entries(3, 4))
            if commit:
                writing.commit()
        assert (kept(ledgers) != before) == commit


def test_what_cannot_be_believed(ledgers: Ledgers) -> None:
    """Nothing is believed of a new ledger, nor once a transaction has begun; and nothing is written
    where nothing was appended.
    """
    before = kept(ledgers)
    with ledgers.writing("a", "b", light=True) as writing:
        with pytest.raises(ValueError, match="believed"):
            writing.believe(Tree(), Tree())
        writing.believe(ledgers.head("a"), ledgers.head("b"))
        writing.commit()
        assert not writing.locked
    with ledgers.writing("a", "b") as writing, pytest.raises(ValueError, match="believed"):
        writing.believe(ledgers.head("a"), ledgers.head("b"))
    assert kept(ledgers) == before


def test_a_light_round_waits_for_nobody(ledgers: Ledgers, place: Place) -> None:
    """While another process keeps the ledger, a light round has moved at once, be it when it begins
    or when it commits.
    """
    head, beside = ledgers.head("a"), ledgers.head("b")
    with place.hold("a"):
        started = time.monotonic()
        with pytest.raises(Moved):
            appended_alone(ledgers, head, beside)
        with pytest.raises(Moved):
            begins(ledgers, head, beside, reads=False)
        assert time.monotonic() - started < 2
    assert ledgers.head("a") == head


# -- services -----------------------------------------------------------------------------------


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service that has answered such grants before."""
    made = world().hospital(RICH)
    together(made.service, grants("learn", 30))
    return made


def grants(prefix: str, count: int) -> list[Envelope]:
    """Grants to ask for, each with a key of its own."""
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")])
    return [Envelope("pipe", command, f"{prefix}{n}") for n in range(count)]


def together(service: Service, asked: list[Envelope]) -> list[Any]:
    """What each is told, decided in one batch: none is cut off because the machine is busy."""
    batch = [Waiting(one, lambda _: None) for one in asked]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering, "_LONGEST", inf)
        service.dispatcher.answer("fair", batch)
    return [one.outcome for one in batch]


def commits(answers: list[Any], prefix: str) -> list[Envelope]:
    """Commits of grants."""
    names = [grant_in(answer.events[0]) for answer in answers]
    return [
        Envelope("pipe", CommitGrant(grant=name), f"{prefix}{n}") for n, name in enumerate(names)
    ]


@pytest.fixture
def begun(made: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One item for each transaction that begins from now on."""
    found, database = list[str](), made.service.ledgers

    def noted(really: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*arguments: Any) -> Any:
            found.append("fair")
            return really(*arguments)

        return begin

    for name in ("lock", "lock_now"):
        monkeypatch.setattr(database, name, noted(getattr(database, name)))
    return found


@pytest.mark.parametrize("count", [1, 9, 30])
def test_what_comes_again_begins_no_transaction(made: World, begun: list[str], count: int) -> None:
    """Grants and commits, few or many, are answered and kept without one; a retry
    begins one, for it is read what was answered.
    """
    first = together(made.service, grants("k", count))
    together(made.service, commits(first[:1], "learn-commit"))
    begun.clear()
    answers = together(made.service, grants("m", count))
    settled = together(made.service, commits(answers, "c"))
    assert begun == []
    assert [type(one) for one in (*answers, *settled)] == [Answer] * 2 * count
    stored = made.stored()
    assert [one.entries[0].body for one in (*answers, *settled)] == stored[-2 * count :]
    again = together(made.service, grants("m", count))
    assert [(one.entries, one.repeated) for one in again] == [(o.entries, True) for o in answers]
    assert begun
    clean(made)


@pytest.mark.parametrize("count", [1, 9, 30])
@pytest.mark.parametrize("mixed", [False, True])
def test_who_was_not_alone_decides_again(
    made: World, monkeypatch: pytest.MonkeyPatch, count: int, mixed: bool
) -> None:
    """Of two services that both believe that they are alone, the second is told so by the database:
    what it had decided is taken back, and decided again behind what the first has written, to the
    unit; whether all of it was known or something had to be looked up.
    """
    with closing(open_ledgers(made.url)) as ledgers:
        other = Service(ledgers)
        together(other, grants("other-learn", 30))
        open_ = together(other, grants("open", 3))
        assert other._projections.of("fair").alone
        before = together(made.service, grants("mine", count))
        state = other._projections.of("fair").state
        asked = [*grants("k", count), *commits(open_, "c"), *(grants("mine", 1) * mixed)]
        answers = together(other, asked)
        assert other._projections.of("fair").state is state  # nothing was read back but what is new
        assert not other._projections.of("fair").alone
        assert [one.entries[0].body for one in answers[: count + 3]] == made.stored()[-count - 3 :]
        assert not any(one.repeated for one in answers[: count + 3])
        if mixed:
            assert answers[-1].entries == before[0].entries
            assert answers[-1].repeated
        again = together(made.service, asked)
        assert [one.entries for one in again] == [one.entries for one in answers]
        clean(made)
        monkeypatch.setattr(made, "service", other)
        clean(made)
        monkeypatch.undo()


def test_nobody_is_refused_by_what_is_only_believed(made: World) -> None:
    """A grant that another service has reserved, or committed, a moment ago is known to this one,
    which has believed that it is alone.
    """
    with closing(open_ledgers(made.url)) as ledgers:
        other = Service(ledgers)
        [mine] = together(other, grants("other", 1))
        assert other._projections.of("fair").alone
        [theirs] = together(made.service, grants("k", 1))
        [done] = together(other, commits([theirs], "c"))
        assert isinstance(done, Answer)
        time.sleep(books._LATELY + 0.1)
        assert other._projections.of("fair").alone
        [late] = together(made.service, commits([mine], "m"))
        assert isinstance(late, Answer)
        [refused] = together(other, commits([mine], "o"))
        assert isinstance(refused, Problem)
        assert refused.code == "grant-settled"


def test_who_is_refused_is_refused_by_the_ledger(
    made: World, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody is told of a problem it is looked up whether the ledger is what it is
    believed to be, wherever the problem comes from.
    """

    def refuse(*_: Any) -> Any:
        raise Invalid("no", "for whatever reason")

    monkeypatch.setattr("accountant.runtime.unit_of_work.seal", refuse)
    new = make("ask_grant", dataset="d", mechanisms=[laplace("0.02")])
    [refused] = together(made.service, [Envelope("pipe", new, "k0")])
    assert isinstance(refused, Invalid)
    assert begun


def test_all_or_none_also_where_somebody_else_writes(made: World) -> None:
    """Commands that are answered all or none are decided again where another service was first."""
    with closing(open_ledgers(made.url)) as ledgers:
        other = Service(ledgers)
        other.execute_all("fair", grants("other", 30))
        together(made.service, grants("k", 2))
        assert len(other.execute_all("fair", grants("all", 40))) == 40
        time.sleep(books._LATELY + 0.1)
        together(made.service, grants("m", 2))
        bad = Envelope("pipe", make("commit_grant", grant="g0"), "nobody's")
        size = len(made.stored())
        with pytest.raises(Problem):
            other.execute_all("fair", [*grants("none", 40), bad])
        assert len(made.stored()) == size
        clean(made)


def test_two_that_take_turns(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two services that never learn that they are not alone, on one ledger with few keys: each key
    is answered once, whoever is asked again says the same, and nothing is booked twice.
    """
    monkeypatch.setattr(books, "_LATELY", -1.0)
    answered: list[dict[str, Any]] = [{}, {}]
    with closing(open_ledgers(made.url)) as ledgers:

        def work(service: Service, told: dict[str, Any], first: int) -> None:
            for n in range(12):
                asked = grants(f"k{(first + n) % 12}-", 1 + 7 * (n % 5))
                outcomes = together(service, asked)
                told.update({a.key: o for a, o in zip(asked, outcomes, strict=True)})
                fine = [one for one in outcomes[:2] if isinstance(one, Answer)]
                together(service, commits(fine, f"c{n}-"))

        services = made.service, Service(ledgers)
        threads = [
            threading.Thread(target=work, args=(service, told, 5 * number))
            for number, (service, told) in enumerate(zip(services, answered, strict=True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    mine, theirs = answered
    both = [key for key in mine if isinstance(mine[key], Answer) and key in theirs]
    both = [key for key in both if isinstance(theirs[key], Answer)]
    assert both
    assert all(mine[key].entries == theirs[key].entries for key in both)
    clean(made)


def test_a_key_that_was_revoked_elsewhere_is_noticed(made: World) -> None:
    """A service that has heard nothing of it gives nothing under a key that another has revoked."""
    wish = ask(laplace("0.01"))
    with closing(open_ledgers(made.url)) as ledgers:
        other = Service(ledgers)
        made.secrets["fresh"] = other.credentials.create("fresh", "pipeline", "test")
        assert made.post("/grants", wish, who="fresh").status_code == 201
        size = len(made.stored())
        other.credentials.revoke("fresh", "test")
        [asked] = grants("late", 1)
        waiting = Waiting(asked, lambda _: None, key_digest(made.secrets["fresh"]))
        made.service.dispatcher.answer("fair", [waiting])
        assert isinstance(waiting.outcome, Problem)
        assert waiting.outcome.code == "unauthenticated"
        assert len(made.stored()) == size


def test_what_cannot_be_taken_back_has_begun(made: World, begun: list[str]) -> None:
    """A registration, which no rollback undoes, is decided under the head's lock."""
    fields = {"id": "e", "namespace": "n", "name": "e"}
    [answer] = together(made.service, [Envelope("admin", make("register_dataset", **fields))])
    assert isinstance(answer, Answer)
    assert begun
    clean(made)


def test_readers_wait_for_no_light_round(made: World, place: Place) -> None:
    """While another program keeps everybody from writing, whoever reads is answered at once."""
    told = list[Any]()
    with place.hold("fair"):
        writer = threading.Thread(
            target=lambda: told.append(together(made.service, grants("k", 3)))
        )
        writer.start()
        for _ in range(20):
            started = time.monotonic()
            made.service.state("fair")
            assert time.monotonic() - started < 0.5
            time.sleep(0.02)
        assert told == []
    writer.join()
    assert [type(one) for one in told[0]] == [Answer] * 3
    clean(made)


def test_others_may_come_first_again_and_again(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of many rounds is answered though somebody else writes before each light one."""
    monkeypatch.setattr(answering, "_LONGEST", 0.0)  # each command has a round of its own
    with closing(open_ledgers(made.url)) as ledgers:
        other = Service(ledgers)
        together(other, grants("other", 2))
        really, number = made.service.ledgers.writing, count()

        def disturbed(*where: Any, **how: Any) -> Any:
            if how["light"]:
                together(other, grants(f"first{next(number)}-", 1))
            return really(*where, **how)

        monkeypatch.setattr(books, "_LATELY", -1.0)
        monkeypatch.setattr(made.service.ledgers, "writing", disturbed)
        told = together(made.service, grants("k", 9))
    monkeypatch.undo()
    assert next(number)
    assert [type(one) for one in told] == [Answer] * 9
    clean(made)
