"""The hot path gives the same answers as the framework's routes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import START, Client, Clock, World, ask, client_of, declared, gaussian, laplace, logged

from accountant.api.hot import Hot
from accountant.runtime.service import Service
from accountant.store.ledgers import Ledgers, StoreError

GRANT = ask(laplace("0.01"))
SLOW = ask(*[laplace("0.0001")] * 21)
"""Mechanisms that take long to price."""
PAST = "/v1/populations/fair"

Send = tuple[str, Any, dict[str, Any]]


def requests() -> list[Send]:
    """Valid and invalid requests in order: path, body, and other differences."""
    keyed: list[Send] = [
        ("/grants", GRANT, {"key": "a"}),
        ("/grants", GRANT, {"key": "a"}),
        ("/grants", GRANT, {"key": "b"}),
        ("/grants", ask(laplace("0.02")), {"key": "a"}),
        ("/grants", ask(laplace("0.01"), purpose="a text"), {"key": "c"}),
        ("/grants", ask(laplace("0.01"), purpose="a text"), {"key": "c"}),
        ("/grants", ask(laplace("0.01"), purpose="another"), {"key": "c"}),
        ("/grants", ask(laplace("99")), {"key": "much"}),
        ("/grants", ask(laplace("99")), {"key": "much"}),
        ("/grants", ask(gaussian("0.1", "1e-6")), {"key": "g"}),
        ("/grants", ask(declared("0.1", "1e-9")), {"key": "e"}),
        ("/grants", ask(laplace("0.01"), subjects={"sex": ["f"]}), {"key": "f"}),
        ("/grants", ask(laplace("0.01"), subjects={"sex": ["?"]}), {"key": "h"}),
        ("/grants", ask(laplace("0.01"), dataset="nowhere"), {"key": "i"}),
        ("/grants", ask(laplace("0.01"), ttl_seconds=0), {"key": "j"}),
        ("/grants", ask(laplace("0.01"), more="x"), {"key": "k"}),
        ("/grants", ask(), {"key": "l"}),
        ("/invocations", GRANT, {"key": "m"}),
        ("/invocations", ask(laplace("500")), {"key": "n"}),
        ("/invocations", ask(laplace("0.01"), subjects={"sex": ["?"]}), {"key": "o"}),
        ("/grants/g4/commit", {}, {"key": "p"}),
        ("/grants/g4/commit", {}, {"key": "p"}),
        ("/grants/g4/commit", {}, {"key": "q"}),
        ("/grants/g5/commit", {"mechanisms": [laplace("0.05")]}, {"key": "r"}),
        ("/grants/g5/commit", {"grant": "g5"}, {"key": "s"}),
        ("/grants/g5/release", {}, {"key": "t"}),
        ("/grants/g5/release", {"reason": "never ran"}, {"key": "u"}),
        ("/grants/g5/release", {"reason": "never ran"}, {}),
        ("/grants/g999/commit", {}, {"key": "v"}),
        ("/grants/x/commit", {}, {"key": "w"}),
        ("/grants/g4/erase", {}, {"key": "x"}),
        ("/grants/g6/commit", b"", {"key": "y", "who": "admin"}),
        ("/grants/g6/commit", b"", {"key": "y2"}),
    ]
    odd: list[Send] = [
        ("/grants", GRANT, {}),
        ("/grants", GRANT, {"key": "x" * 201}),
        ("/grants", GRANT, {"key": "\xe9"}),
        ("/grants", GRANT, {"headers": [("Idempotency-Key", "1"), ("Idempotency-Key", "2")]}),
        ("/grants?a=b", GRANT, {"key": "q1"}),
        ("/grants?", GRANT, {"key": "q2"}),
        ("/grants/", GRANT, {"key": "q3"}),
        ("/gr%61nts", GRANT, {"key": "q4"}),
        ("/grants", GRANT, {"key": "q5", "method": "PUT"}),
        ("/grants", GRANT, {"key": "q6", "method": "GET"}),
        ("/grants", GRANT, {"key": "q7", "who": "auditor"}),
        ("/grants", GRANT, {"key": "q8", "who": "officer"}),
        ("/grants", GRANT, {"key": "q9", "who": "admin"}),
        ("/grants", GRANT, {"key": "q10", "authorization": "Bearer wrong"}),
        ("/grants", GRANT, {"key": "q11", "authorization": "Basic abc"}),
        ("/grants", GRANT, {"key": "q12", "authorization": None}),
        ("/grants", GRANT, {"key": "q13", "scheme": "bearer "}),
        ("/grants", GRANT, {"key": "q14", "scheme": "Bearer  "}),
        ("/grants", b"{", {"key": "q15"}),
        ("/grants", b"[]", {"key": "q16"}),
        ("/grants", b"", {"key": "q17"}),
        ("/grants", b'{"dataset":"d","dataset":"d"}', {"key": "q18"}),
        ("/grants", b'{"dataset":NaN}', {"key": "q19"}),
        ("/grants", b"\xff", {"key": "q20"}),
        ("/grants", b"x" * 2_000_000, {"key": "q21"}),
        ("/grants", GRANT, {"key": "q22", "encoding": "gzip"}),
        ("/grants", GRANT, {"key": "q23", "population": "nowhere"}),
        ("/grants", GRANT, {"key": "q24", "population": "_service"}),
        ("/grants", GRANT, {"key": "q25", "population": "UPPER"}),
    ]
    return keyed + odd


def send(world: World, http: Client, one: Send) -> tuple[Any, ...]:
    """The answer, and the client in the log line."""
    path, body, how = one
    secret = world.secrets[how.get("who", "pipeline")]
    given = how.get("authorization", how.get("scheme", "Bearer ") + secret)
    traced = [("X-Request-ID", "r"), ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01")]
    headers = [*traced, *how.get("headers", [])]
    headers += [("Authorization", given)] if given else []
    headers += [("Content-Encoding", how["encoding"])] if "encoding" in how else []
    named: list[Any] = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    if "key" in how:
        named.append((b"Idempotency-Key", how["key"].encode("latin-1")))
    content = {"content": body} if isinstance(body, bytes) else {"json": body}
    url = how.get("past", PAST).replace("fair", how.get("population", "fair")) + path
    with logged() as logs:
        answer = http.request(how.get("method", "POST"), url, headers=named, **content)
    lines = [
        {name: value for name, value in line.items() if name != "milliseconds"} for line in logs
    ]
    differ = "date", "connection"
    headers = sorted(item for item in answer.headers.items() if item[0] not in differ)
    return answer.status_code, headers, answer.content, lines


@pytest.fixture
def pair(world: Callable[..., World], tmp_path: Any, empty_database: Any) -> list[World]:
    """Two worlds of one history, each on a database of its own; the second has no quick way."""
    made = []
    for name in ("quick", "plain"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "accountant.db"
        path.write_bytes(empty_database.read_bytes())
        one = world(Clock(START), f"sqlite:///{path}", home=tmp_path / name)
        one.hospital("  - {id: a, limit: {epsilon: 9, delta: 1e-3}}\n", {"sex": ["f", "m"]})
        made.append(one)
    return made


@pytest.fixture
def doors(pair: list[World]) -> Iterator[list[Client]]:
    """The doors of both."""
    quick, plain = pair
    with client_of(plain.service, plain.settings, hot=False) as slow:
        yield [quick.http, slow]


def test_both_ways_answer_alike(
    pair: list[World], doors: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status, headers, body and log line are the same, byte for byte, whatever is asked; texts'
    salts apart the ledgers are too.
    """
    monkeypatch.setattr("secrets.token_bytes", lambda size: b"s" * size)
    for one in requests():
        first, second = (send(world, door, one) for world, door in zip(pair, doors, strict=True))
        assert first == second, one
    assert pair[0].stored() == pair[1].stored()


@pytest.mark.parametrize("failure", [ZeroDivisionError("x"), MemoryError(), StopIteration()])
def test_both_ways_fail_alike(
    pair: list[World],
    doors: list[Client],
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
) -> None:
    """An unforeseen error is a 500 with a problem, on the hot path and in the routes."""

    def decide(*_: Any) -> Any:
        raise failure

    monkeypatch.setattr("accountant.runtime.unit_of_work.decide", decide)
    one = ("/grants", GRANT, {"key": "z"})
    answers = [send(world, door, one)[:3] for world, door in zip(pair, doors, strict=True)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 500


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (None, 200),
        (StoreError("no such table: events"), 503),
        (StoreError("it is read-only"), 503),
        (ZeroDivisionError("x"), 500),
    ],
)
def test_both_ways_are_ready_alike(
    pair: list[World],
    doors: list[Client],
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | None,
    status: int,
) -> None:
    """Whether the service can decide is told the same way, by the calls that can be answered
    first and by the routes.
    """

    def check(*_: Any) -> None:
        if failure is not None:
            raise failure

    monkeypatch.setattr(Ledgers, "check", check)
    for method, path, expected in (
        ("GET", "/readyz", status),
        ("GET", "/readyz?x=1", status),
        ("HEAD", "/readyz", status),
        ("POST", "/readyz", 405),
    ):
        one = (path, b"", {"past": "", "method": method, "authorization": None})
        first, second = (send(world, door, one) for world, door in zip(pair, doors, strict=True))
        assert first[:3] == second[:3], one
        assert first[0] == expected


def test_long_bodies_are_read_by_the_routes(
    pair: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that takes long to read does not hold up the event loop: a thread reads it."""
    quick, read = pair[0], []
    monkeypatch.setattr(Hot, "_asked", lambda _, call, body: read.append(len(body)))
    names = [f"value-{n}" for n in range(4_000)]
    answer = send(
        quick, quick.http, ("/grants", {**GRANT, "subjects": {"sex": names}}, {"key": "k"})
    )
    assert answer[0] == 422
    assert b"no value 'value-0'" in answer[2]
    assert read == []


def test_names_of_nothing_have_no_line(pair: list[World]) -> None:
    """Requests on unknown populations leave no thread behind."""
    quick = pair[0]
    for number in range(20):
        for path in ("/grants", "/invocations", "/grants/g1/commit", "/grants/g1/release"):
            how = {"key": "k", "population": f"nothing-{number}"}
            body = {"release": {"reason": "never ran"}, "commit": {}}.get(path[11:], GRANT)
            answer = send(quick, quick.http, (path, body, how))
            assert answer[0] == 404, answer
    assert [t.name for t in threading.enumerate() if "nothing" in t.name] == []


def test_prices_are_prepared_under_the_terms_in_force(
    pair: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks again for what takes long to price, under other Renyi orders, is priced
    anew before standing in line, not by the writer that all wait for.
    """
    quick, priced = pair[0], []
    ahead = Service.price_ahead

    def noted(self: Service, ledger: str, asked: Any) -> None:
        priced.append(asked.key)
        ahead(self, ledger, asked)

    monkeypatch.setattr(Service, "price_ahead", noted)
    send(quick, quick.http, ("/grants", SLOW, {"key": "first"}))
    send(quick, quick.http, ("/grants", SLOW, {"key": "second"}))
    before = quick.service.terms("fair")
    limits = {"a": "{epsilon: 9, delta: 1e-3}", "b": "{epsilon: 1, delta: 1e-9}"}
    rules = [f"  - {{id: {name}, limit: {limit}}}\n" for name, limit in limits.items()]
    assert quick.policy("policy: p\nrules:\n" + "".join(rules)).status_code == 200
    assert quick.service.terms("fair") != before
    priced.clear()
    send(quick, quick.http, ("/grants", SLOW, {"key": "third"}))
    send(quick, quick.http, ("/grants", SLOW, {"key": "fourth"}))
    assert priced == ["third"]
