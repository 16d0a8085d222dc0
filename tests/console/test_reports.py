"""The page on which a report to sign is chosen, and the files that it gives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256

import pytest
import yaml
from browser import signed_in
from deciding import field
from support import World, laplace

from accountant.budget.facts import SECOND
from accountant.reporting.registry import BY_PEOPLE

PAGE = "/console/fair/reports"


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A dataset with a charge."""
    here = world()
    here.hospital()
    asked = {"dataset": "d", "mechanisms": [laplace("0.25")], "purpose": "<b>wages</b>"}
    assert here.post("/grants", asked).status_code == 201
    return here


def _today(made: World) -> str:
    return datetime.fromtimestamp(made.service.time() / SECOND, UTC).date().isoformat()


def test_whoever_oversees_gets_the_files(made: World) -> None:
    """Each kind, as a file with its name: an officer and an auditor."""
    today = _today(made)
    for name, role in (("olive", "officer"), ("ada", "auditor")):
        browser = signed_in(made, name, role)
        for kind, dataset in (("officer", ""), ("statement", "d"), ("population", "")):
            answer = browser.get(
                f"{PAGE}/file",
                params={"kind": kind, "dataset": dataset, "first": today, "last": today}
                | {"format": "csv" if kind == "statement" else "html"},
            )
            assert answer.status_code == 200
            assert kind in answer.headers["content-disposition"]
            assert kind == "statement" or "<b>wages" not in answer.text


def test_what_is_wrong_is_said_and_what_was_typed_is_kept(made: World) -> None:
    """On the same page: no kind, a period that ends before it begins, a dataset that is none."""
    browser, today = signed_in(made), _today(made)
    for chosen, said in (
        ({}, "Choose which report"),
        ({"kind": "officer", "format": "xls"}, "Choose a format"),
        ({"kind": "officer", "first": "2026-02-02", "last": "2026-02-01"}, "before it begins"),
        ({"kind": "statement", "first": today, "last": today}, "Name the dataset"),
        ({"kind": "statement", "dataset": "nothing", "first": today, "last": today}, "nothing"),
    ):
        answer = browser.get(f"{PAGE}/file", params={"format": "json"} | chosen)
        assert answer.status_code == 422
        assert said in answer.text
        assert all(f'value="{value}"' in answer.text for value in chosen.values() if value != "xls")


def test_who_may_decide_files_a_report_once_its_period_is_over(made: World) -> None:
    """In two steps: the digest is shown, and filed as it was shown. The event has that of the bytes
    that are downloaded; a second click files nothing more; not while the period runs, nor by the
    digest of something else; an auditor sees no such form, and their form is not taken.
    """
    browser, path = signed_in(made, "olive", "officer"), f"{PAGE}/filed"
    period = {"first": "2026-01-01", "last": "2026-01-31"}
    fields = {"kind": "officer", "format": "json", "csrf": browser.csrf(PAGE)} | period
    size = made.service.head("fair").size
    read = {name: value for name, value in fields.items() if name != "csrf"}
    early = browser.get(f"{PAGE}/digest", params=read | {"last": _today(made)})
    assert (early.status_code, "once its period is over" in early.text) == (422, True)
    assert made.service.head("fair").size == size
    shown = browser.get(f"{PAGE}/digest", params=read)
    digest = sha256(browser.get(f"{PAGE}/file", params=read).content).hexdigest()
    assert (shown.status_code, field(shown.text, "digest")) == (200, digest)
    stale = browser.post(path, fields | {"digest": "0" * 64})
    assert (stale.status_code, field(stale.text, "digest")) == (409, digest)
    assert "Nothing was filed" in stale.text
    assert made.service.head("fair").size == size
    fields |= {"digest": digest}
    answer = browser.post(path, fields)
    assert answer.headers["location"] == f"/console/fair/ledger/{size}"
    assert made.service.event("fair", size).body["command"]["digest"] == digest
    assert "filed the officer report" in browser.get(answer.headers["location"]).text
    assert browser.post(path, fields).headers["location"] == answer.headers["location"]
    assert made.service.head("fair").size == size + 1
    auditor = signed_in(made, "ada", "auditor")
    assert "File a report" not in auditor.get(PAGE).text
    assert auditor.post(path, fields | {"csrf": auditor.csrf()}).status_code == 403
    assert auditor.get(f"{PAGE}/digest", params=read).status_code == 403
    assert browser.post(path, fields | {"csrf": "wrong"}).status_code == 403


def test_the_registry_gets_a_draft(made: World) -> None:
    """What the ledger knows is filled in; what people know is empty, and the file names it."""
    browser = signed_in(made)
    answer = browser.get(f"{PAGE}/registry", params={"dataset": "d"})
    entry = yaml.safe_load(answer.text)["deployment"]
    assert entry["privacy_loss"]["privacy_unit"] == "person"
    assert entry["dp_variant"]["variant_name"] == "Pure DP"
    assert entry["deployment_model"]["model_name"] == "Central"
    assert entry["deployment_model"]["release_type"] == "One release"
    for name in BY_PEOPLE:
        assert f"# - {name}" in answer.text
        found = yaml.safe_load(answer.text)
        for part in name.split("."):
            found = found[part]
        assert found in ("", [""]) or name.endswith("data_curators"), name
    assert browser.get(f"{PAGE}/registry", params={"dataset": "no"}).status_code == 422


def test_the_checklist_asks_what_the_ledger_cannot_answer(made: World) -> None:
    """Each question has an answer of the ledger, and most one that is left to people."""
    page = signed_in(made).get(f"{PAGE}/checklist").text
    assert "What is the unit of privacy?" in page
    assert "d: epsilon 1" in page
    assert "Who can read the raw data?" in page
