"""The page on which a report to sign is chosen, and the files that it gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from html import unescape
from threading import Event
from time import sleep
from typing import Any

import pytest
import yaml
from browser import signed_in
from deciding import field
from support import World, laplace

from accountant.budget.facts import SECOND
from accountant.console.pages import reports
from accountant.reporting.making import period_report
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


def test_the_forms_offer_the_datasets(made: World) -> None:
    """Wherever a dataset is asked for, its name can be chosen."""
    page = signed_in(made).get(PAGE).text
    assert re.findall(r'<option value="([^"]*)"></option>', page) == ["d"]
    named = re.findall(r'<input[^>]* name="dataset"[^>]*>', page)
    assert len(named) == 3
    assert all('list="datasets"' in one for one in named)


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


def test_who_waits_for_a_report_sees_how_far_it_is(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are led to a page with a bar, and the same in words, that asks for itself with scripts
    or without, and from there to the file. Another person waits for their own.
    """
    browser, today = signed_in(made, "olive", "officer"), _today(made)
    asked = {"kind": "statement", "dataset": "d", "first": today, "last": today, "format": "json"}
    direct = browser.get(f"{PAGE}/file", params=asked)
    goes_on = Event()

    def slowly(*asked: Any, **more: Any) -> Any:
        assert goes_on.wait(30)
        return period_report(*asked, **more)

    monkeypatch.setattr(reports, "PATIENCE", 0)
    monkeypatch.setattr(reports, "period_report", slowly)
    answer = browser.get(f"{PAGE}/file", params=asked)
    assert answer.status_code == 303
    place = answer.headers["location"]
    seen = [browser.get(place).text]
    assert "is being made" in seen[0]
    goes_on.set()
    while "is ready" not in seen[-1]:
        assert all(one in seen[-1] for one in ('<progress class="progress"', "events read: "))
        assert all(one in seen[-1] for one in ('http-equiv="refresh"', 'data-refresh="1"'))
        sleep(0.01)
        seen.append(browser.get(place).text)
    assert "refresh" not in seen[-1].partition("</head>")[2]
    [link] = re.findall(r'class="btn primary" href="([^"]+)"', seen[-1])
    goes_on.clear()
    other = signed_in(made, "ada", "auditor")
    assert other.get(unescape(link)).status_code == 303
    found = browser.get(unescape(link))
    assert (found.status_code, found.content) == (200, direct.content)
    assert "attachment" in found.headers["content-disposition"]
    assert browser.get(unescape(link)).status_code == 303  # it was handed out
    goes_on.set()


def test_a_wrong_choice_has_no_page_to_wait_on(made: World) -> None:
    """What is wrong of it is said there too; an auditor waits for no digest."""
    auditor, today = signed_in(made, "ada", "auditor"), _today(made)
    chosen = {"kind": "statement", "dataset": "nothing", "first": today, "last": today}
    chosen |= {"format": "json", "for": "file"}
    for changed, status, said in (
        ({"dataset": ""}, 422, "Name the dataset"),
        ({"for": "nothing"}, 404, "no such page"),
        ({"for": "digest", "kind": "officer", "dataset": ""}, 404, "no such page"),
    ):
        answer = auditor.get(f"{PAGE}/making", params=chosen | changed)
        assert (answer.status_code, said in answer.text) == (status, True)
    pages = (auditor.get(f"{PAGE}/making", params=chosen) for _ in range(500))
    last = next(page for page in pages if page.status_code != 200)
    assert (last.status_code, "nothing" in last.text) == (422, True)
