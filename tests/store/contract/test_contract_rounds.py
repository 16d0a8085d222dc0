"""A batch of commands in one commit: what fails alone, what fails together, and what is unknown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from typing import Any
from unittest.mock import Mock

import pytest
from places import Place
from support import World, ask, clean, laplace, make

from accountant.budget.apply import apply
from accountant.budget.commands import AskGrant, CommitGrant, Envelope
from accountant.budget.decide import Repeated, decide
from accountant.budget.decide.spending import SPENDING, ask_grant
from accountant.budget.errors import Problem, Unavailable
from accountant.budget.facts import grant_in
from accountant.budget.outcome import Outcome
from accountant.budget.state import State
from accountant.runtime import dispatcher
from accountant.runtime.command_queue import Waiting, settle
from accountant.runtime.service import Answer, Service
from accountant.store.ledgers import Moved, StoreError, Unknown
from accountant.store.opening import open_ledgers
from accountant.store.snapshots import Snapshots
from accountant.store.writing import Writing

SECONDS = 30
RICH = "  - {id: a, limit: {epsilon: 100}}\n"
POISON = "0.07"


FEW = 40
LONG = 400
"""Commands of a crowd that takes SQLite several statements to append."""


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population with room for all."""
    return world().hospital(RICH)


def grants(prefix: str, *epsilons: str) -> list[Envelope]:
    """Grants to ask for, each with a key of its own."""
    return [
        Envelope("pipe", make("ask_grant", dataset="d", mechanisms=[laplace(e)]), f"{prefix}{n}")
        for n, e in enumerate(epsilons)
    ]


def together(service: Service, asked: list[Envelope], ledger: str = "fair") -> list[Any]:
    """What each is told, decided in one batch: none is cut off because the machine is busy."""
    batch = [Waiting(one, settle(Future[Answer]())) for one in asked]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatcher, "_LONGEST", inf)
        service.dispatcher.answer(ledger, batch)
    return [one.outcome for one in batch]


@contextmanager
def committing(service: Service, *ways: Any) -> Iterator[list[Any]]:
    """The next commits go other ways, each called with how it is really done; then as always. A
    light round's is one with its append.
    """
    database = service.ledgers
    left = list(ways)

    def going(really: Callable[..., Any]) -> Callable[..., Any]:
        def go(*arguments: Any) -> Any:
            way = left.pop(0) if left else None
            return really(*arguments) if way is None else way(partial(really, *arguments))

        return go

    with pytest.MonkeyPatch.context() as patch:
        for step in ("commit", "append_now"):
            patch.setattr(database, step, going(getattr(database, step)))
        yield left


def lost(_: Callable[[], None]) -> None:
    """Nobody hears whether it was committed; it was not."""
    raise Unknown("the line went dead before")


def done(really: Callable[[], None]) -> None:
    """Nobody hears whether it was committed; it was."""
    really()
    raise Unknown("the line went dead after")


def failed(_: Callable[[], None]) -> None:
    """It was not committed, for sure."""
    raise StoreError("no room")


def moved(_: Callable[[], None]) -> None:
    """Somebody else was first."""
    raise Moved("somebody else was first")


def crashed(_: Callable[[], None]) -> None:
    """Something that nobody has thought of."""
    raise MemoryError


@pytest.mark.parametrize("poison", [ZeroDivisionError(), MemoryError(), StopIteration()], ids=repr)
@pytest.mark.parametrize("at", [0, 3, 6])
def test_a_poison_command_fails_alone(
    made: World, monkeypatch: pytest.MonkeyPatch, poison: BaseException, at: int
) -> None:
    """What cannot be decided is told so; the others of its batch are answered, recorded once."""

    def failing(state: Any, asked: Envelope, command: AskGrant, now: int) -> Any:
        if command.mechanisms[0].count == 7:
            raise poison
        return ask_grant(state, asked, command, now)

    monkeypatch.setitem(SPENDING, AskGrant, failing)
    asked = grants("k", *["0.01"] * 7)
    bad = make("ask_grant", dataset="d", mechanisms=[laplace("0.01", 7)])
    asked[at] = Envelope("pipe", bad, "poison")
    size = len(made.stored())
    told = together(made.service, asked)
    assert told.pop(at) is poison
    assert all(isinstance(one, Answer) and not one.repeated for one in told)
    assert len(made.stored()) == size + 6
    monkeypatch.undo()
    assert [one.repeated for one in together(made.service, asked)] == [
        number != at for number in range(7)
    ]
    clean(made)


@pytest.mark.parametrize("where", ["decide", "apply"])
@pytest.mark.parametrize(("size", "at"), [(FEW, 30), (LONG, 300)])
def test_a_poison_command_in_a_crowd_fails_alone(
    made: World, monkeypatch: pytest.MonkeyPatch, where: str, size: int, at: int
) -> None:
    """Where one of many fails, when it is decided or after it was folded in, all others are
    answered, each once.
    """

    def failing(state: State, asked: Envelope, now: int) -> Any:
        if asked.key == "poison":
            raise ZeroDivisionError
        return decide(state, asked, now)

    def halfway(state: State, outcome: Outcome) -> None:
        apply(state, outcome)
        if outcome.key == "poison":
            raise ZeroDivisionError

    ways = {"decide": failing, "apply": halfway}
    monkeypatch.setattr(f"accountant.runtime.unit_of_work.{where}", ways[where])
    asked = grants("k", *["0.01"] * size)
    asked[at] = Envelope(asked[at].by, asked[at].command, "poison")
    before = len(made.stored())
    told = together(made.service, asked)
    assert isinstance(told.pop(at), ZeroDivisionError)
    assert all(isinstance(one, Answer) and not one.repeated for one in told)
    assert len(made.stored()) == before + size - 1
    clean(made)


@pytest.mark.parametrize("way", [failed, crashed, lost, done, moved])
@pytest.mark.parametrize("size", [FEW, LONG])
def test_a_crowd_whose_commit_goes_wrong(made: World, way: Any, size: int) -> None:
    """Many that are committed together are told once what took place, and retries get that."""
    before, asked = len(made.stored()), grants("k", *["0.01"] * size)
    with committing(made.service, way):
        told = together(made.service, asked)
    recorded = 0 if way in (failed, crashed) else size
    assert [isinstance(one, Answer) for one in told] == [recorded > 0] * size
    assert len(made.stored()) == before + recorded
    again = together(made.service, asked)
    assert [one.repeated for one in again] == [recorded > 0] * size
    clean(made)


def test_a_long_crowd_with_retries(made: World) -> None:
    """Who asks among hundreds for what was answered long ago, or a moment ago, gets that; who
    cannot be answered is told so; all others are answered once.
    """
    old = together(made.service, grants("k", *["0.01"] * 20))
    asked = [*grants("m", *["0.01"] * LONG), *grants("n", *["0.01"] * LONG)]
    asked[LONG - 50] = grants("k", "0.01")[0]
    asked[LONG + 200] = asked[3]
    asked[LONG + 210] = Envelope("pipe", make("commit_grant", grant="g1"), "nobody's")
    purpose = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")], purpose="a trend")
    asked[LONG + 220] = asked[LONG + 250] = Envelope("pipe", purpose, "told why")
    size = len(made.stored())
    told = together(made.service, asked)
    assert told[LONG - 50] == old[0]._replace(repeated=True)
    assert told[LONG + 200] == told[3]._replace(repeated=True)
    assert isinstance(told[LONG + 210], Problem)
    assert told[LONG + 250] == told[LONG + 220]._replace(repeated=True)
    new = [one for one in told if isinstance(one, Answer) and not one.repeated]
    assert len(new) == 2 * LONG - 4
    assert [one.entries[0].body for one in new] == made.stored()[size:]
    clean(made)


def test_commands_that_fail_together_leave_nothing(made: World) -> None:
    """Of many that are answered all or none, the last of which cannot be, nothing is kept, and who
    asks next is answered.
    """
    before, asked = len(made.stored()), grants("k", *["0.01"] * LONG)
    bad = Envelope("pipe", make("commit_grant", grant="g0"), "nobody's")
    for _ in range(2):
        with pytest.raises(Problem):
            made.service.execute_all("fair", [*asked, bad])
        assert len(made.stored()) == before
    assert len(made.service.execute_all("fair", asked)) == LONG
    clean(made)


def test_a_state_half_folded_is_dropped(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure in the middle of folding leaves nothing of it, in memory or stored."""
    before = len(made.stored())

    def halfway(state: State, outcome: Outcome) -> None:
        apply(state, outcome)
        if outcome.key == "poison":
            raise ZeroDivisionError

    monkeypatch.setattr("accountant.runtime.unit_of_work.apply", halfway)
    one, other = grants("k", "0.01", "0.02")
    bad = Envelope(
        "pipe", make("record_invocations", dataset="d", mechanisms=[laplace(5)]), "poison"
    )
    first, second, third = together(made.service, [one, bad, other])
    assert isinstance(second, ZeroDivisionError)
    assert isinstance(first, Answer)
    assert isinstance(third, Answer)
    assert len(made.stored()) == before + 2
    assert made.used() == [(30_000_000, 0, *made.used()[0][2:])]
    clean(made)


def test_what_fails_together_is_told_together(made: World) -> None:
    """A commit that fails is nobody's fault: all are told, nothing is kept, and all may retry."""
    size, asked = len(made.stored()), grants("k", *["0.01"] * 3)
    for way, kind in ((failed, Unavailable), (crashed, MemoryError)):
        with committing(made.service, way):
            assert [type(one) for one in together(made.service, asked)] == [kind] * 3
        assert len(made.stored()) == size
        state = made.service.state("fair")
        assert not state.open
    assert all(isinstance(one, Answer) for one in together(made.service, asked))
    clean(made)


@pytest.mark.parametrize("way", [lost, done])
def test_what_became_of_a_commit_is_looked_up(made: World, way: Any) -> None:
    """Whatever the database holds is answered: each event once, and retries are known."""
    size, asked = len(made.stored()), grants("k", *["0.01"] * 3)
    with committing(made.service, way) as left:
        told = together(made.service, asked)
        assert not left
    assert [one.entries[0].sequence for one in told] == [size, size + 1, size + 2]
    assert not any(one.repeated for one in told)
    assert [one.entries[0].body for one in told] == made.stored()[size:]
    again = together(made.service, asked)
    assert [(one.entries, one.repeated) for one in again] == [(one.entries, True) for one in told]
    clean(made)


@pytest.mark.parametrize("way", [lost, done])
def test_a_first_event_of_unknown_fate_is_looked_up(world: Callable[..., World], way: Any) -> None:
    """Also where the ledger did not exist before."""
    made = world()
    fields = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    with committing(made.service, way):
        [told] = together(made.service, [Envelope("admin", make("register_population", **fields))])
    assert len(told.entries) == 1
    assert made.stored() == [told.entries[0].body]


def test_who_comes_second_decides_again_and_at_last_gives_up(made: World) -> None:
    """Moved four times it is decided a fifth; moved always, all are told to come again."""
    size = len(made.stored())
    with committing(made.service, *[moved] * 4):
        told = together(made.service, grants("k", "0.01", "0.02"))
    assert all(isinstance(one, Answer) for one in told)
    assert len(made.stored()) == size + 2
    with committing(made.service, *[moved] * 5):
        told = together(made.service, grants("m", "0.01", "0.02"))
    assert [(type(one), one.code) for one in told] == [(Unavailable, "storage-failed")] * 2
    assert all("other processes" in one.detail for one in told)
    assert len(made.stored()) == size + 2
    clean(made)


def test_a_commit_that_always_fails_says_why(made: World) -> None:
    """If no commit takes place, as on a full disk, all are told what the database says, and not
    that others write.
    """
    size = len(made.stored())
    with committing(made.service, *[lost] * 5):
        told = together(made.service, grants("k", "0.01", "0.02"))
    assert [(type(one), one.code) for one in told] == [(Unavailable, "storage-failed")] * 2
    for one in told:
        assert "the line went dead before" in one.detail
        assert "other processes" not in one.detail
    assert len(made.stored()) == size
    clean(made)


def test_two_services_open_one_ledger(made: World) -> None:
    """Of two that register a population at once both are answered, and it is there once."""
    other = Service(open_ledgers(made.url))
    fields = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    command, told = make("register_population", **fields), list[Any]()
    ready = threading.Barrier(2)

    def register(service: Service, number: int) -> None:
        ready.wait()
        told.append(service.execute(f"new{number}", Envelope("admin", command)))

    for number in range(5):
        threads = [
            threading.Thread(target=register, args=(one, number)) for one in (made.service, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert len(list(other.stream(f"new{number}"))) == 1
    assert sorted(len(one.entries) for one in told) == [0] * 5 + [1] * 5
    other.close()


def test_a_database_that_is_gone_leaves_nobody_waiting(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be read or written, not even a snapshot's place: all are told, and once it is
    back the state is what the database holds.
    """
    made.service._projections._snapshots = Snapshots(made.settings.home)
    monkeypatch.setattr("accountant.runtime.projections._WORTH", 1)
    made.service.keep_snapshots()
    read = made.service.ledgers._read
    size = len(made.stored())

    def gone(really: Callable[[], None]) -> None:
        monkeypatch.setattr(made.service.ledgers, "_read", lost)
        failed(really)

    with committing(made.service, gone):
        told = together(made.service, grants("k", *["0.01"] * 3))
    assert [type(one) for one in told] == [Unavailable] * 3
    monkeypatch.setattr(made.service.ledgers, "_read", read)
    state = made.service.state("fair")
    assert (state.sequence, dict(state.open)) == (size, {})
    assert made.post("/grants", ask(laplace("0.01"))).status_code == 201
    clean(made)


def test_a_reader_waits_for_no_writer_that_waits(made: World, place: Place) -> None:
    """While another process holds the ledger, and a writer waits for it, whoever reads is answered;
    then so is the writer.
    """
    told = list[Any]()
    with place.hold("fair"):
        writer = threading.Thread(
            target=lambda: told.append(made.post("/grants", ask(laplace("0.01"))))
        )
        writer.start()
        reader = threading.Thread(target=lambda: told.append(made.get("/accounts")))
        reader.start()
        reader.join(5)
        assert [one.status_code for one in told] == [200]
    writer.join(SECONDS)
    assert told[1].status_code == 201


def test_a_writer_waits_for_no_slow_reader(made: World) -> None:
    """Who reads sees what was there when it began, and keeps nobody from writing."""
    state = made.service.state("fair")
    assert made.post("/grants", ask(laplace("0.01"))).status_code == 201
    assert not state.open
    assert state.sequence == len(made.stored()) - 1


def test_a_key_counts_as_it_is_now(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is revoked while its command waits gets 401 and leaves no event; one that another
    process has made works at once, and on the quick way the next time.
    """
    with closing(open_ledgers(made.url)) as ledgers:
        other = Service(ledgers)
        made.secrets["fresh"] = other.credentials.create("fresh", "pipeline", "test")
        wish = ask(laplace("0.01"))
        assert [made.post("/grants", wish, who="fresh").status_code for _ in range(2)] == [201] * 2
        size, told = len(made.stored()), list[Any]()
        sequencer, gate, taken = made.service._queue, threading.Event(), threading.Event()
        answering = sequencer._answering

        def gated(ledger: str, batch: list[Waiting]) -> None:
            taken.set()
            gate.wait(SECONDS)
            answering(ledger, batch)

        monkeypatch.setattr(sequencer, "_answering", gated)
        asking = threading.Thread(
            target=lambda: told.append(made.post("/grants", wish, who="fresh"))
        )
        asking.start()
        assert taken.wait(SECONDS)
        other.credentials.revoke("fresh", "test")
        gate.set()
        asking.join(SECONDS)
        late = made.post("/grants", wish, who="fresh")
        assert [one.status_code for one in (*told, late)] == [401] * 2
        assert told[0].content == late.content
        assert len(made.stored()) == size


def test_commits_repeat_their_answer(made: World) -> None:
    """Of two commits of one grant in one batch the second is a conflict, or the same if it has the
    same key.
    """
    [grant] = together(made.service, grants("k", "0.01"))
    command = CommitGrant(grant=grant_in(grant.events[0]))
    asked = [Envelope("pipe", command, key) for key in ("a", "b", "a")]
    first, second, third = together(made.service, asked)
    assert isinstance(second, Problem)
    assert (third.entries, third.repeated) == (first.entries, True)
    assert not isinstance(first, Repeated)
    clean(made)


@pytest.mark.parametrize(
    ("purpose", "items", "expected"),
    [
        (None, 0, {"read": 1, "texts": 0}),
        ("why", 0, {"read": 1, "texts": 3}),
        (None, 2, {"read": 2, "texts": 0}),
        ("why", 2, {"read": 2, "texts": 3}),
    ],
)
def test_a_retry_reads_its_events_once(
    made: World,
    monkeypatch: pytest.MonkeyPatch,
    purpose: str | None,
    items: int,
    expected: dict[str, int],
) -> None:
    """However often it comes at once, alone or with items; texts are only looked for where there
    may be some, and each time, for they can be erased.
    """
    more = {"purpose": purpose} if purpose else {}
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.1")], **more)
    asked = Envelope("pipe", command, "k")
    if items:
        asked = Envelope.together("pipe", [Envelope("pipe", command)] * items, "k")
    [told] = together(made.service, [asked])
    counted = {name: Mock(side_effect=getattr(Writing, name)) for name in expected}
    for name, really in counted.items():
        monkeypatch.setattr(Writing, name, lambda *a, really=really: really(*a))
    again = together(made.service, [asked] * 3)
    assert again == [told._replace(repeated=True)] * 3
    assert {name: one.call_count for name, one in counted.items()} == expected


def test_a_batch_that_takes_long_is_committed_in_parts(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a commit has waited long enough, the commands that are left go into the next: each is
    answered once, in order, and a problem among them concerns no other.
    """
    monkeypatch.setattr(dispatcher, "_LONGEST", 0.0)
    commits = Mock(side_effect=made.service.ledgers.append_now)
    monkeypatch.setattr(made.service.ledgers, "append_now", commits)
    asked = [*grants("k", "0.01", "0.02"), Envelope("pipe", CommitGrant(grant="g999"), "c")]
    batch = [Waiting(one, lambda _: None) for one in [*asked, *grants("l", "0.03")]]
    before = len(made.stored())
    made.service.dispatcher.answer("fair", batch)
    first, second, third, fourth = (one.outcome for one in batch)
    assert isinstance(third, Problem)
    told = [one.entries[0].sequence for one in (first, second, fourth)]
    assert told == [before, before + 1, before + 2]
    assert commits.call_count == 3
    clean(made)


@pytest.mark.parametrize("way", [failed, crashed, lost, done, moved])
def test_a_refused_batch_is_there_with_all_its_parts_or_not_at_all(made: World, way: Any) -> None:
    """Parts and refusal are appended in one commit. If that goes wrong, nothing of them is there;
    if nobody knows, it is looked up; a retry, here or in another process, gets the one answer.
    """
    before, item = len(made.stored()), partial(make, "ask_grant", dataset="d", purpose="why")
    parts = [Envelope("pipe", item(mechanisms=[laplace("0.1")])) for _ in range(300)]
    parts.append(Envelope("pipe", item(mechanisms=[laplace("999")])))
    asked = Envelope.together("pipe", parts, "k")
    with committing(made.service, way):
        [first] = together(made.service, [asked])
    assert len(made.stored()) in (before, before + 3)
    [told] = together(made.service, [asked])
    kinds = [event.type for event in told.events]
    assert kinds == ["batch.part.v1", "batch.part.v1", "batch.refused.v1"]
    assert not isinstance(first, Answer) or told.entries == first.entries
    with closing(Service(open_ledgers(made.url))) as other:
        assert other.execute("fair", asked) == told._replace(repeated=True)
    assert len(made.stored()) == before + 3
    clean(made)
