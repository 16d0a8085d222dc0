"""Grants, decisions and their texts as each role sees them, before and after settling."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from support import Clock, World, ask, by_two, laplace, sparse_vector

from accountant.budget.commands import Envelope, Recover
from accountant.reporting.texts import ERASED

SESSION = {"dataset": "d", "mechanism": sparse_vector(), "purpose": "watching"}
REASONS = {"purpose": "ops", "justification": "because"}
ASKED = ask(laplace("0.1", 3), laplace("0.2"), ttl_seconds=9, **REASONS)


@pytest.fixture
def clock() -> Clock:
    """The world's clock."""
    return Clock()


@pytest.fixture
def made(world: Callable[..., World], clock: Clock) -> World:
    """A service with a limit, the open grant g4 and the open session g5 with some answers."""
    made = world(clock).hospital("  - {id: a, limit: {epsilon: 2}}\n", {"sex": ["f", "m"]})
    assert made.post("/grants", ASKED).json()["id"] == "g4"
    assert made.post("/sparse-vector", SESSION | {"ttl_seconds": 9}).json()["id"] == "g5"
    for counted in ({"positives": 1, "negatives": 5}, {"positives": 0, "negatives": 7}):
        assert made.post("/sparse-vector/g5/answers", counted).status_code == 200
    return made


def views(made: World) -> dict[str, Any]:
    """The grants as they are shown, by name."""
    return {name: made.get(f"/grants/{name}", who="pipeline").json() for name in ("g4", "g5")}


def epsilon(view: dict[str, Any]) -> str | None:
    """The charge."""
    charged = view["charged"]
    return None if charged is None else str(charged["epsilon"])


def test_an_open_grant_is_shown_whole(made: World) -> None:
    """Request, times, reserved amounts, and the answers of a session."""
    shown = views(made)
    request = shown["g4"]["request"]
    assert (request["type"], request["ttl_seconds"]) == ("ask_grant", 9)
    assert {name: request[name] for name in REASONS} == REASONS
    assert request["mechanisms"][0] == laplace("0.1", 3)
    assert shown["g4"]["reserved"]["epsilon"] == "0.5"
    assert (shown["g4"]["state"], shown["g4"]["charged"]) == ("reserved", None)
    assert "positives" not in shown["g4"]
    assert (shown["g5"]["positives"], shown["g5"]["negatives"]) == (1, 12)


ENDINGS: dict[str, Callable[[World], object]] = {
    "committed": lambda made: made.post("/grants/g4/commit", {}),
    "part": lambda made: made.post("/grants/g4/commit", {"mechanisms": [laplace("0.1", 2)]}),
    "released": lambda made: made.post("/grants/g4/release", {"reason": "x"}),
    "closed": lambda made: made.post("/sparse-vector/g5/close", {}),
    "expired": lambda made: made.service.expire_due(),
    "recovered": lambda made: by_two(
        made.service, "fair", Envelope("operator:ann", Recover(reason="the disk failed", lost=[]))
    ),
}
CHANGES: dict[str, dict[str, tuple[str, str]]] = {
    "committed": {"g4": ("committed", "0.5")},
    "part": {"g4": ("committed", "0.2")},
    "released": {"g4": ("released", "0")},
    "closed": {"g5": ("committed", "0.12")},
    "expired": {"g4": ("expired", "0.5"), "g5": ("expired", "0.2")},
    "recovered": {"g4": ("expired", "0.5"), "g5": ("expired", "0.2")},
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_settling_changes_the_state_and_the_charge_only(
    world: Callable[..., World], made: World, clock: Clock, ending: str
) -> None:
    """A settled grant shows all that it showed while it was open, also after a restart."""
    before = views(made)
    if ending == "expired":
        clock.forward(10)
        assert {view["state"] for view in views(made).values()} == {"expired"}  # noticed or not
        assert [epsilon(view) for view in views(made).values()] == ["0.5", "0.2"]
    ENDINGS[ending](made)
    after = views(made)
    for name, view in after.items():
        state, charged = CHANGES[ending].get(name, (view["state"], None))
        assert (view["state"], epsilon(view)) == (state, charged)
        same = {"state": view["state"], "charged": view["charged"]}
        assert before[name] | same == view
    assert views(world(clock)) == after


def test_the_last_count_is_found_among_many_events(
    world: Callable[..., World], made: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an expired session the last count is shown, however much was written after it."""
    monkeypatch.setattr("accountant.api.views.PAGE", 3)
    other = made.post("/sparse-vector", SESSION | {"ttl_seconds": 9}).json()["id"]
    made.post(f"/sparse-vector/{other}/answers", {"positives": 0, "negatives": 99})
    for _ in range(8):
        made.post("/invocations", ask(laplace("0.001")))
    clock.forward(10)
    made.service.expire_due()
    shown = made.get("/grants/g5").json()
    assert (shown["positives"], shown["negatives"]) == (1, 12)
    silent = made.post("/sparse-vector", SESSION).json()["id"]
    clock.forward(3601)
    made.service.expire_due()
    shown = made.get(f"/grants/{silent}").json()
    assert (shown["positives"], shown["negatives"]) == (0, 0)


READERS = {"admin": True, "pipeline": True, "officer": True, "auditor": True, "other": False}


@pytest.fixture
def told(made: World) -> World:
    """The same with another pipeline, and a refusal d8 that gives its reasons."""
    made.secrets["other"] = made.service.credentials.create("other", "pipeline", "test")
    refused = made.post("/grants", ask(laplace("5"), purpose="all of it", justification="why not"))
    assert refused.json()["decision"]["id"] == "d8"
    return made


@pytest.mark.parametrize("who", READERS)
@pytest.mark.parametrize("path", ["/grants/g4", "/decisions/d4", "/decisions/d8"])
def test_texts_are_shown_to_whoever_saw_them_before(told: World, path: str, who: str) -> None:
    """Who asked, and whoever oversees, reads what it was for; another client nothing; the ledger
    itself holds digests only.
    """
    answer = told.get(path, who=who)
    if not READERS[who]:
        assert answer.status_code == 403
        assert "because" not in answer.text
        assert "all of it" not in answer.text
        return
    shown = answer.json()["request"]
    wanted = ("all of it", "why not") if path.endswith("8") else ("ops", "because")
    assert (shown["purpose"], shown["justification"]) == wanted
    told.post("/grants/g4/release", {"reason": "never sent"})
    assert told.get(path, who=who).json()["request"] == shown
    for events in (told.get("/events").content, b"".join(told.stored())):
        for text in (b"because", b"all of it", b"never sent"):
            assert text not in events


@pytest.mark.parametrize("who", ["admin", "pipeline", "officer", "auditor"])
def test_an_erased_text_is_shown_as_erased(told: World, who: str) -> None:
    """After an erasure no call shows the text, and everything else is unchanged."""
    before = told.get("/grants/g4", who=who).json()
    told.service.erase("fair", "operator:ann", 4, ["justification"], "asked to forget")
    for path in ("/grants/g4", "/decisions/d4"):
        request = told.get(path, who=who).json()["request"]
        assert request == before["request"] | {"justification": ERASED}
    if who != "pipeline":
        report = told.get("/report?format=json", who=who)
        assert '"purpose": "ops"' in report.text
        told.service.erase("fair", "operator:ann", 4, None, "asked to forget")
        report = told.get("/report?format=json", who=who)
        assert '"purpose": "ops"' not in report.text
        assert f'"purpose": "{ERASED}"' in report.text


def test_what_used_a_budget_up_is_told_with_its_purposes(told: World) -> None:
    """The charges behind a refusal, as they stand now: settled since, erased since, or open."""
    told.post("/grants/g4/commit", {"mechanisms": [laplace("0.1", 2)]})
    told.service.erase("fair", "operator:ann", 5, ["purpose"], "asked to forget")
    [found] = told.get("/decisions/d8", who="officer").json()["used_up_by"]
    rows = [(e["sequence"], e["purpose"], e["state"], e["epsilon"]) for e in found["events"]]
    assert rows == [(4, "ops", "committed", "0.2"), (5, ERASED, "reserved", "0.2")]


def test_a_grant_counts_where_it_was_charged(world: Callable[..., World]) -> None:
    """A grant that was open while groups were added covers them; one that was settled before does
    not.
    """
    made = world().hospital("  - {id: a, limit: {epsilon: 1}}\n", {"sex": ["f"], "age": ["1"]})
    for purpose in ("before", "while"):
        body = ask(laplace("0.1"), subjects={"sex": ["f"]}, purpose=purpose)
        assert made.post("/grants", body).status_code == 201
    made.post("/grants/g4/commit", {})
    people = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    wider = {"dimensions": {"sex": ["f"], "age": ["1", "2"]}, "attested_new": True}
    assert made.confirm(made.put("", people | wider)).status_code == 200
    made.post("/grants/g5/commit", {})
    refused = made.post("/grants", ask(laplace("2"), subjects={"age": ["2"]})).json()
    [found] = made.get(f"/decisions/{refused['decision']['id']}").json()["used_up_by"]
    assert [(e["purpose"], e["state"]) for e in found["events"]] == [("while", "committed")]


def test_everyone_counts_where_it_may_still_run(world: Callable[..., World]) -> None:
    """On people who join later, a grant on everyone is behind a refusal if it was open by then, or
    expired before, and not if it had been settled.
    """
    clock = Clock()
    made = world(clock=clock).hospital("  - {id: a, limit: {epsilon: 1}}\n", {"age": ["1"]})
    for purpose, lasts in (("before", 3_600), ("expired", 60), ("while", 3_600)):
        body = ask(laplace("0.1"), purpose=purpose, ttl_seconds=lasts)
        assert made.post("/grants", body).status_code == 201
    made.post("/grants/g4/commit", {})
    clock.forward(120)
    made.service.expire_due()
    people = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    wider = {"dimensions": {"age": ["1", "2"]}, "attested_new": True}
    assert made.confirm(made.put("", people | wider)).status_code == 200
    for group, purposes in (("1", {"before", "expired", "while"}), ("2", {"expired", "while"})):
        refused = made.post("/grants", ask(laplace("2"), subjects={"age": [group]})).json()
        [found] = made.get(f"/decisions/{refused['decision']['id']}").json()["used_up_by"]
        assert {each["purpose"] for each in found["events"]} == purposes
        assert Decimal(found["sum"]) == len(purposes) * Decimal("0.1")
