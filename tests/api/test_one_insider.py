"""One person with an admin's key, and then with a key more that they made, loosens nothing: not by
any call over HTTP, and of the command line only what needs the database and the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import Clock, World, ask, laplace, sparse_vector

from accountant import cli
from accountant.api.app import create_app
from accountant.api.description.openapi import document
from accountant.auth.rotation import Rotation
from accountant.budget.commands import DAY

WORD = "  - {id: a, limit: {epsilon: 9, delta: 1e-6}}\n  - {id: word, trusted: {epsilon: 0}}\n"
PEOPLE = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
Attack = tuple[str, str, Any]


def held(made: World, *mechanisms: Any) -> str:
    """A grant of the admin's."""
    answer = made.post("/grants", ask(*mechanisms), who="admin")
    return str(answer.json()["id"])


def session(made: World) -> str:
    """A session of the admin's."""
    body = {"dataset": "d", "mechanism": sparse_vector()}
    return str(made.post("/sparse-vector", body, who="admin").json()["id"])


ATTACKS: dict[str, Callable[[World], Attack]] = {
    "register_population": lambda _: (
        "PUT", "", PEOPLE | {"dimensions": {"age": ["1", "2"]}, "attested_new": True}
    ),
    "append_values": lambda _: (
        "POST", "/dimensions/age/values", {"first": 1, "values": ["2"], "attested_new": True}
    ),
    "register_dataset": lambda _: (
        "PUT", "/datasets/e", {"namespace": "n", "name": "e", "parents": []}
    ),
    "adopt_policy": lambda _: ("PUT", "/policy", "policy: p\nrules:\n" + WORD.replace("9", "10")),
    "commit_grant": lambda made: (
        "POST",
        f"/grants/{held(made, laplace('0.5', 2))}/commit",
        {"mechanisms": [laplace("0.5")]},
    ),
    "release_grant": lambda made: (
        "POST", f"/grants/{held(made, laplace('0.5'))}/release", {"reason": "x"}
    ),
    "close_sparse_vector": lambda made: ("POST", f"/sparse-vector/{session(made)}/close", {}),
}  # fmt: skip
"""What each call that may loosen is sent for that."""
NEVER = {
    "approve_grant": "is another person's than whoever asked: see below",
    "ask_grant": "spends",
    "batch": "refuses an item that loosens",
    "confirm_proposal": "is the second person's",
    "confirm_key": "is the second person's",
    "count_answers": "gives nothing back",
    "decline_proposal": "keeps things as they are",
    "decline_grant": "refuses",
    "decline_key": "keeps things as they are",
    "erase_texts": "changes no sum",
    "file_period_report": "changes no sum",
    "note_lineage": "is no event: nothing is decided by it",
    "open_sparse_vector": "spends",
    "preview": "records nothing",
    "preview_batch": "records nothing",
    "record_invocations": "spends",
    "republish_answer": "gives nothing back",
    "state_verification": "changes no sum",
    "rotate_key": "leaves everybody who they were: see below",
}
COMMANDS = {
    "alerts": "tells people, and keeps what is told quiet",
    "approve": "is another person's than whoever asked",
    "accept-time": "proposes",
    "backup": "copies",
    "restore": "changes no database that is there, and forgets nothing that the vault knows",
    "confirm": "is the second person's",
    "decline": "keeps things as they are",
    "erase": "changes no sum",
    "import": "records what ran",
    "keys": "proposes a third key that may confirm, and another secret of one; the key that signs "
    "vouches for the next",
    "migrate": "changes the schema",
    "policy": "proposes a policy that loosens",
    "publish": "signs",
    "recover": "proposes",
    "resume-publication": "changes no sum",
    "revalue": "books more",
    "serve": "answers the calls above",
    "signin-link": "proposes a link for another who may confirm, from the third on, as keys does",
}
"""The commands that write beside the database."""
READ = {"accounts", "compose", "dp-event", "explain", "export", "fit", "fleet", "plan", "preview"}
READ |= {"checklist", "doctor", "registry"}
READ |= {"approvals", "proposals", "receipt", "replay", "report", "verify"}
ASK = {"commit", "deliver", "grant", "grants", "populations", "record", "release", "run"}
ASK |= {"apply", "republish"}
"""The commands that send the calls above."""


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population on which something was charged, under a rule on what is given back."""
    clock = Clock()
    one = world(clock=clock)
    clock.forward(30 * DAY)
    one.hospital(WORD, {"age": ["1"]})
    child = {"namespace": "n", "name": "e", "parents": ["n/d"]}
    assert one.put("/datasets/e", child).status_code == 200
    assert one.post("/invocations", ask(laplace("0.25"))).status_code == 201
    return one


def code(answer: Any) -> str:
    """The code of a problem."""
    return str(answer.json()["type"]).rpartition(":")[2]


def test_every_call_that_writes_is_named(made: World) -> None:
    """As one that may loosen, with the attack, or as one that never does. So is every command."""
    app = create_app(made.service, made.settings, made.publisher)
    paths = document(app)["paths"].values()
    found = {call["operationId"] for path in paths for how, call in path.items() if how != "get"}
    assert found == ATTACKS.keys() | NEVER.keys()
    commands = {name for names in cli.COMMANDS.values() for name in names}
    assert commands == COMMANDS.keys() | READ | ASK


@pytest.mark.parametrize("name", ATTACKS)
def test_one_admin_only_proposes(made: World, name: str) -> None:
    """202, and nothing else changes; they do not confirm it, nor by a key that they made."""
    method, path, body = ATTACKS[name](made)
    before = made.used(), made.get("").json() | {"sequence": 0}
    answer = made.call(method, path, body, who="admin")
    assert answer.status_code == 202, answer.text
    assert (made.used(), made.get("").json() | {"sequence": 0}) == before
    assert code(made.confirm(answer, who="admin")) == "same-person"
    path = f"/proposals/{answer.json()['proposal']}"
    assert "new_keys" not in made.get(path).json()
    made.secrets["mine"] = made.new_key("mine", "officer", "operator:admin")
    assert code(made.confirm(answer, who="mine")) == "key-too-new"
    [new] = made.get(path).json()["new_keys"]
    assert (new["name"], new["by"]) == ("mine", ["operator:admin", "test-2"])
    made.service.credentials.revoke("mine", "operator:admin")
    assert made.confirm(answer, who="mine").status_code == 401
    shown = made.get(f"/proposals/{answer.json()['proposal']}").json()
    assert shown["state"] == "proposed"
    if "owed" in shown["effect"]:
        made.post("/invocations", ask(laplace("0.25")))
        now = made.get(f"/proposals/{shown['proposal']}").json()
        assert (now["effect"]["owed"]["d"], now["owed"]["d"]) == ("0.25", "0.5")
    assert made.confirm(answer, who="officer").status_code == 200


@pytest.mark.parametrize("revoked", [False, True])
def test_a_pipeline_that_the_admin_made_is_the_admin(made: World, *, revoked: bool) -> None:
    """What it proposes they do not confirm, also where its key was revoked meanwhile."""
    made.secrets["mine"] = made.new_key("mine", "pipeline", "operator:admin")
    grant = made.post("/grants", ask(laplace("0.5")), who="mine").json()["id"]
    answer = made.post(f"/grants/{grant}/release", {"reason": "x"}, who="mine")
    assert answer.status_code == 202
    if revoked:
        made.service.credentials.revoke("mine", "operator:admin")
    assert code(made.confirm(answer, who="admin")) == "key-too-new"
    assert made.confirm(answer, who="officer").status_code == 200


@pytest.mark.parametrize("revoked", [False, True])
def test_nobody_approves_what_they_asked_for(made: World, *, revoked: bool) -> None:
    """Not by a key that they made, and not what they asked for by a key that they made."""
    rules = WORD + "  - {id: big, action: approve, at_most: {epsilon: 1}}\n"
    assert made.put("/policy", "policy: p\nrules:\n" + rules).status_code == 200
    for client, role in (("mine", "pipeline"), ("other", "officer")):
        made.secrets[client] = made.new_key(client, role, "operator:admin")
    for asks, approves, why in (
        ("admin", "admin", "same-person"),
        ("admin", "other", "key-too-new"),
        ("mine", "admin", "key-too-new"),
    ):
        waits = made.post("/grants", ask(laplace("2")), who=asks, key=f"{asks}-{approves}").json()
        if revoked and asks == "mine":
            made.service.credentials.revoke("mine", "operator:admin")
        shown = made.get(f"/approvals/{waits['id']}").json()
        theirs = {"mine", "other"} if asks == "admin" else set()
        assert {one["name"] for one in shown.get("new_keys", ())} == theirs
        body = {"digest": shown["digest"]}
        answer = made.post(f"/approvals/{waits['id']}/approve", body, who=approves)
        assert (answer.status_code, code(answer)) == (403, why)
        assert (
            made.post(f"/approvals/{waits['id']}/approve", body, who="officer").status_code == 201
        )


def test_nobody_confirms_for_another_in_one_request(made: World) -> None:
    """What the service adds to a command is in no request."""
    confirms = {"proposal": 0, "digest": "0" * 64, "proposer": "officer"}
    known = {"role": "officer", "by": ["x"], "time": "2020-01-01T00:00:00.000000Z"}
    for method, path, body in (
        ("PUT", "/datasets/e", {"namespace": "n", "name": "e", "confirms": confirms}),
        ("POST", "/dimensions/age/values", {"first": 1, "values": ["2"], "confirms": confirms}),
        ("PUT", "", PEOPLE | {"dimensions": {"age": ["1"]}, "confirms": confirms}),
        ("POST", "/proposals/2/confirm", {"digest": "0" * 64, "key": known}),
        ("POST", "/proposals/2/confirm", {"digest": "0" * 64, "proposed_with": known}),
        ("POST", "/approvals/g2/approve", {"digest": "0" * 64, "key": known}),
        ("POST", "/approvals/g2/approve", {"digest": "0" * 64, "asked_with": known}),
    ):
        answer = made.call(method, path, body, who="admin")
        assert (answer.status_code, code(answer)) == (422, "invalid-request"), (path, answer.text)


def test_another_secret_makes_nobody_another_person(made: World) -> None:
    """A key that its own holder rotates confirms as before; one of whose secret the proposer had a
    part in the making confirms nothing of theirs, also after its holder has rotated it.
    """
    keys = made.service.credentials

    def rotated(who: str) -> str:
        answer = made.http.request("POST", "/v1/keys/rotate", json={}, headers=made.auth(who))
        assert answer.status_code == 201, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return str(answer.json()["key"])

    def looser(limit: int) -> Any:
        answer = made.put("/policy", "policy: p\nrules:\n" + WORD.replace("9", str(limit)))
        assert answer.status_code == 202
        return answer

    proposed = looser(10)
    made.secrets["officer"] = rotated("officer")
    made.secrets["mine"] = made.new_key("mine", "officer", "operator:admin")
    made.secrets["mine"] = rotated("mine")
    assert code(made.confirm(proposed, who="mine")) == "key-too-new"
    assert made.confirm(proposed, who="officer").status_code == 200
    proposed = looser(11)
    secret = Rotation(keys).renew("officer", "operator:admin")
    made.secrets["stolen"] = secret
    assert made.confirm(proposed, who="stolen").status_code == 401  # it was only proposed
    grant = made.post("/grants", ask(laplace("0.5"))).json()["id"]
    made.secrets["pipe"] = Rotation(keys).renew("pipeline", "operator:admin")
    answer = made.post(f"/grants/{grant}/release", {"reason": "x"}, who="pipe")
    assert code(made.confirm(answer, who="admin")) == "key-too-new"
    assert made.confirm(answer, who="officer").status_code == 200
