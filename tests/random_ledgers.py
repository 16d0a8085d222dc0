"""Ledgers as hypothesis makes them: few requests that come again and again, all else between."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from support import NON_PRIVATE, SECOND, Book, declared, gaussian, laplace, make, sparse_vector

from accountant.budget.commands import Envelope, batch_of
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem
from accountant.budget.facts import grant_in
from accountant.budget.outcome import RESERVED
from accountant.budget.sealing import seal
from accountant.budget.state import ALL

Ops = list[tuple[Any, ...]]

MECHANISMS = (
    [laplace("0.01")],
    [laplace("0.013", 2), gaussian("0.02", "1e-9")],
    [gaussian("0.03")],
    [declared("0.02", "0.000001")],
    [laplace("0.4")],
    [laplace("0.01", claimed={"epsilon": "0.001"})],
    [NON_PRIVATE],
)
GROUPS = (
    None,
    None,
    {"sex": ["f"]},
    {"age": ["17", "27"], "sex": ["m"]},
    {"age": {"from": "17", "to": "22"}},
    [{"sex": ["f"]}, {"age": ["22"]}],
)
CLIENTS = ("one", "two")
POLICY = (
    "  - {{id: a, limit: {{epsilon: {limit}, delta: 1e-3, own_delta: 1e-5}}, gate: {gate}}}\n"
    "  - {{id: person, across: datasets, limit: {{epsilon: 3, delta: 1e-6}}}}\n"
    "  - {{id: nearly, of: a, at: 60%}}\n"
    "  - {{id: why, require: [purpose], action: flag}}\n"
    "  - {{id: known, purposes: [study], action: flag}}\n"
    "  - {{id: lately, window: 1h, limit: {{epsilon: 0.6, delta: 1e-4}}, action: flag}}\n"
    "  - {{id: today, refresh: daily, limit: {{epsilon: 0.5, delta: 1e-4}}, action: flag}}\n"
    "  - {{id: slow, limit: {{epsilon: 3, delta: 1e-4}}, unlock: {{over: 2h}}, action: flag}}\n"
    "  - {{id: fair, refresh: weekly, limit: {{epsilon: 3, delta: 1e-4}}, gate: zcdp,"
    " unlock: {{per_request: 1/9}}, action: flag}}\n"
    "  - {{id: most, at_most: {{epsilon: 0.3, delta: 1e-5}}, action: flag}}\n"
    "  - {{id: kinds, mechanisms: [declared, non_private], datasets: e, action: flag}}\n"
    "  - {{id: whole, datasets: e, limit: {{epsilon: 2, delta: 1e-4}}, gate: basic}}\n"
    "  - {{id: part, part_of: whole, limit: {{epsilon: 0.7, delta: 1e-5}}, clients: [one]}}\n"
    "  - {{id: word, trusted: {{epsilon: 0.2}}, action: flag}}\n"
    "  - {{id: whys, per: purpose, limit: {{epsilon: 1, delta: 1e-4}}, action: flag}}\n"
    "  - {{id: girls, subjects: {{sex: f}}, limit: {{epsilon: 1, delta: 1e-4}}, action: flag}}\n"
)
EACH = "  - {id: each, per: client, limit: {epsilon: 1.5}, action: flag}\n"
"""A sub-limit of each client."""

few = st.sampled_from([0, 0, 0, 1, 1, 2])
"""Requests come again and again."""
mechanisms = st.one_of(few, st.integers(0, len(MECHANISMS) - 1))
groups = st.one_of(st.just(0), st.integers(0, len(GROUPS) - 1))
clients = st.sampled_from(CLIENTS)
single = st.sampled_from(["d", "d", "e"])
datasets = single | st.sampled_from(["d", "g", ["d", "e"], ["e", "g"]])
"""One, several, or one that was made from another."""
purposes = st.sampled_from([None, "study", "free text", "free text"])
batch = st.tuples(
    st.just("batch"),
    st.booleans(),
    clients,
    st.lists(st.tuples(datasets, mechanisms, groups, purposes), min_size=1, max_size=4),
)
asking = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "record"]),
    clients,
    datasets,
    mechanisms,
    groups,
    purposes,
)
ending = st.tuples(
    st.sampled_from(["commit", "commit", "commit", "part", "release", "keyed"]), st.integers(0, 9)
)
rare = st.sampled_from(
    [
        ("wait", 1),
        ("wait", 4000),
        ("wait", 40_000),
        ("expire",),
        ("session",),
        ("extend", True),
        ("extend", False),
        ("policy", 2),
        ("policy", 1),
        ("gate", "zcdp"),
        ("gate", "basic"),
        ("recover",),
        ("made", "outside", []),
        ("made", "e", ["d"]),
        ("made", "e", ["outside"]),
    ]
)
carried = st.tuples(
    st.just("carry"),
    single,
    st.lists(st.sampled_from(["", "a", "person", "each"]), min_size=1, unique=True),
    st.sampled_from([0, 0, 1]),
)
"""What some accounts have used at least."""
ops = st.lists(asking | asking | ending | ending | rare | carried | batch, min_size=10, max_size=90)


def ledger(gate: str, wide: bool, todo: Ops, book: Book | None = None) -> Book:
    """The ledger that ``todo`` comes to; what is refused as a problem leaves no event."""
    book = book or Book()
    book.register({"age": ["17", "22", "27"], "sex": ["f", "m"]}, neighbouring="add_or_remove_one")
    for name in ("d", "e"):
        book.dataset(name)
    derived = {"id": "g", "namespace": "n", "name": "g", "parents": ["d", "outside"]}
    book.do("register_dataset", "admin", **derived)
    rules = POLICY.format(gate=gate, limit=50 if wide else 2) + EACH * (not wide)
    book.policy(rules, confirmed_by="officer")
    carry_on(book, gate, todo)
    return book


def carry_on(book: Book, gate: str, todo: Ops, name: str = "k") -> None:
    """Does more; ``name`` begins the keys."""
    salts = iter(range(10**6))
    for number, op in enumerate(todo):
        book.now += SECOND
        try:
            _do(book, gate, op, f"{name}{number}", salts)
        except Problem:
            continue


def _do(  # noqa: C901 (a case each)
    book: Book, gate: str, op: tuple[Any, ...], key: str, salts: Any
) -> None:
    opened = book.state.grants.in_order()
    match op:
        case ("batch", past, client, items):
            kind = "record_invocations" if past else "ask_grant"
            mine = [] if past else [g.id for g in opened if g.by == client and not g.session][:2]
            commits = [make("commit_grant", grant=name) for name in mine]
            asks = [make(kind, subjects=GROUPS[g], **_stated(d, m, p)) for d, m, g, p in items]
            all_of = (*commits, *asks)
            asked = Envelope(client, batch_of(all_of), key, all_of)
            asked, _ = seal(book.state, asked, lambda: b"%d" % next(salts))
            book.batch(*asked.items, by=client, key=key)
        case ("ask" | "record" as what, client, dataset, stated, group, purpose):
            kind = "ask_grant" if what == "ask" else "record_invocations"
            fields = _stated(dataset, stated, purpose)
            fields |= _said(book.state.sequence) if what == "record" else {}
            command = make(kind, subjects=GROUPS[group], **fields)
            asked, _ = seal(book.state, Envelope(client, command, key), lambda: b"%d" % next(salts))
            book.ask(asked.command, client, key)
        case ("wait", seconds):
            book.now += seconds * SECOND
        case ("expire",):
            for grant in [g for g in opened if g.due(book.now)]:
                book.do("expire_grant", SYSTEM, grant=grant.id)
        case ("session",):
            _session(book)
        case ("extend", new):
            ages = [*dict(book.state.people().dimensions)["age"], str(book.state.sequence)]
            book.register(
                {"age": ages, "sex": ["f", "m"]},
                neighbouring="add_or_remove_one",
                attested_new=new,
            )
        case ("made", name, parents):
            fields = {"id": name, "namespace": "n", "name": name, "parents": parents}
            book.ask(make("register_dataset", **fields), "admin", confirmed_by="officer")
        case ("policy", limit):
            rules = POLICY.format(gate=gate, limit=limit) + EACH * (limit == 1)
            book.policy(rules, confirmed_by="officer", closes=True)
        case ("gate", other):
            rules = POLICY.format(gate=other, limit=2) + EACH
            book.policy(rules, confirmed_by="officer", closes=True)
        case ("recover",):
            book.do("recover", "officer", reason="put back", lost=[])
        case ("carry", dataset, rules, infinite):
            _carry(book, dataset, rules, infinite)
        case (_, at) if opened:
            _end(book, op[0], opened[at % len(opened)], key)


def _carry(book: Book, dataset: str, rules: list[str], infinite: int) -> None:
    used = {"epsilon": "70000000", "delta": "7"} | ({"infinite": {"delta": 1}} if infinite else {})
    scopes = {"": (dataset, ""), "a": (dataset, ""), "person": (ALL, ""), "each": (dataset, "one")}
    accounts = []
    for rule in rules:
        place = dict(zip(("dataset", "client"), scopes[rule], strict=True))
        epoch = book.state.last_epoch.get(rule, 0)
        accounts.append({"rule": rule, "epoch": epoch, "used": used} | place)
    book.do("carry_over", "officer", accounts=accounts)


def _stated(dataset: Any, stated: int, purpose: str | None) -> dict[str, Any]:
    """The fields of a request: studies on e draw from the part that is kept."""
    fields = {"dataset": dataset, "mechanisms": MECHANISMS[stated], "purpose": purpose}
    return fields | ({"allotment": "part"} if purpose == "study" and "e" in dataset else {})


def _said(number: int) -> dict[str, Any]:
    """When something ran; some do not say."""
    return {"ran_at": f"2026-11-{1 + number % 28:02}T10:00:00Z"} if number % 3 else {}


def _session(book: Book) -> None:
    session = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
    if session.type == RESERVED:
        book.do("count_answers", grant=grant_in(session), positives=1, negatives=2)
        book.do("close_sparse_vector", grant=grant_in(session))


def _end(book: Book, how: str, grant: Any, key: str) -> None:
    fields: dict[str, Any] = {}
    if how == "part":
        stated = grant.document.get("mechanisms", [])[:1]
        fields["mechanisms"] = [m | {"count": 1} for m in stated]
    if how == "release":
        fields["reason"] = "never run"
    kind = "release_grant" if how == "release" else "commit_grant"
    book.do(kind, grant.by, grant=grant.id, key=key if how == "keyed" else None, **fields)
