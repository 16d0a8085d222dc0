"""A snapshot is the state: loaded, it is equal, and the ledger goes on from it to the byte."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from io import BytesIO
from itertools import count
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support import (
    NON_PRIVATE,
    SECOND,
    Book,
    declared,
    gaussian,
    hospital,
    laplace,
    make,
    sparse_vector,
)

from accountant.budget import lists
from accountant.budget.apply import apply, fold
from accountant.budget.columns import Take
from accountant.budget.decide import SYSTEM, decide
from accountant.budget.errors import Problem
from accountant.budget.facts import grant_in
from accountant.budget.idempotency import IdempotencyIndex
from accountant.budget.reading import read
from accountant.budget.snapshot import Copied, dump, load
from accountant.budget.state import State, envelope_of
from accountant.ledger.events import Event, canonical
from accountant.ledger.notes import Signer
from accountant.privacy import engine
from accountant.privacy.filters import FILTERS
from bench.mixed import mixed

AGES = ["17", "22", "27"]
PERSON = "  - {id: person, across: datasets, limit: {epsilon: 30, delta: 1e-6}}\n"
RULES = (
    "  - {{id: a, limit: {{epsilon: 2, delta: 1e-3, own_delta: 1e-5}}, gate: {gate}}}\n"
    + PERSON.replace("{", "{{").replace("}", "}}"),
    "  - {{id: a, limit: {{epsilon: 5, delta: 1e-3, own_delta: 1e-5}}, gate: {gate}}}\n"
    "  - {{id: each, per: client, limit: {{epsilon: 1.5}}, action: flag}}\n"
    "  - {{id: nearly, of: a, at: 60%}}\n",
    "  - {{id: a, limit: {{epsilon: 6, delta: 1e-4}}, gate: zcdp}}\n",
    "  - {{id: a, limit: {{epsilon: 4, delta: 1e-3}}, gate: {gate}, carry: none}}\n",
    "  - {{id: b, datasets: 'd*', limit: {{epsilon: 9, delta: 1e-2}}, gate: gdp}}\n"
    "  - {{id: why, require: [purpose], action: flag}}\n"
    "  - {{id: word, mechanisms: [declared], action: flag}}\n",
)
MECHANISMS = (
    [laplace("0.01")],
    [laplace("0.013", 2), gaussian("0.02", "1e-9")],
    [gaussian("0.03")],
    [declared("0.02", "0.000001")],
    [laplace("0.4")],
    [NON_PRIVATE],
    [declared("1000000", count=1000)],
)
GROUPS: tuple[Any, ...] = (
    None,
    {"sex": ["f"]},
    {"age": ["17", "27"], "sex": ["m"]},
    {"age": {"from": "17", "to": "22"}},
    [{"sex": ["f"]}, {"age": ["22"]}],
)

few = st.integers(0, 3)
asking = st.tuples(
    st.sampled_from(["ask_grant", "ask_grant", "record_invocations"]),
    st.sampled_from(["one", "two"]),
    st.sampled_from(["d", "e"]),
    few | st.integers(0, len(MECHANISMS) - 1),
    st.integers(0, len(GROUPS) - 1),
)
ending = st.tuples(st.sampled_from(["commit", "part", "release", "count", "close"]), few)
rare = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1, 4000])),
    st.tuples(st.just("extend"), st.booleans()),
    st.tuples(st.just("policy"), st.integers(0, len(RULES) - 1)),
    st.tuples(st.just("revalue"), st.integers(0, 50)),
    st.tuples(
        st.sampled_from(["session", "expire", "sign", "stop", "resume", "lift", "recover", "erase"])
    ),
)
ops = st.lists(asking | ending | rare, min_size=5, max_size=60)


def ledger(gate: str, todo: list[tuple[Any, ...]]) -> Book:
    """The ledger that ``todo`` comes to; what is refused as a problem leaves no event."""
    book = Book()
    book.register({"age": AGES, "sex": ["f", "m"]})
    for name in ("d", "e"):
        book.dataset(name)
    book.policy(RULES[0].format(gate=gate))
    origins = count()
    for op in todo:
        book.now += SECOND
        try:
            _do(book, gate, op, origins)
        except Problem:
            continue
    return book


def _do(book: Book, gate: str, op: tuple[Any, ...], origins: Any) -> None:
    opened = list(book.state.open.values())
    match op:
        case ("ask_grant" | "record_invocations" as kind, client, dataset, stated, group):
            mechanisms = MECHANISMS[stated]
            book.do(kind, client, dataset=dataset, mechanisms=mechanisms, subjects=GROUPS[group])
        case ("session",):
            book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
        case ("wait", seconds):
            book.now += seconds * SECOND
        case ("expire",):
            for grant in [g for g in opened if g.due(book.now)]:
                book.do("expire_grant", SYSTEM, grant=grant.id)
        case ("extend", new):
            ages = [*dict(book.state.people().dimensions)["age"], str(book.state.sequence)]
            book.register({"age": ages, "sex": ["f", "m"]}, attested_new=new)
        case ("policy", which):
            book.policy(RULES[which].format(gate=gate), confirmed_by="officer")
        case ("revalue", event):
            booked = {"epsilon": "1", "delta": "0"}
            facts = {"by": "one", "dataset": "d", "subjects": GROUPS[event % len(GROUPS)]}
            stated = {"mechanisms": MECHANISMS[0], "booked": booked, "reason": "wrong"}
            book.ask(make("revalue", event=event, **facts, **stated), "officer")
        case _:
            _keep(book, op[0], origins) if len(op) == 1 else _end(book, op[0], opened, op[1])


def _keep(book: Book, what: str, origins: Any) -> None:
    if what == "sign":
        key = str(Signer.new(f"origin-{book.state.custody.recoveries}").verifier)
        book.ask(make("adopt_signing_key", key=key), SYSTEM)
    elif what == "stop":
        fields = {"witness": "w", "status": 409, "detail": "it differs", "size": 3}
        book.ask(make("stop_publication", **fields), SYSTEM)
    elif what == "resume":
        book.do("resume_publication", "officer", reason="looked")
    elif what == "erase":
        book.do("erase_text", "officer", event=0, fields=["purpose"], reason="asked")
    elif what == "recover":
        book.do("recover", "officer", reason="restored", lost=[])
    else:
        used = {"epsilon": str(10**7 * (1 + next(origins))), "delta": "3", "infinite": {"rho": 1}}
        account = {"rule": "", "epoch": 0, "dataset": "d", "client": "", "used": used}
        book.do("carry_over", "officer", accounts=[account])


def _end(book: Book, how: str, opened: list[Any], at: int) -> None:
    if not opened:
        return
    grant = opened[at % len(opened)]
    if how == "count":
        book.do("count_answers", grant.by, grant=grant.id, positives=at % 2, negatives=at)
    elif how == "close":
        book.do("close_sparse_vector", grant.by, grant=grant.id)
    elif how == "release":
        book.do("release_grant", grant.by, grant=grant.id, reason="never run")
    elif how == "part":
        stated = grant.document.get("mechanisms", MECHANISMS[0])
        listed = [part | {"count": 1} for part in stated[:1]]
        book.do("commit_grant", grant.by, grant=grant.id, mechanisms=listed)
    else:  # past its time it expires, and the commit is noted
        book.do("commit_grant", grant.by, grant=grant.id)


def joined(state: State) -> bytes:
    """The snapshot as one piece."""
    return b"".join(dump(state))


def taken_up(state: State) -> State:
    """The state, loaded from its snapshot; equal in everything, orders included."""
    twin = load(state.ledger, joined(state))
    assert twin == state
    assert joined(twin) == joined(state)
    return twin


def goes_on(name: str, events: list[Event], cut: int) -> None:
    """From a snapshot after ``cut`` events every later decision is the one that was taken."""
    twin = taken_up(fold(name, events[:cut]))
    for event in events[cut:]:
        found = decide(twin, envelope_of(event), event.time)
        assert isinstance(found, list)
        assert found[0].entry.body == event.to_bytes()
        apply(twin, found[0])
    assert twin == fold(name, events)


@settings(max_examples=examples(100))
@given(st.sampled_from(sorted(FILTERS)), ops, st.data())
def test_a_ledger_goes_on_from_its_snapshot(gate: str, todo: Any, data: st.DataObject) -> None:
    """Whatever happened, and wherever the snapshot was taken, nothing differs after it."""
    book = ledger(gate, todo)
    events = [Event.from_bytes(body) for body in book.stored]
    taken_up(book.state)
    goes_on(book.name, events, data.draw(st.integers(0, len(events))))


@pytest.fixture(scope="module")
def busy() -> list[Event]:
    """The events of a ledger of many grants."""
    return list(mixed(1500))


@pytest.mark.xdist_group("busy")
@pytest.mark.parametrize("cut", [*range(0, 20, 3), 200, 1023, 1024, 1025, 1400])
def test_a_busy_ledger_goes_on_from_its_snapshot(busy: list[Event], cut: int) -> None:
    """The same for a ledger of many grants, whose columns and tables have grown."""
    goes_on("mixed", busy[: cut + 100], cut)


def test_what_happens_seldom_is_kept() -> None:
    """A rich ledger, so that what the property is about does occur in it."""
    asks = [("ask_grant", "one", "d", i % 4, i % 5) for i in range(9)]
    todo: list[tuple[Any, ...]] = [
        *asks,
        ("commit", 0),
        ("session",),
        ("count", 8),
        ("policy", 1),
        ("extend", False),
        ("policy", 4),
        ("record_invocations", "two", "e", 5, 1),
        ("record_invocations", "two", "e", 6, 0),
        ("policy", 3),
        ("wait", 4000),
        ("commit", 1),
        ("revalue", 4),
        ("sign",),
        ("stop",),
        ("lift",),
        *asks,
    ]
    state = ledger("renyi", todo).state
    assert state.adopted is not None
    assert not state.adopted.epochs["a"].whole
    assert {key.epoch for key in state.accounts} >= {0, 1, 2, 3}
    assert any(not sums.flat for sums in state.reserved().values())
    assert any(grant.session and grant.positives == 0 for grant in state.open.values())
    assert any(grant.late_note for grant in state.grants.settled())
    assert any(any(account.used.most()[2:]) for account in state.accounts.values())
    assert state.revalued
    assert state.custody.keys
    assert state.custody.stopped is not None
    twin = taken_up(state)
    assert list(twin.accounts) == list(state.accounts)
    assert list(twin.open) == list(state.open)
    assert list(twin.last_epoch.items()) == list(state.last_epoch.items())
    carried = ledger("gdp", [*asks, ("policy", 1), ("ask_grant", "one", "d", 0, 0)]).state
    assert carried.adopted is not None
    assert carried.adopted.epochs["a"].carried
    assert carried.adopted.epochs["a"].limit.chosen is not None
    assert taken_up(carried).adopted == carried.adopted


def test_the_version_of_the_bounds_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which version decides from where on is part of the state."""
    monkeypatch.setattr(engine, "CURRENT", 2)
    book = hospital()
    book.do("adopt_engine", SYSTEM, version=2)
    assert taken_up(book.state).custody.engines == ((0, 1), (4, 2))


def test_sums_of_any_size_are_kept() -> None:
    """A bound may pass 64 bits, and stamps reach the year 9999."""
    book = hospital()
    book.now = 250_000_000_000_000_000
    book.record(laplace("0.1"))
    for account in book.state.accounts.values():
        account.bound[0] = 2**70
    twin = taken_up(book.state)
    assert twin.time == book.now
    assert all(account.bound[0] == 2**70 for account in twin.accounts.values())


def test_a_deep_command_is_kept() -> None:
    """A command as deeply nested as an event may be stands deeper in a snapshot."""
    book = hospital()
    book.grant(laplace("0.1"))
    [grant] = book.state.open.values()
    deep: Any = "bottom"
    for _ in range(62):
        deep = {"in": deep}
    canonical({"command": deep})
    book.state.grants.keep(replace(grant, command=canonical(deep)))
    taken_up(book.state)


@pytest.mark.xdist_group("busy")
def test_a_snapshot_is_a_copy(busy: list[Event]) -> None:
    """The state goes on while its snapshot is written, and the snapshot stays as it was."""
    state = fold("mixed", busy[:600])
    parts = dump(state)
    before = b"".join(parts)
    for event in busy[600:1200]:
        apply(state, read(state, event))
    assert b"".join(parts) == before
    assert load("mixed", before) == fold("mixed", busy[:600])


def test_an_empty_ledger_has_a_snapshot() -> None:
    """Before its first event a ledger has no population, no policy, no account."""
    taken_up(State("fair"))


SAMPLES = [
    ledger("renyi", [("ask_grant", "one", "d", i % 4, i % 5) for i in range(6)] + more).state
    for more in ([], [("commit", 0), ("policy", 1), ("session",), ("wait", 4000), ("commit", 2)])
]


def damaged(state: State, data: bytes) -> None:
    """Damage is noticed, or it led to another snapshot that says what it says."""
    try:
        found = load(state.ledger, data)
    except ValueError:
        return
    assert joined(found) == data


@pytest.mark.parametrize("state", SAMPLES)
def test_every_truncation_is_noticed(state: State) -> None:
    """A snapshot that lacks its end, or has one more byte, is none."""
    data = joined(state)
    for length in [*range(0, len(data) - 1, 37), len(data) - 1]:
        with pytest.raises(ValueError):  # noqa: PT011 any of them
            load(state.ledger, data[:length])
    with pytest.raises(ValueError, match="goes on"):
        load(state.ledger, data + b"\0")
    with pytest.raises(ValueError, match="of other"):
        load("other", data)


@settings(max_examples=examples(400))
@given(st.sampled_from(SAMPLES), st.data())
def test_a_changed_byte_never_breaks_the_reader(state: State, data: st.DataObject) -> None:
    """Whatever byte is changed, nothing but ValueError comes of it."""
    body = bytearray(joined(state))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged(state, bytes(body))


OTHERS = ["", "0", "-1", "a", "1/0", True, None, 0, 1, -1, 2**40, 2**70, 0.5, [], {}, [[]]]


@settings(max_examples=examples(600))
@given(st.sampled_from(SAMPLES), st.data())
def test_a_changed_field_never_breaks_the_reader(state: State, data: st.DataObject) -> None:
    """The same for a head in canonical form in which some value is another one."""
    parts = dump(state)
    document = json.loads(parts[1])
    at, value = document, document
    while isinstance(value, dict | list) and value:
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        at, key = value, data.draw(st.sampled_from(list(keys)))
        value = at[key]
        if data.draw(st.integers(0, 5)) == 0:
            break
    how = data.draw(st.sampled_from(["other", "drop", "add"]))
    if how == "drop":
        del at[key]
    elif how == "add" and isinstance(at, dict):
        at["unknown"] = 1
    else:
        at[key] = data.draw(st.sampled_from(OTHERS))
    head = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    damaged(state, b"".join([len(head).to_bytes(8, "little"), head, *parts[2:]]))


@pytest.mark.parametrize("where", ["", "accounts", "settled", "custody"])
def test_an_unknown_field_is_an_error(where: str) -> None:
    """A field that this program does not know may mean something."""
    parts = dump(SAMPLES[0])
    document = json.loads(parts[1])
    place = document[where] if where else document
    place = place[0] if isinstance(place, list) else place
    place["unknown"] = 1
    head = canonical(document)
    with pytest.raises(ValueError, match="unknown"):
        load("fair", b"".join([len(head).to_bytes(8, "little"), head, *parts[2:]]))


@pytest.mark.parametrize("many", [0, 1, 7, 8, 9, 16, 17, 300])
def test_a_table_of_answers_goes_on_growing(many: int) -> None:
    """Whether the table was about to grow or had just grown, what comes after finds its place."""
    answers = IdempotencyIndex()
    for i in range(many):
        answers.put("pipe", f"k{i}", b"%032d" % i, i)
    twin = IdempotencyIndex.load(taking(answers.dump()), many)
    for each in (answers, twin):
        for i in range(many, many + 40):
            each.put("pipe", f"k{i}", b"%032d" % i, i)
    assert twin == answers
    assert all(twin.get("pipe", f"k{i}") == ((b"%032d" % i)[:16], i) for i in range(many + 40))


@pytest.mark.parametrize("number", [0, 2, 9, 2**32 - 1])
def test_every_answer_has_one_place(number: int) -> None:
    """A table in which an answer is missing would let a retry spend twice."""
    answers = IdempotencyIndex()
    for i in range(3):
        answers.put("pipe", f"k{i}", b"%032d" % i, i)
    *columns, places = answers.dump()
    changed = places.replace((1).to_bytes(4, "little"), number.to_bytes(4, "little"))
    with pytest.raises(ValueError, match="place"):
        IdempotencyIndex.load(taking([*columns, changed]), 3)


def taking(parts: Iterable[bytes]) -> Take:
    """Reads the parts one after the other."""
    stream = BytesIO(b"".join(parts))
    return lambda size: memoryview(stream.read(size))


def test_a_settled_grant_is_somebodys() -> None:
    """A column that names nobody would fail much later, when somebody asks for the grant."""
    book = hospital()
    grant = grant_in(book.grant(laplace("0.1")))
    book.do("commit_grant", grant=grant)
    parts = dump(book.state)
    head = parts[1].replace(b'"people":["pipe"]', b'"people":[]')
    assert head != parts[1]
    with pytest.raises(ValueError, match="number without a name"):
        load("fair", b"".join([len(head).to_bytes(8, "little"), head, *parts[2:]]))


@pytest.mark.parametrize("written", [b"[1]", b"1", b"null", b"{", b"[", b"", b"{}\n[]"])
def test_a_command_is_an_object(written: bytes) -> None:
    """What an open grant was asked for is read as events hold it, or not at all."""
    book = hospital()
    book.grant(laplace("0.1"))
    length, head, rows, commands, *columns = dump(book.state)
    assert commands.split(b"\n") == [grant.command for grant in book.state.open.values()]
    head = head.replace(b'"commands":%d' % len(commands), b'"commands":%d' % len(written))
    length = len(head).to_bytes(8, "little")
    with pytest.raises(ValueError, match=r"(?i)object|damaged|document|end of data|literal"):
        load("fair", b"".join([length, head, rows, written, *columns]))


def test_keys_are_answered_from_a_snapshot() -> None:
    """A retry after a start from a snapshot gets the answer that it got before."""
    book = hospital()
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.1")])
    first = book.ask(command, "pipe", "k")[0]
    book.state = taken_up(book.state)
    assert book.ask(command, "pipe", "k").sequence == first.sequence


def test_the_state_goes_on_while_its_snapshot_is_written() -> None:
    """The snapshot holds what was so when it was begun, whatever is granted, settled, registered or
    answered before it is written.
    """
    book = hospital("  - {id: a, limit: {epsilon: 99}}\n", {"sex": ["f", "m"]})
    grants = [book.grant(laplace("0.1"), subjects={"sex": ["f"]}) for _ in range(200)]
    before, begun = joined(book.state), Copied.of(book.state)

    def meanwhile() -> None:
        book.grant(laplace("0.2"))
        book.record(laplace("0.3"), subjects={"sex": ["m"]})
        book.do("commit_grant", grant=grant_in(grants.pop()))
        book.dataset(f"d{len(grants)}")

    written = b"".join(begun.dump(meanwhile))
    assert len(grants) < 200
    assert written == before
    assert load("fair", written) != book.state


def test_no_list_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """What grows with the open grants that are all different, and with the requests that wait, is
    written some items at a time, and so is a head that does not grow with them.
    """
    monkeypatch.setattr(lists, "_AT_ONCE", 3)
    sizes = {}
    for many in (4, 40):
        book = hospital("  - {id: a, limit: {epsilon: 50}}\n", {"age": AGES})
        for i in range(many):
            subjects = {"age": {"from": AGES[0], "to": AGES[i % 3]}}
            book.grant(laplace(f"0.{i + 10}"), subjects=subjects)
        for i in range(many):
            book.grant(laplace(f"9{i + 10}"), wait=600)
        breaths = count()
        parts = Copied.of(book.state).dump(partial(next, breaths))
        sizes[many] = len(parts[1]), next(breaths)
        assert load("fair", b"".join(parts)) == book.state
    (head, few), (longer, more) = sizes[4], sizes[40]
    assert longer - head < 60  # numbers with more digits
    assert more >= few + 36 * 4 / 3  # grants, charges, bookings and requests that wait
