"""Roles and their calls, the validity of keys, and idempotency."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support import ROLES, World, ask, gaussian, laplace, last_replay, sparse_vector

from accountant.auth.keys import key_digest
from accountant.budget.errors import Conflict, Invalid

GOOD = ask(laplace("0.1"))
SESSION = {"dataset": "d", "mechanism": sparse_vector()}
POLICY = "policy: p\nrules:\n  - {id: a, limit: {epsilon: 1}}\n"
POPULATION = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}

CALLS: list[tuple[str, str, Any, str]] = [
    # method, path, body, the roles that may call: admin, pipeline, officer, auditor
    ("PUT", "", POPULATION, "a"),
    ("GET", "", None, "apou"),
    ("PUT", "/datasets/e", {"namespace": "n", "name": "e"}, "a"),
    ("PUT", "/policy", POLICY, "a"),
    ("POST", "/grants", GOOD, "ap"),
    ("GET", "/grants", None, "apou"),
    ("GET", "/grants/g4", None, "apou"),
    ("POST", "/grants/g4/commit", {}, "ap"),
    ("POST", "/grants/g4/release", {"reason": "x"}, "ap"),
    ("POST", "/invocations", GOOD, "ap"),
    ("POST", "/preview", GOOD, "apo"),
    ("POST", "/sparse-vector", SESSION, "ap"),
    ("POST", "/sparse-vector/g5/answers", {"positives": 1, "negatives": 0}, "ap"),
    ("POST", "/sparse-vector/g5/close", {}, "ap"),
    ("GET", "/proposals", None, "aou"),
    ("GET", "/proposals/2", None, "aou"),
    ("POST", "/proposals/2/confirm", {"digest": "0" * 64}, "ao"),
    ("POST", "/proposals/2/decline", {"reason": "x"}, "ao"),
    ("GET", "/approvals", None, "aou"),
    ("GET", "/approvals/g4", None, "aou"),
    ("POST", "/approvals/g4/approve", {"digest": "0" * 64}, "ao"),
    ("POST", "/approvals/g4/decline", {"digest": "0" * 64, "reason": "x"}, "ao"),
    ("GET", "/accounts", None, "apou"),
    ("GET", "/report?format=json", None, "aou"),
    ("GET", "/events", None, "aou"),
    ("GET", "/events/0", None, "apou"),
    ("GET", "/decisions/d4", None, "apou"),
    ("GET", "/decisions/d4/exhausted", None, "apou"),
    ("GET", "/receipts/4", None, "apou"),
    ("POST", "/events/4/erase", {"reason": "x"}, "ao"),
    ("GET", "/evidence", None, "aou"),
    ("GET", "/log/checkpoint", None, "aou"),
    ("GET", "/log/tile/0/000.p/6", None, "aou"),
    ("GET", "/log/tile/entries/000.p/6", None, "aou"),
]
MAY = ("no-approval-needed", "not-your-grant", "proposal-digest", "proposal-closed")
LETTERS = dict(zip("apou", ROLES, strict=True))


@pytest.fixture(scope="module")
def left(
    empty_database: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """The home of a service with a policy of epsilon 1, the grant g4 and the session g5 of the
    pipeline's, and a published checkpoint; and its secrets.
    """
    home = tmp_path_factory.mktemp("hospital")
    shutil.copy(empty_database, home / "accountant.db")
    made = World(f"sqlite:///{home}/accountant.db").hospital()
    assert made.post("/grants", GOOD | {"purpose": "ops"}).json()["id"] == "g4"
    assert made.post("/sparse-vector", SESSION).json()["id"] == "g5"
    made.publisher.publish("fair")
    made.close()
    return home, made.secrets


@pytest.fixture
def hospital(left: tuple[Path, dict[str, str]], tmp_path: Path) -> Iterator[World]:
    """That service on a home of this test's own."""
    home = shutil.copytree(left[0], tmp_path / "home")
    made = World(f"sqlite:///{home}/accountant.db", secrets=left[1])
    yield made
    made.close()


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize(("method", "path", "body", "allowed"), CALLS)
def test_each_role_may_call_what_it_may(
    hospital: World, method: str, path: str, body: Any, allowed: str, letter: str
) -> None:
    """A call by a role that may not make it is a 403 and leaves no trace; else it gets through."""
    before = hospital.head()
    answer = hospital.call(method, path, body, who=LETTERS[letter])
    code = answer.json().get("type", "") if answer.status_code >= 400 else ""
    if letter in allowed:
        # Another client's grant may still be none of the caller's business.
        assert answer.status_code < 400 or code.endswith(MAY), answer.text
    else:
        assert (answer.status_code, code) == (403, "urn:accountant:problem:role-not-allowed")
        assert hospital.head() == before


@pytest.mark.parametrize(("method", "path", "body", "allowed"), CALLS)
def test_without_a_valid_key_nothing_is_answered(
    hospital: World, method: str, path: str, body: Any, allowed: str
) -> None:
    """No key, a wrong key, a digest, another scheme or a revoked key: 401 for every body."""
    before = hospital.head()
    revoked = hospital.new_key("old", "admin")
    hospital.service.credentials.revoke("old", "test")
    secret = hospital.secrets["admin"]
    digest = key_digest(secret)
    for header in (
        None,
        "",
        "Bearer",
        f"Bearer {revoked}",
        f"Bearer {digest}",
        f"Bearer {secret[:-1]}",
        f"Bearer {secret}x",
        f"Bearer {secret.lower()}",
        f"Basic {secret}",
        secret,
    ):
        headers = {"Idempotency-Key": "x"} | ({} if header is None else {"Authorization": header})
        for content in (json.dumps(body), "{", None):
            answer = hospital.http.request(
                method, f"/v1/populations/fair{path}", headers=headers, content=content
            )
            assert answer.status_code == 401, (header, content, answer.text)
            assert "bearer" in answer.headers["www-authenticate"].lower()
            assert secret not in answer.text
    assert hospital.head() == before


def test_grants_belong_to_their_key(hospital: World) -> None:
    """Even an administrator cannot settle another key's grant."""
    before = hospital.head()
    for path, body in (
        ("/grants/g4/commit", {}),
        ("/grants/g4/release", {"reason": "x"}),
        ("/sparse-vector/g5/answers", {"positives": 1, "negatives": 0}),
        ("/sparse-vector/g5/close", {}),
    ):
        answer = hospital.post(path, body, who="admin")
        assert answer.status_code == 403, path
    assert hospital.head() == before


def test_loosening_takes_another_person(hospital: World) -> None:
    """It is proposed: another admin or officer confirms it in a request of their own."""
    looser = "policy: p\nrules:\n  - {id: a, limit: {epsilon: 2}}\n"
    answer = hospital.put("/policy?proposal_days=3", looser)
    assert answer.status_code == 202
    told = answer.json()
    assert "a is raised or changed" in told["why"]
    before = hospital.head()
    codes = {"admin": "same-person", "pipeline": "role-not-allowed", "auditor": "role-not-allowed"}
    for who, code in codes.items():
        refused = hospital.confirm(answer, who=who)
        assert refused.json()["type"].endswith(f":{code}"), who
    hospital.secrets["other"] = hospital.new_key("other", "admin", by="admin")
    assert hospital.confirm(answer, who="other").json()["type"].endswith(":key-too-new")
    assert hospital.head() == before
    assert hospital.put("/policy?proposal_days=3", looser).json() == told
    confirmed = hospital.confirm(answer, key="once")
    assert confirmed.status_code == 200
    assert hospital.confirm(answer, key="once").json() == confirmed.json()
    confirms = json.loads(hospital.stored()[-1])["command"]["confirms"]
    assert (confirms["proposer"], confirms["key"]["role"]) == ("admin", "officer")
    for secret in hospital.secrets.values():
        assert all(secret.encode() not in body for body in hospital.stored())


def test_proposals_are_read_and_declined(hospital: World) -> None:
    """Those that can be confirmed come first; pipelines see none."""
    texts = [f"policy: p\nrules:\n  - {{id: a, limit: {{epsilon: {n}}}}}\n" for n in (2, 3)]
    first, second = (hospital.put("/policy", text).json() for text in texts)
    path = f"/proposals/{second['proposal']}"
    assert hospital.get(path, who="auditor").json() == second
    reason = {"reason": "not this year"}
    assert hospital.post(f"{path}/decline", reason, who="pipeline").status_code == 403
    declined = hospital.post(f"{path}/decline", reason, who="officer").json()
    assert (declined["state"], declined["event"]) == ("declined", "change.declined.v1")
    listed = hospital.get("/proposals").json()["proposals"]
    found = [(one["proposal"], one["state"]) for one in listed]
    assert found[:2] == [(first["proposal"], "proposed"), (second["proposal"], "declined")]
    assert hospital.get("/proposals?state=proposed").json()["proposals"] == [first]
    assert hospital.get("/proposals", who="pipeline").status_code == 403
    gone = hospital.post(f"{path}/confirm", {"digest": second["digest"]}, who="officer")
    assert gone.json()["type"].endswith(":proposal-closed")
    assert hospital.get("/proposals/0").json()["type"].endswith(":unknown-proposal")


RETRIED: list[tuple[str, Any]] = [
    ("/grants", GOOD),
    ("/grants", GOOD | {"purpose": "ops", "justification": "because"}),
    ("/grants", ask(laplace("5"))),
    ("/grants", ask(laplace("0.1", claimed={"epsilon": "0.01"}))),
    ("/invocations", GOOD),
    ("/invocations", ask(laplace("5"))),
    ("/sparse-vector", SESSION),
    ("/sparse-vector/g5/answers", {"positives": 1, "negatives": 2}),
    ("/sparse-vector/g5/close", {}),
    ("/grants/g4/commit", {}),
    ("/grants/g4/release", {"reason": "x"}),
]


def recorded(answer: Any) -> Any:
    """An answer without `would_fit`, which depends on the moment."""
    body = answer.json()
    if body.pop("would_fit", None):
        body["detail"], _, advice = body["detail"].rpartition("; ")
        assert advice.startswith("it would fit now")
    return body


@pytest.mark.parametrize(("path", "body"), RETRIED)
def test_a_retry_gets_the_first_answer(hospital: World, path: str, body: Any) -> None:
    """The same key and body give the same status and the same bytes; a refusal tells the same, but
    for what would fit.
    """
    first = hospital.post(path, body, key="k")
    after = hospital.head()
    hospital.post("/invocations", ask(laplace("0.5")))  # the world moves on
    later = hospital.head()
    for spelled in (body, json.dumps(body, indent=3)):
        again = hospital.post(path, spelled, key="k")
        assert (again.status_code, recorded(again)) == (first.status_code, recorded(first))
        assert first.status_code == 403 or again.content == first.content
        assert again.headers["idempotent-replay"] == "true"
    assert "idempotent-replay" not in first.headers
    assert after.size + 1 == later.size
    assert hospital.head() == later


@pytest.mark.parametrize(("path", "body"), RETRIED)
def test_a_key_is_good_for_one_request(hospital: World, path: str, body: Any) -> None:
    """The same key with another body, or at another call, is an error and changes nothing."""
    hospital.post(path, body, key="k")
    before = hospital.head()
    for other_path, other in (
        ("/grants", ask(laplace("0.2"))),
        ("/invocations", ask(laplace("0.3"))),
    ):
        answer = hospital.post(other_path, other, key="k")
        assert answer.status_code == 422
        assert answer.json()["type"].endswith("idempotency-key-reused")
    assert hospital.head() == before


def test_a_refusal_stays_refused(hospital: World) -> None:
    """A retry cannot turn a refusal into a grant, not even when there is room again."""
    big = ask(laplace("0.8"))
    assert hospital.post("/grants", big, key="k").status_code == 403
    hospital.post("/grants/g4/release", {"reason": "x"})
    hospital.post("/sparse-vector/g5/close", {})
    assert hospital.post("/grants", big, key="k").status_code == 403
    assert hospital.post("/grants", big, key="another").status_code == 201


def test_a_refusal_tells_what_would_fit(hospital: World) -> None:
    """It begins with the comparison that failed, both sides, and ends with what is granted when it
    is asked for; a retry tells of now, and is the same refusal.
    """
    big = ask({"kind": "laplace", "sensitivity": "1", "scale": "5", "count": 8})
    refused = hospital.post("/grants", big, key="k").json()
    assert refused["would_fit"] == {"count": 3, "scale": "11.5"}
    assert refused["detail"] == (
        "refused by rule a: epsilon 0.3 used + 1.6 asked = 1.9 is more than the limit 1 "
        "(dataset d); it would fit now with count 3, or with scale 11.5 or more"
    )
    assert hospital.post("/grants", ask(big["mechanisms"][0] | {"count": 3})).status_code == 201
    later = hospital.post("/grants", big, key="k").json()
    assert later["would_fit"] == {"scale": "80"}
    assert (later["sequence"], later["decision"]) == (refused["sequence"], refused["decision"])
    vague = hospital.post("/grants", ask({"kind": "non_private"})).json()
    assert "would_fit" not in vague


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """The answers of calls that start at the same moment."""
    start = threading.Barrier(len(calls))
    answers: list[Any] = [None] * len(calls)

    def run(i: int) -> None:
        start.wait()
        answers[i] = calls[i]()

    threads = [threading.Thread(target=run, args=[i]) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.parametrize("epsilon", ["0.1", "5"])
def test_sixteen_retries_at_once_are_one_request(hospital: World, epsilon: str) -> None:
    """Identical retries that arrive together are charged once and all get the same bytes."""
    before = hospital.head().size
    body = ask(laplace(epsilon))
    answers = together([lambda: hospital.post("/grants", body, key="same")] * 16)
    assert len({answer.content for answer in answers}) == 1
    assert len([a for a in answers if "idempotent-replay" not in a.headers]) == 1
    assert hospital.head().size == before + 1


def test_racing_clients_never_overspend(hospital: World) -> None:
    """Sixteen clients that want ten hundredths use up the budget to the last unit, and no more."""
    hospital.post("/grants/g4/release", {"reason": "x"})
    hospital.post("/grants/g5/release", {"reason": "x"})

    def client(n: int) -> list[int]:
        return [
            hospital.post("/grants", ask(laplace("0.01")), key=f"{n}-{i}").status_code
            for i in range(10)
        ]

    statuses = [s for found in together([lambda n=n: client(n) for n in range(16)]) for s in found]
    assert (statuses.count(201), statuses.count(403)) == (100, 60)
    assert hospital.used()[0][0] == 10**9
    assert last_replay("fair", hospital.stored()).findings == []


def test_settling_at_once_settles_once(hospital: World) -> None:
    """Commit and release that race: one wins, the others are told so."""
    calls = [lambda: hospital.post("/grants/g4/commit", {})] * 4
    calls += [lambda: hospital.post("/grants/g4/release", {"reason": "x"})] * 4
    statuses = sorted(answer.status_code for answer in together(calls))
    assert statuses == [200] + [409] * 7


def test_what_is_shown_is_what_is_stored(hospital: World) -> None:
    """Events are served as the canonical bytes that their leaves are the hashes of."""
    listed = hospital.get("/events?limit=1000").json()
    stored = hospital.stored()
    leaves = [sha256(b"\x00" + body).hexdigest() for body in stored]
    assert [row["leaf"] for row in listed["events"]] == leaves
    for row, body in zip(listed["events"], stored, strict=True):
        assert hospital.get(f"/events/{row['event']['sequence']}").content == body
    page = hospital.get("/events?after=1&limit=2").json()
    assert [row["event"]["sequence"] for row in page["events"]] == [2, 3]
    assert hospital.get(f"/events?after={len(stored)}").json()["events"] == []


def test_accounts_agree_with_decisions(hospital: World) -> None:
    """The sums of the accounts are those that the last decision compared."""
    hospital.post("/grants/g4/commit", {})
    [line] = hospital.get("/accounts").json()["accounts"]
    assert (line["total"]["spent"], line["total"]["reserved"]) == ("0.1", "0.2")
    assert line["total"]["remaining"] == "0.7"
    refused = hospital.post("/grants", ask(laplace("0.8"))).json()
    assert refused["decision"]["rules"][0]["spent_before"] == "0.3"
    assert hospital.post("/preview", ask(laplace("0.7"))).json()["fits"] == 1


@pytest.mark.parametrize("name", ["", ":accountant", " ", "a b", "a\n", "x" * 65, "é", "*", "\x00"])
def test_a_key_has_a_proper_name(hospital: World, name: str) -> None:
    """A client cannot have the name of the service, an empty name, or a wildcard."""
    with pytest.raises(Invalid):
        hospital.service.credentials.create(name, "pipeline", "test")
    with pytest.raises(Conflict):
        hospital.service.credentials.create("pipeline", "admin", "test")


def test_health_needs_no_key(hospital: World) -> None:
    """Health and readiness need no key; every other call does."""
    assert hospital.http.get("/healthz").status_code == 200
    assert hospital.http.get("/readyz").status_code == 200
    for path in ("/v1", "/v1/populations", "/nowhere"):
        assert hospital.http.get(path).status_code in (401, 404)
    answer = hospital.http.delete("/v1/populations/fair")
    assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")


def test_tiny_and_huge_limits_can_be_shown(world: Callable[..., World]) -> None:
    """The smallest and the largest limit that a policy may state can be previewed and shown."""
    made = world().hospital(
        "  - {id: a, limit: {epsilon: 1e-9, delta: 1e-20}}\n"
        "  - {id: b, limit: {epsilon: 1000000, delta: 0.999999}}\n"
    )
    assert made.post("/preview", ask(laplace("1e-9"))).json()["fits"] == 1
    assert made.post("/grants", ask(laplace("1e-9"))).status_code == 201
    assert made.post("/invocations", ask({"kind": "non_private"})).status_code == 201
    assert made.get("/accounts").status_code == 200
    assert made.post("/preview", ask(laplace("1"))).json()["fits"] == 0


def test_a_decision_names_what_used_the_budget_up(world: Callable[..., World]) -> None:
    """An officer sees the charges behind a refusal, the largest first; a pipeline does not."""
    made = world().hospital(
        "  - {id: a, limit: {epsilon: 1}}\n  - {id: t, of: a, at: 10%}\n", {"sex": ["f", "m"]}
    )
    made.post("/grants", ask(laplace("0.1"), subjects={"sex": ["f"]}, purpose="small"))
    released = made.post("/grants", ask(laplace("0.2"))).json()["id"]
    made.post(f"/grants/{released}/release", {"reason": "never run"})
    made.post("/grants", ask(laplace("0.9"), subjects={"sex": ["m"]}, purpose="elsewhere"))
    made.post("/invocations", ask(laplace("0.8"), subjects={"sex": ["f"]}, purpose="large"))
    for _ in range(25):
        made.post("/grants", ask(laplace("0.001"), subjects={"sex": ["f"]}))
    refusal = made.post("/grants", ask(laplace("0.5"), subjects={"sex": ["f"]})).json()
    path = f"/decisions/{refusal['decision']['id']}"
    first, second = made.get(path, who="officer").json()["used_up_by"]
    assert (first["rule"], second["rule"]) == ("a", "t")
    assert first["events"] == second["events"]
    rows = [(e["purpose"], e["state"], e["epsilon"]) for e in first["events"]]
    assert rows[:2] == [("large", "recorded", "0.8"), ("small", "reserved", "0.1")]
    assert {row[2] for row in rows[2:]} == {"0.001"}
    assert (len(rows), first["left_out"]) == (20, 7)
    assert "used_up_by" not in made.get(path, who="pipeline").json()


def test_a_decision_is_read_without_the_ledger(world: Callable[..., World]) -> None:
    """What used a budget up can be left out; all else of the decision is the same."""
    made = world().hospital()
    refusal = made.post("/grants", ask(laplace("9"))).json()
    path = f"/decisions/{refusal['decision']['id']}"
    whole = made.get(path, who="officer").json()
    assert whole.pop("used_up_by")
    assert made.get(f"{path}?used_up_by=no", who="officer").json() == whole
    assert made.get(f"{path}?used_up_by=maybe", who="officer").status_code == 422


def test_a_policy_tells_who_can_use_up_how_much(world: Callable[..., World]) -> None:
    """The answer to an adoption says it, and so does a proposal, of contexts too."""
    made = world().hospital("  - {id: a, limit: {epsilon: 2}}\n")
    lines = "policy: p\nrules:\n  - {id: a, limit: {epsilon: 2}}\n"
    adopted = made.put("/policy", lines + "  - {id: q, clients: [x], limit: {epsilon: 1}}\n").json()
    assert adopted["depletion"] == [
        {
            "rule": "q",
            "of": "a",
            "accounts": 1,
            "each": "1/2",
            "together": "1/2",
            "left": "1/2",
            "text": "q: can use up at most 50 % of limit a on each cell: 50 % stays for others",
        }
    ]
    assert "relaxed" not in adopted
    more = "relaxed: [{when: {purposes: [alarm]}, epsilon: 3, why: x}]"
    proposal = made.put("/policy", lines.replace("2}}", f"2}}, {more}}}")).json()
    assert proposal["relaxed"] == [
        "a: Requests for the purpose “alarm” may bring it to epsilon 3 instead of epsilon 2 (x); "
        "then all others are refused until the limit is raised"
    ]
    shown = made.get(f"/proposals/{proposal['proposal']}").json()
    assert shown["relaxed"] == proposal["relaxed"]


def test_a_policy_that_closes_a_limit_is_confirmed_in_the_call(world: Callable[..., World]) -> None:
    """409 names each limit, and `closes` confirms it; the answer tells kept orders."""
    made = world().hospital("  - {id: a, limit: {epsilon: 8, delta: 1e-6}}\n")
    made.post("/invocations", ask(gaussian("0.1")))
    lines = "policy: p\nrules:\n  - {id: a, limit: {epsilon: 0.5, delta: 1e-6}}\n"
    lines += "  - {id: b, limit: {epsilon: 9}}\n"
    answer = made.put("/policy", lines)
    assert answer.status_code == 409
    problem = answer.json()
    assert problem["type"] == "urn:accountant:problem:policy-closes-limit"
    assert [one["rule"] for one in problem["closes"]] == ["b"]
    adopted = made.put("/policy?closes=b", lines).json()
    assert adopted["opens_epoch"] == ["a", "b"]
    [kept] = adopted["kept_orders"]
    assert kept["rule"] == "a"
    assert kept["orders"] != kept["afresh"]
