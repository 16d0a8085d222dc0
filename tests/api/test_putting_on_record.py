"""What people put on record over HTTP: that they verified a ledger, which report they signed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from support import World, ask, clean, laplace

MONTH = {"month": "2026-01", "format": "json"}


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service with a charge."""
    made = world().hospital()
    assert made.post("/invocations", ask(laplace("0.1"), purpose="ops")).is_success
    return made


def verified(made: World, who: str = "auditor", **more: Any) -> Any:
    """The answer to the result of a verification of all events, by default without findings."""
    head = made.head()
    said = {"size": head.size, "root": head.root.hex(), "findings": 0, "decided": True} | more
    return made.post("/verifications", said, who=who)


def test_a_verification_is_recorded_by_who_verified(made: World) -> None:
    """An auditor, an officer and an admin, each as an event; a pipeline, and what is no result, are
    refused; the ledger replays, and the report of the ledger has the last word of each.
    """
    for who in ("admin", "officer", "auditor", "auditor"):
        answer = verified(made, who, reason="with a key of <mine>")
        assert answer.status_code == 200, answer.text
        event = made.service.event("fair", answer.json()["sequence"])
        assert (event.type, event.by) == ("ledger.verified.v1", who)
        assert event.body["command"]["reason"].keys() == {"sealed"}
    assert verified(made, "pipeline").status_code == 403
    for wrong in ({"size": 0}, {"root": "x"}, {"findings": -1}, {"decided": "yes"}, {"more": 1}):
        assert verified(made, **wrong).status_code == 422
    told = made.get("/report?format=json").json()["ledger"]["verified"]
    assert [one["by"] for one in told] == ["auditor", "officer", "admin"]
    assert told[0]["reason"] == "with a key of <mine>"
    clean(made)


def test_nothing_but_this_ledger_is_recorded_as_in_order(made: World) -> None:
    """Another root, or more events than there are, are findings: without any they are refused, with
    some they are recorded, and the summary of the report doubts the ledger until the same person
    states a verification without findings.
    """
    size, other = made.head().size, {"root": "0" * 64}
    for wrong in (other, {"size": size + 1}):
        answer = verified(made, **wrong)
        assert (answer.status_code, answer.json()["type"].split(":")[-1]) == (409, "another-ledger")
    assert made.head().size == size
    assert verified(made, findings=3, **other).status_code == 200
    assert verified(made, "admin").status_code == 200

    def summary() -> Any:
        return made.get("/report?format=json").json()["verdict"]

    assert summary()["level"] == "bad"
    page = made.get("/report").text
    assert "with 3 findings" in page
    assert "without a finding" in page
    assert "auditor verified this ledger and found something wrong." in summary()["headline"]
    assert f"3 findings in the first {size} events" in summary()["points"][0]
    assert verified(made).status_code == 200
    assert summary()["level"] != "bad"
    clean(made)


def test_a_report_that_was_read_is_filed_once(made: World) -> None:
    """By its digest, which the event has; again it is the same event; another digest, a period that
    is not over and an auditor's key file nothing.
    """
    data = made.get("/report?month=2026-01&format=json").content
    said = MONTH | {"digest": sha256(data).hexdigest()}
    size = made.head().size
    for wrong, who, status, code in (
        ({"digest": "0" * 64}, "officer", 409, "report-differs"),
        ({"month": "2099-01"}, "officer", 422, "unknown-report"),
        ({"kind": "statement"}, "officer", 422, "unknown-report"),
        ({"digest": "x"}, "officer", 422, "invalid-request"),
        ({}, "auditor", 403, "role-not-allowed"),
    ):
        refused = made.post("/reports", said | wrong, who=who)
        assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (status, code)
    assert made.head().size == size
    answer = made.post("/reports", said, who="officer")
    assert answer.status_code == 200, answer.text
    told = {"report": "officer", "first": "2026-01-01", "last": "2026-01-31", "format": "json"}
    assert told.items() <= answer.json().items()
    assert answer.json()["digest"] == said["digest"]
    again = made.post("/reports", said, who="officer")
    assert (again.json(), again.headers["idempotent-replay"]) == (answer.json(), "true")
    assert made.head().size == size + 1
    clean(made)
