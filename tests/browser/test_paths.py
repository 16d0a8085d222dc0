"""What each role does in the console, in a real browser."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from site_of_clinic import PYTHON, Site

Enter = Callable[..., Page]


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_what_runs_out_first_and_why(enter: Enter, scripts: bool) -> None:
    """From Home an officer is at the account that is worst off in one step, and reads there who
    used it up; no page needs a script.
    """
    page = enter("olive", java_script_enabled=scripts)
    first = page.get_by_role("table").filter(has_text="Runs out").get_by_role("rowheader").first
    expect(first).to_contain_text("labs")
    first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("labs")
    expect(page.get_by_role("main")).to_contain_text("over its limit")
    by_client = page.get_by_role("heading", name="By client").locator("xpath=..")
    expect(by_client).to_contain_text("team")


def test_a_proposal_is_refused_with_a_reason(enter: Enter, site: Site) -> None:
    """An officer comes from Home to the proposal, has to give a reason, and sees who decided; the
    back button repeats nothing.
    """
    number = site.propose(4)
    page = enter("olive")
    page.locator(f"ol.needs a[href$='/proposals/{number}']").click()
    page.wait_for_url(f"**/proposals/{number}")
    assert page.locator("input[type=radio]:checked").count() == 0
    page.get_by_label("Refuse").check()
    page.get_by_role("textbox", name="Reason").fill("Three was promised to the people.")
    page.get_by_role("button", name="Record my decision").click()
    main = page.get_by_role("main")
    expect(main).to_contain_text("Three was promised to the people.")
    expect(main).to_contain_text("olive")
    expect(page.get_by_role("button", name="Record my decision")).to_have_count(0)
    page.go_back()
    page.reload()
    assert site.call("olive", "GET", f"/proposals/{number}")["state"] == "declined"
    events = site.call("ada", "GET", "/events?after=-1&limit=1000")["events"]
    declined = [e for e in events if e["event"]["type"] == "change.declined.v1"]
    assert len(declined) == 1


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_who_waits_for_a_report_sees_how_far_it_is(enter: Enter, site: Site, scripts: bool) -> None:
    """A bar with a name and a value, and the same in words; the page finds out by itself that the
    report is made, and with scripts neither loads anew nor takes the focus away.
    """
    page = enter("olive", java_script_enabled=scripts)
    today = site.call("ada", "GET", "/events?limit=1")["events"][0]["event"]["time"][:10]
    chosen = f"{site.url}/console/clinic/reports/making?first={today}&last={today}&format=html"
    page.goto(f"{chosen}&kind=statement&dataset=visits")
    bar = page.get_by_role("progressbar", name="The report is being made")
    expect(bar).to_have_attribute("value", re.compile(r"\d+"))
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"events? read: \d+ %"))
    other = page.get_by_role("link", name="Choose another report")
    if scripts:
        other.focus()
    expect(page.get_by_role("heading", level=1)).to_have_text("The report is ready")
    expect(bar).to_have_count(0)
    if scripts:
        expect(page.get_by_role("status")).to_have_text("The report is ready")
        expect(other).to_be_focused()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download it").click()
    assert download.value.suggested_filename.startswith(f"clinic-statement-visits-{today}")
    page.goto(f"{chosen}&kind=statement&dataset=nothing")
    expect(page.get_by_role("alert")).to_contain_text("No dataset is called 'nothing'")
    expect(bar).to_have_count(0)


def test_the_steward_cannot_confirm_what_they_proposed(enter: Enter, site: Site) -> None:
    """Who proposed a change is told so, and is offered to withdraw it, nothing else."""
    number = site.propose(5)
    page = enter("steward")
    page.goto(f"{site.url}/console/clinic/proposals/{number}")
    expect(page.get_by_label("Confirm")).to_have_count(0)
    expect(page.get_by_role("button", name="Withdraw it")).to_be_visible()


def test_a_request_is_let_through(enter: Enter, site: Site) -> None:
    """An officer reads what it would cost, decides with a reason, and the client has its grant."""
    request = site.wait()
    page = enter("olive")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Requests").click()
    page.get_by_role("link", name=request).first.click()
    expect(page.get_by_role("heading", name="What it would cost")).to_be_visible()
    page.get_by_label("Let it through").check()
    page.get_by_role("textbox", name="Reason").fill("Agreed in the board.")
    page.get_by_role("button", name="Record my decision").click()
    expect(page.get_by_role("main")).to_contain_text("Agreed in the board.")
    assert site.call("team", "GET", f"/grants/{request}")["state"] in ("open", "reserved")


def test_a_decision_can_be_made_by_keyboard_alone(enter: Enter, site: Site) -> None:
    """The skip link comes first, focus can be seen, and each field is reached by Tab."""
    number = site.propose(6)
    page = enter("olive")
    page.goto(f"{site.url}/console/clinic/proposals/{number}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "decision":
            break
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    page.keyboard.press("Space")
    assert page.locator("input[value=refuse]").is_checked()
    page.keyboard.press("Tab")
    page.keyboard.type("Not before the audit.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_contain_text("Not before the audit.")
    assert site.call("olive", "GET", f"/proposals/{number}")["state"] == "declined"


def test_an_auditor_takes_the_evidence_along(enter: Enter, tmp_path: Path) -> None:
    """The bundle is downloaded in the browser and proved without the service; an auditor is
    offered no decision.
    """
    page = enter("ada")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Evidence").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the bundle").click()
    bundle = tmp_path / "bundle.tar"
    download.value.save_as(bundle)
    key = page.locator("section", has_text="The key that signs").locator(".mono").inner_text()
    command = [PYTHON, "-m", "accountant", "verify", str(bundle), "--key", key]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page.goto(page.url.replace("evidence", "requests"))
    expect(page.get_by_role("button", name="Record my decision")).to_have_count(0)


def test_after_the_sign_out_nothing_can_be_seen(enter: Enter, site: Site) -> None:
    """Not by the back button either: pages are kept nowhere."""
    page = enter("olive")
    page.goto(f"{site.url}/console/clinic/accounts/labs")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.go_back()
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
