"""Bad input at the door: always a 4xx problem that helps, and never a trace in the ledger."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import World, ask, declared, laplace, sparse_vector

GOOD = ask(laplace("0.1"))
POPULATION = {
    "privacy_unit": "person",
    "neighbouring": "replace_one",
    "membership": "public",
    "dimensions": {"sex": ["f", "m"]},
}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[World]:
    """One service for all bad requests: none of them may change it."""
    path = tmp_path_factory.mktemp("door") / "a.db"
    path.write_bytes(empty_database.read_bytes())
    world = World(f"sqlite:///{path}")
    yield world.hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n", {"sex": ["f", "m"]})
    world.close()


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/events/-1", "sequence"),
        ("/decisions/x", "decision"),
        ("/grants/zz", "grant"),
        ("/events?limit=0", "limit"),
        ("/events?limit=many", "limit"),
        ("/report?format=doc", "format"),
    ],
)
def test_a_wrong_part_of_an_address_is_told_as_a_field_is(
    door: World, path: str, field: str
) -> None:
    """In plain words, with the value, and beside the field for a program."""
    problem = door.call("GET", path, who="auditor").json()
    [error] = problem["errors"]
    assert error["field"] == field
    assert error["reason"].startswith("must be ")
    assert "(it is " in error["reason"]
    assert problem["detail"] == f"{field}: {error['reason']}"


def check_refused(
    door: World, answer: Any, before: Any, status: int | None = None
) -> dict[str, Any]:
    """Checks the answer's form and that nothing was recorded; returns the problem."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["type"].startswith("urn:accountant:problem:")
    assert problem["status"] == answer.status_code
    assert len(problem["detail"]) > 10
    assert door.head() == before
    if status is not None:
        assert answer.status_code == status, answer.text
    return problem


def raw(mechanism: str = "", **replaced: str) -> bytes:
    """A grant's body, with parts spelled as given."""
    parts = {"dataset": '"d"', "mechanisms": f"[{mechanism}]" if mechanism else "[]"} | replaced
    return ("{" + ",".join(f'"{k}":{v}' for k, v in parts.items()) + "}").encode()


def lap(scale: str = "10", **more: str) -> str:
    """A Laplace mechanism, with fields spelled as given."""
    fields = {"kind": '"laplace"', "sensitivity": '"1"', "scale": scale} | more
    return "{" + ",".join(f'"{k}":{v}' for k, v in fields.items()) + "}"


BODIES: list[tuple[str, bytes, int | None]] = [
    ("NaN", raw(lap("NaN")), 400),
    ("Infinity", raw(lap("Infinity")), 400),
    ("-Infinity", raw(lap("-Infinity")), 400),
    ("NaN as text", raw(lap('"NaN"')), 422),
    ("Infinity as text", raw(lap('"Infinity"')), 422),
    ("a signalling NaN", raw(lap('"sNaN"')), 422),
    ("a duplicate key", raw(lap(), dataset='"d","dataset":"d"'), 400),
    ("a nested duplicate key", raw(lap("1," + '"scale":2')), 400),
    ("a duplicate key by escapes", raw(lap(), dataset='"d","d\\u0061taset":"e"'), 400),
    ("a scale of zero", raw(lap("0")), 422),
    ("a negative scale", raw(lap("-1")), 422),
    ("a negative zero", raw(lap("-0.0")), 422),
    ("a boolean scale", raw(lap("true")), 422),
    ("a null scale", raw(lap("null")), 422),
    ("a scale that is a list", raw(lap("[1]")), 422),
    ("a scale with spaces", raw(lap('" 1"')), 422),
    ("a scale with underscores", raw(lap('"1_0"')), 422),
    ("a scale in other digits", raw(lap('"١"')), 422),
    ("a hexadecimal scale", raw(lap('"0x1"')), 422),
    ("an empty scale", raw(lap('""')), 422),
    ("a huge exponent", raw(lap("1e400")), 422),
    ("an absurd exponent", raw(lap("1e99999999999999999999999999")), None),
    ("an absurd negative exponent", raw(lap("1e-99999999999999999999999999")), None),
    ("an absurd exponent as text", raw(lap('"1e99999999999999999999999999"')), 422),
    ("a very long number", raw(lap("1" * 5000)), None),
    ("too many digits", raw(lap('"0.' + "1" * 41 + '"')), 422),
    ("a count of zero", raw(lap(count="0")), 422),
    ("a negative count", raw(lap(count="-1")), 422),
    ("a count of 1.0", raw(lap(count="1.0")), 422),
    ("a count of 1e3", raw(lap(count="1e3")), 422),
    ("a count as text", raw(lap(count='"1"')), 422),
    ("a boolean count", raw(lap(count="true")), 422),
    ("a null count", raw(lap(count="null")), 422),
    ("a huge count", raw(lap(count="1000000001")), 422),
    ("an enormous count", raw(lap(count="9" * 99)), 422),
    ("no sensitivity", raw('{"kind":"laplace","scale":"1"}'), 422),
    ("the wrong norm", raw(lap(sensitivity='{"l2":"1"}')), 422),
    ("an unknown norm", raw(lap(sensitivity='{"l3":"1"}')), 422),
    ("an empty norm", raw(lap(sensitivity="{}")), 422),
    ("an unknown field", raw(lap(noise='"1"')), 422),
    ("an unknown field above", raw(lap(), colour='"red"'), 422),
    ("a path's field in the body", raw(lap(), population='"fair"'), 422),
    ("an unknown kind", raw('{"kind":"laplas","scale":"1"}'), 422),
    ("a kind that is a number", raw('{"kind":1}'), 422),
    ("no kind", raw('{"scale":"1"}'), 422),
    ("no mechanism", raw(), 422),
    ("no mechanisms", b'{"dataset":"d"}', 422),
    ("mechanisms that are an object", raw(lap(), mechanisms="{}"), 422),
    ("too many mechanisms", raw(",".join([lap()] * 201)), 422),
    ("an unknown relation", raw(lap(neighbouring='"both"')), 422),
    ("a negative claim", raw(lap(claimed='{"epsilon":"-1"}')), 422),
    ("a claim without epsilon", raw(lap(claimed='{"delta":"0.1"}')), 422),
    ("a claim of delta 2", raw(lap(claimed='{"epsilon":"1","delta":"2"}')), 422),
    ("an unknown dataset", raw(lap(), dataset='"nowhere"'), 422),
    ("a dataset that is no name", raw(lap(), dataset='"../d"'), 422),
    ("a dataset that is a number", raw(lap(), dataset="1"), 422),
    ("no dataset", b'{"mechanisms":[' + lap().encode() + b"]}", 422),
    ("an unknown dimension", raw(lap(), subjects='{"age":["17"]}'), 422),
    ("an unknown value", raw(lap(), subjects='{"sex":["x"]}'), 422),
    ("an empty list of values", raw(lap(), subjects='{"sex":[]}'), 422),
    ("an empty union", raw(lap(), subjects="[]"), 422),
    ("a value that is a number", raw(lap(), subjects='{"sex":[1]}'), 422),
    ("a value that is no list", raw(lap(), subjects='{"sex":"f"}'), 422),
    ("half a range", raw(lap(), subjects='{"sex":{"from":"f"}}'), 422),
    ("a turned range", raw(lap(), subjects='{"sex":{"from":"m","to":"f"}}'), 422),
    ("a nested union", raw(lap(), subjects='[[{"sex":["f"]}]]'), 422),
    ("too many terms", raw(lap(), subjects="[" + ",".join(['{"sex":["f"]}'] * 101) + "]"), 422),
    ("a time to live of zero", raw(lap(), ttl_seconds="0"), 422),
    ("a time to live of 1.5", raw(lap(), ttl_seconds="1.5"), 422),
    ("a boolean time to live", raw(lap(), ttl_seconds="true"), 422),
    ("a time to live of a year", raw(lap(), ttl_seconds="31536000"), 422),
    ("an empty purpose", raw(lap(), purpose='""'), 422),
    ("a long purpose", raw(lap(), purpose='"' + "p" * 2001 + '"'), 422),
    ("a purpose that is a number", raw(lap(), purpose="1"), 422),
    ("half of a surrogate pair", raw(lap(), purpose='"\\ud800"'), 400),
    ("half of a pair as a key", raw(lap())[:-1] + b',"\\ud800":1}', 400),
    ("a NUL", raw(lap(), purpose='"a\\u0000b"'), 400),
    ("a raw control character", raw(lap(), purpose='"a\x01b"'), 400),
    ("invalid UTF-8", b'{"dataset":"\xff"}', 400),
    ("UTF-16", json.dumps(GOOD).encode("utf-16"), 400),
    ("a byte order mark", b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), 400),
    ("overlong UTF-8", b'{"dataset":"\xc0\xaf"}', 400),
    ("a list", b"[]", 400),
    ("a word", b'"d"', 400),
    ("a number", b"1", 400),
    ("null", b"null", 400),
    ("no JSON", b"dataset=d", 400),
    ("half a document", b'{"dataset":', 400),
    ("two documents", b"{}{}", 400),
    ("a trailing comma", b'{"dataset":"d",}', 400),
    ("a comment", b'{"dataset":"d"/**/}', 400),
    ("single quotes", b"{'dataset':'d'}", 400),
    ("nothing", b"", 422),
    ("white space", b"  \n", 422),
    ("nesting of 40", b'{"a":' * 40 + b"1" + b"}" * 40, 400),
    ("nesting of 100000", b"[" * 100_000 + b"]" * 100_000, 400),
    ("deep subjects", raw(lap(), subjects='{"sex":' + "[" * 20 + "]" * 20 + "}"), 422),
]
SPENDING = ["/grants", "/invocations", "/preview"]


@pytest.mark.parametrize("path", SPENDING)
@pytest.mark.parametrize(("body", "status"), [r[1:] for r in BODIES], ids=[r[0] for r in BODIES])
def test_bad_bodies_are_refused(door: World, path: str, body: bytes, status: int | None) -> None:
    """A body that is not exactly right is a 4xx problem with a detail, and nothing is recorded."""
    if path == "/invocations" and b"ttl_seconds" in body:
        status = 422
    check_refused(door, door.post(path, body), door.head(), status)


PUTS: list[tuple[str, str, Any]] = [
    ("another unit", "", POPULATION | {"privacy_unit": "household"}),
    ("another relation", "", POPULATION | {"neighbouring": "add_or_remove_one"}),
    ("an unknown relation", "", POPULATION | {"neighbouring": "none"}),
    ("a value fewer", "", POPULATION | {"dimensions": {"sex": ["f"]}}),
    ("a value twice", "", POPULATION | {"dimensions": {"sex": ["f", "m", "m"]}}),
    ("a dimension name with spaces", "", POPULATION | {"dimensions": {"a b": ["f"]}}),
    ("a dimension without values", "", POPULATION | {"dimensions": {"sex": []}}),
    ("a value that is a number", "", POPULATION | {"dimensions": {"sex": ["f", "m", 1]}}),
    (
        "too many cells",
        "",
        POPULATION | {"dimensions": {f"d{i}": [*"012345678"] for i in range(9)}},
    ),
    ("nine dimensions", "", POPULATION | {"dimensions": {f"d{i}": ["0"] for i in range(9)}}),
    ("attested by a word", "", POPULATION | {"attested_new": "yes"}),
    ("attested by a number", "", POPULATION | {"attested_new": 1}),
    ("an unknown field", "", POPULATION | {"size": 5}),
    ("nothing", "", {}),
    ("another name", "/datasets/d", {"namespace": "n", "name": "other"}),
    ("no name", "/datasets/x", {"namespace": "n"}),
    ("an id in the body", "/datasets/x", {"namespace": "n", "name": "x", "id": "x"}),
    ("an upper-case id", "/datasets/X", {"namespace": "n", "name": "x"}),
    ("an id too long", "/datasets/" + "x" * 65, {"namespace": "n", "name": "x"}),
    ("no YAML", "/policy", b"rules: ["),
    ("no UTF-8", "/policy", b"policy: \xff"),
    ("no policy", "/policy", b""),
    ("an alias within itself", "/policy", b"policy: p\nrules: &x [*x]\n"),
]


@pytest.mark.parametrize(("path", "body"), [r[1:] for r in PUTS], ids=[r[0] for r in PUTS])
def test_bad_registrations_are_refused(door: World, path: str, body: Any) -> None:
    """Populations, datasets and policies that contradict the registered ones leave no trace."""
    check_refused(door, door.put(path, body), door.head())


GETS = [
    "/events?after=-2",
    "/events?after=1.5",
    "/events?after=x",
    "/events?after=" + "9" * 30,
    "/events?limit=0",
    "/events?limit=100000",
    "/events/-1",
    "/events/99",
    "/events/" + "9" * 30,
    "/decisions/d99",
    "/decisions/d0",
    "/decisions/x",
    "/decisions/d" + "9" * 30,
    "/grants/g99",
    "/grants/0",
    "/grants/g-1",
    "/accounts?by=age",
    "/accounts?dataset=nowhere",
    "/report?format=exe",
    "/nowhere",
    "/%00",
    "/grants/%ff",
]


@pytest.mark.parametrize("path", GETS)
def test_bad_questions_are_refused(door: World, path: str) -> None:
    """Names and numbers in the path that do not exist are problems too."""
    check_refused(door, door.get(path), door.head())


@pytest.mark.parametrize("name", ["X", "_service", "a b", "..", "x" * 65, "%2e%2e", "é", "a%2fb"])
def test_bad_population_names_are_refused(door: World, name: str) -> None:
    """The service's own ledger cannot be reached as a population, nor can odd names."""
    headers = door.auth("admin")
    for method, path in (("GET", ""), ("PUT", ""), ("GET", "/events"), ("GET", "/accounts")):
        answer = door.http.request(
            method, f"/v1/populations/{name}{path}", headers=headers, json=POPULATION
        )
        check_refused(door, answer, door.head())
    assert "_service" not in door.service.populations()


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("path", ["/grants", "/invocations", "/grants/g4/commit"])
def test_oversized_bodies_are_refused(door: World, path: str, chunked: bool) -> None:
    """A body over a megabyte is a 413, whether or not it says so beforehand."""
    body = b'{"purpose":"' + b"x" * 1_000_001 + b'"}'
    content: Any = (body[i : i + 65_536] for i in range(0, len(body), 65_536)) if chunked else body
    headers = door.auth("pipeline") | {"Idempotency-Key": "big"}
    answer = door.http.post(f"/v1/populations/fair{path}", headers=headers, content=content)
    assert check_refused(door, answer, door.head(), 413)["type"].endswith("body-too-large")


def test_a_lie_about_the_length_is_no_way_in(door: World) -> None:
    """A Content-Length that is no number is refused."""
    for length in ("-1", "1e3", "x", "9" * 30):
        head = f"POST /v1/populations/fair/grants HTTP/1.1\r\nHost: x\r\nContent-Length: {length}"
        with socket.create_connection(("127.0.0.1", door.http.port), timeout=10) as connection:
            connection.sendall(head.encode() + b"\r\n\r\n{}")
            assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""]
)
def test_the_content_type_does_not_change_what_is_read(door: World, content_type: str) -> None:
    """Bodies are read as JSON under every Content-Type; other bodies are refused."""
    before = door.head()
    headers = {"Content-Type": content_type}
    check_refused(door, door.post("/grants", b"dataset=d", headers=headers), before, 400)
    answer = door.post("/preview", json.dumps(GOOD).encode(), headers=headers)
    assert answer.status_code in (200, 415)
    assert door.head() == before


@pytest.mark.parametrize("key", ["", "x" * 201, "caf\xe9", "a\tb"])
def test_malformed_idempotency_keys_are_refused(door: World, key: str) -> None:
    """An idempotency key is visible ASCII of a bounded length."""
    headers = door.auth("pipeline") | {"Idempotency-Key": key.encode("latin-1")}  # type: ignore[dict-item]
    answer = door.http.post("/v1/populations/fair/grants", headers=headers, json=GOOD)
    check_refused(door, answer, door.head(), 400)


@pytest.mark.parametrize("path", ["/grants", "/invocations", "/sparse-vector"])
def test_spending_without_a_key_is_refused(door: World, path: str) -> None:
    """Calls that can spend require an idempotency key."""
    body = GOOD if path != "/sparse-vector" else {"dataset": "d", "mechanism": sparse_vector()}
    answer = door.http.post(f"/v1/populations/fair{path}", headers=door.auth("pipeline"), json=body)
    assert check_refused(door, answer, door.head(), 400)["type"].endswith(
        "idempotency-key-required"
    )


def test_numbers_are_kept_as_they_are_spelled(world: Callable[..., World]) -> None:
    """0.30000000000000000001 is not 0.3, neither as a number nor as text, and costs a unit more."""
    made = world().hospital()
    for spelled in ("0.30000000000000000001", '"0.30000000000000000001"'):
        answer = made.post("/grants", raw(lap("1", sensitivity=spelled)))
        assert answer.json()["charge"]["epsilon"] == "0.300000001"
    event = json.loads(made.stored()[-1])
    assert event["command"]["mechanisms"][0]["sensitivity"] == "0.30000000000000000001"
    assert (
        made.post("/grants", raw(lap("1", sensitivity="0.3"))).json()["charge"]["epsilon"] == "0.3"
    )


def test_malformed_requests_consume_no_key(world: Callable[..., World]) -> None:
    """After a malformed request its key is still free for the right one."""
    made = world().hospital()
    assert made.post("/grants", b"{", key="k").status_code == 400
    assert made.post("/grants", ask(laplace("0")), key="k").status_code == 422
    assert made.post("/grants", GOOD, key="k").status_code == 201


# -- anything at all -------------------------------------------------------------------------

words = st.sampled_from(
    [
        "d",
        "fair",
        "laplace",
        "gaussian",
        "declared",
        "sparse_vector",
        "f",
        "sex",
        "g4",
        "x",
        "",
        "é",
    ]
)
numbers = st.sampled_from(
    ["1", "0.1", "-1", "0", "1e-6", "1e30", "NaN", "1e31", "0.30000000000000001"]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | words
    | numbers
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
names = st.sampled_from(
    [
        "dataset",
        "mechanisms",
        "mechanism",
        "subjects",
        "purpose",
        "kind",
        "sensitivity",
        "scale",
        "count",
        "claimed",
        "epsilon",
        "delta",
        "l1",
        "l2",
        "sex",
        "from",
        "to",
        "neighbouring",
        "ttl_seconds",
        "positives",
        "negatives",
        "reason",
        "grant",
        "max_positives",
        "threshold_scale",
        "comparison_scale",
        "releases",
        "namespace",
        "name",
        "parents",
        "dimensions",
        "membership",
        "policy",
        "privacy_unit",
        "attested_new",
        "id",
        "rules",
        "limit",
        "ran_at",
    ]
)
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | words, inner, max_size=5),
    max_leaves=12,
)
SEEDS: dict[str, dict[str, Any]] = {
    "/grants": GOOD | {"subjects": {"sex": ["f"]}, "ttl_seconds": 60},
    "/invocations": ask(laplace("0.1"), declared("0.1", "1e-9"), ran_at="2026-01-01T00:00:00Z"),
    "/preview": GOOD,
    "/sparse-vector": {"dataset": "d", "mechanism": sparse_vector()},
    "/sparse-vector/g4/answers": {"positives": 1, "negatives": 1},
    "/sparse-vector/g4/close": {},
    "/grants/g4/commit": {"mechanisms": [laplace("0.1")]},
    "/grants/g4/release": {"reason": "x"},
}


@st.composite
def mutated(draw: Any, seed: Any) -> Any:
    """A good body with some part of it replaced by anything."""
    if isinstance(seed, dict) and seed and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(seed)))
        return seed | {key: draw(mutated(seed[key]))}
    if isinstance(seed, list) and seed and draw(st.booleans()):
        return [draw(mutated(seed[0])), *seed[1:]]
    return draw(documents)


fuzzing = settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("path", sorted(SEEDS))
@fuzzing
@given(data=st.data())
def test_no_body_breaks_a_post(door: World, path: str, data: st.DataObject) -> None:
    """No posted body leads to a 5xx."""
    body = data.draw(mutated(SEEDS[path]))
    answer = door.post(path, json.dumps(body).encode(), key=data.draw(st.text("kl", max_size=3)))
    assert answer.status_code < 500, answer.text
    answer.json()


@pytest.mark.parametrize("path", ["", "/datasets/d", "/datasets/e", "/policy"])
@fuzzing
@given(data=st.data())
def test_no_body_breaks_a_put(door: World, path: str, data: st.DataObject) -> None:
    """No body that is put leads to a 5xx."""
    seeds = {
        "": POPULATION,
        "/policy": {
            "policy": "p",
            "rules": [{"id": "a", "limit": {"epsilon": "1", "delta": "1e-6"}}],
        },
    }
    body = data.draw(mutated(seeds.get(path, {"namespace": "n", "name": "d"})))
    answer = door.put(path, json.dumps(body).encode())
    assert answer.status_code < 500, answer.text
    answer.json()


@fuzzing
@given(st.binary(max_size=60), st.sampled_from(["/grants", "/grants/g4/commit", "/policy"]))
def test_no_bytes_break_anything(door: World, body: bytes, path: str) -> None:
    """No bytes lead to a 5xx."""
    answer = door.put(path, body) if path == "/policy" else door.post(path, body)
    assert answer.status_code < 500, answer.text


@fuzzing
@given(
    st.text("0123456789abcdefgé%./?&=-_ ", max_size=20),
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
)
def test_no_path_breaks_anything(door: World, path: str, method: str) -> None:
    """No path and method lead to a 5xx."""
    headers = door.auth("admin") | {"Idempotency-Key": "p"}
    answer = door.http.request(method, f"/v1/populations/fair/{path}", headers=headers)
    assert answer.status_code < 500, answer.text


def test_an_encoded_body_is_refused(door: World) -> None:
    """A body with a Content-Encoding is refused."""
    headers = {"Content-Encoding": "gzip"}
    answer = door.post("/grants", json.dumps(GOOD).encode(), headers=headers)
    assert check_refused(door, answer, door.head(), 415)["type"].endswith("encoded-body")


def test_a_large_body_with_a_duplicate_key_is_refused_quickly(door: World) -> None:
    """Finding the key that is given twice takes time in proportion to the body."""
    keys = ",".join(f'"k{i}":0' for i in range(60_000))
    started = time.process_time()
    problem = check_refused(door, door.post("/grants", f'{{{keys},"k1":1}}'), door.head(), 400)
    assert "'k1'" in problem["detail"]
    assert time.process_time() - started < 3
