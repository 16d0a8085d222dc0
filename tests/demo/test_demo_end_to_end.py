"""END TO END, SLOW (about half a minute): the demonstration itself, and how its processes end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from accountant.ledger.tiles import unpack_entries
from examples.survey import auditor, story
from examples.survey.running import Runner

pytestmark = pytest.mark.xdist_group("demo")
"""In one worker: what they share takes long to make."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of one whole run, on a machine whose proxy is out of order."""
    folder = tmp_path_factory.mktemp("demo") / "demo-output"
    run = subprocess.run(
        [sys.executable, "-m", "examples.survey", "--out", str(folder)],
        env=os.environ | {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder, run.stdout


def test_demo(finished: tuple[Path, str]) -> None:
    """The demonstration ends well, and leaves evidence, a report in three forms, and logs."""
    folder, output = finished
    said = " ".join(output.split())
    assert "all totals agree with what the service shows" in said
    assert said.count("one digit of a charge changed") == 2
    names = ("report.html", "report.json", "report.csv", "audit/bundle.tar", "logs/service.jsonl")
    for name in names:
        assert (folder / name).stat().st_size > 0
    for line in (folder / "logs" / "service.jsonl").read_text().splitlines():
        json.loads(line)


def test_no_keys_left(finished: tuple[Path, str]) -> None:
    """No API key is printed, logged or left in the folder."""
    folder, output = finished
    assert "acct_" not in output
    for path in folder.rglob("*"):
        assert path.is_dir() or b"acct_" not in path.read_bytes(), path


def entries(folder: Path) -> list[dict[str, Any]]:
    """The events in the audited bundle."""
    found: list[dict[str, Any]] = []
    with tarfile.open(folder / "audit" / "bundle.tar") as bundle:
        for member in bundle.getmembers():
            if member.name.startswith("tile/entries/"):
                data = bundle.extractfile(member)
                assert data is not None
                found += map(json.loads, unpack_entries(data.read()))
    return found


def test_story_is_checked(finished: tuple[Path, str]) -> None:
    """A ledger in which one expected thing is missing is told apart."""
    folder, _ = finished
    events = entries(folder)
    assert story.differences(events) == []
    fewer = [event for event in events if event["type"] != "grant.expired.v1"]
    assert story.differences(fewer) == [":accountant grant.expired.v1 happened 0 times, not 1"]


def test_texts_are_not_in_the_events(finished: tuple[Path, str]) -> None:
    """What the pipelines wrote stands in the report and beside the events, not in them."""
    folder, _ = finished
    purpose = "dashboard: good marriages by education"
    assert purpose in (folder / "report.html").read_text()
    assert purpose not in json.dumps(entries(folder))
    assert purpose.encode() in (folder / "audit" / "bundle.tar").read_bytes()


def test_auditor_notices(finished: tuple[Path, str]) -> None:
    """Either verifier's finding, a total that is off, and a forged digit are each noticed."""
    folder, _ = finished
    audit = folder / "audit"
    key = (audit / auditor.KEY).read_text()
    full = auditor.offline(audit, *auditor.FULL, auditor.BUNDLE, "--key", key, "--by", auditor.BY)
    minimal = auditor.offline(audit, *auditor.MINIMAL, auditor.BUNDLE, "--key", key)
    shown = full["totals"]
    assert auditor.compare(full, minimal, shown) == []
    assert len(auditor.compare(full, minimal, shown | {"accounts": []})) == 1
    assert len(auditor.compare(full, minimal | {"totals": {}}, shown)) == 1
    other = auditor.offline(audit, *auditor.FULL, auditor.BUNDLE, "--key", key.replace("a", "b", 1))
    assert len(auditor.compare(other, minimal, other["totals"])) >= 1
    data = (audit / auditor.BUNDLE).read_bytes()
    changed = auditor.forged(data)
    assert sum(a != b for a, b in zip(data, changed, strict=True)) == 1
    assert changed == (audit / auditor.FORGED).read_bytes()


def test_service_ends_with_parent(tmp_path: Path) -> None:
    """The service ends when the process that started it is gone, even if it was killed."""
    (tmp_path / "logs").mkdir()
    runner = Runner(tmp_path, 80)
    runner.command("migrate")
    with runner.service():
        assert httpx2.get(f"{runner.url}/readyz").status_code == 200
        [process] = runner.running.values()
        assert process.stdin
        process.stdin.close()  # what the system does when a process dies
        assert process.wait(20) == 0
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{runner.url}/readyz")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopped(tmp_path: Path, how: signal.Signals) -> None:
    """Ctrl-C and SIGTERM stop the demonstration, its pipelines and its service."""
    folder = tmp_path / "demo-output"
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.survey", "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        # What runs in a shell's background ignores Ctrl-C, and hands that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    deadline = time.monotonic() + 60
    log = folder / "logs" / "survey-team.txt"
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    demo.send_signal(how)
    assert demo.wait(30) == 128 + how
    while (left := still_running(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)  # who was just being started notices that nobody holds the other end
    assert left == []


def still_running(folder: Path) -> list[str]:
    """Processes that were started for ``folder`` (where the system tells)."""
    wanted = f"ACCOUNTANT_HOME={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
        except OSError:
            continue
    return [name for name in found if name != str(os.getpid())]
