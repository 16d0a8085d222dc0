"""Reports, bundles, receipts and their checking from afar."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from accountant import verify_minimal
from accountant.auditing.verify import verify
from accountant.client import Client, calls
from accountant.ledger.checkpoints import Receipt

if TYPE_CHECKING:
    from conftest import Network, Shell

REQUEST = ("--dataset", "visits", "--mechanism", "laplace:sensitivity=1,scale=4",
           "--purpose", "Prüfung ☂")  # fmt: skip


@pytest.fixture
def auditor(shell: Shell) -> Shell:
    """An auditor's terminal, about a ledger with a record."""
    shell("record", *REQUEST)
    return shell.with_("auditor")


def sound(data: bytes) -> bool:
    """Whether both verifiers have no finding."""
    first = verify([io.BytesIO(data)]).findings
    return not first and not verify_minimal.verify(io.BytesIO(data))["findings"]


def test_a_bundle_is_exported(auditor: Shell) -> None:
    """Both verifiers find nothing in it, and the one beside the database reads it too."""
    assert "wrote bundle.tar: checkpoint of " in auditor("export", "bundle.tar").err
    data = (auditor.folder / "bundle.tar").read_bytes()
    assert sound(data)
    auditor("export", "part.tar", "--from", "0", "--to", "3", "--without-texts")
    assert "Prüfung".encode() in data
    assert "Prüfung".encode() not in (auditor.folder / "part.tar").read_bytes()
    assert "all agree" in auditor("verify", "--local", "bundle.tar").text
    assert "[no-such-events]" in auditor.wrong("export", "x.tar", "--from", "99")
    assert sorted(os.listdir(auditor.folder)) == ["bundle.tar", "part.tar"]


def test_a_pipeline_gets_none(auditor: Shell) -> None:
    """Evidence and reports are for those who oversee."""
    pipeline = auditor.with_("pipeline")
    for words in (("export", "x.tar"), ("verify",), ("report",)):
        assert "[role-not-allowed]" in pipeline.wrong(*words)
    assert os.listdir(auditor.folder) == []


@pytest.mark.parametrize("treatment", ["half", "unsaid", "portal", "other", "page"])
def test_what_does_not_come_whole_is_no_bundle(
    auditor: Shell, network: Network, treatment: str
) -> None:
    """A download that is cut off leaves what was there, and the exit code is 2."""
    away = auditor.with_(ACCOUNTANT_URL=network.url)
    (auditor.folder / "old.tar").write_text("old")
    for words in (("export", "old.tar"), ("export", "new.tar"), ("verify",)):
        network.plan = [treatment] * 5
        away.wrong(*words)
    assert os.listdir(auditor.folder) == ["old.tar"]
    assert (auditor.folder / "old.tar").read_text() == "old"


def test_a_full_disk_is_said(auditor: Shell) -> None:
    """In one line; a device is not replaced."""
    for words in (("export", "/dev/full"), ("report", "--out", "/dev/full", "--format", "csv"),
                  ("receipt", "--event", "4", "--out", "/dev/full")):  # fmt: skip
        assert "No space left on device [io-error]" in auditor.wrong(*words)
    assert Path("/dev/full").is_char_device()


def test_an_export_that_is_killed_leaves_no_bundle(auditor: Shell, network: Network) -> None:
    """Under its name there is nothing."""
    network.plan, network.wait = ["busy"], "20"
    process = auditor.with_(ACCOUNTANT_URL=network.url).start("export", "bundle.tar")
    while not network.keys:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    auditor.ended(process, 130)
    assert os.listdir(auditor.folder) == []


def test_the_ledger_is_verified_from_afar(auditor: Shell) -> None:
    """The service's ledger now, or a file without the service; a key that is known counts."""
    said = auditor("verify")
    assert "no findings" in said.text
    assert f"ledger: {auditor.population}" in said.text
    assert "received independently" in said.err
    key = str(auditor.served.publisher.rotate(auditor.population, by="test"))
    assert "received independently" not in auditor("verify", "--key", key).err
    other = auditor.served.population()
    foreign = str(auditor.served.publisher.rotate(other, by="test"))
    auditor("verify", "--key", foreign, code=1)
    auditor("export", "bundle.tar")
    offline = auditor.with_(ACCOUNTANT_URL="http://127.0.0.1:9", ACCOUNTANT_KEY="")
    found = offline.json("verify", "bundle.tar")
    assert (found["ledger"], found["findings"]) == (auditor.population, [])


def test_who_verified_records_the_result(auditor: Shell) -> None:
    """Under the name of their key: what the service has now, a file, and by the first verifier; of
    another ledger it is recorded as a finding.
    """
    last = _stated(auditor, "verify")
    assert (last["type"], last["by"]) == ("ledger.verified.v1", "auditor")
    assert (last["command"]["findings"], last["command"]["decided"]) == (0, False)
    auditor("export", "bundle.tar")
    assert _stated(auditor, "verify", "bundle.tar")["sequence"] > last["sequence"]
    assert _stated(auditor, "verify", "--local", "bundle.tar")["command"]["decided"] is True
    other = auditor.with_(ACCOUNTANT_POPULATION=auditor.served.population())
    wrong = _stated(other, "verify", "bundle.tar", code=1)
    assert wrong["command"]["findings"] == 1
    pipeline = auditor.with_("pipeline")
    assert "[role-not-allowed]" in pipeline("verify", "bundle.tar", "--record", code=2).err
    assert "no findings" in auditor("verify", "bundle.tar", "--record").text


def _stated(shell: Shell, *words: str, code: int = 0) -> Any:
    """The event that a verification is recorded as."""
    said = shell(*words, "--record", code=code)
    found = re.search(r"recorded as event (\d+)", said.err)
    assert found, said
    key, people = shell.served.keys["auditor"], shell.variables["ACCOUNTANT_POPULATION"]
    with Client(shell.served.url, key, people) as client:
        return client.send(calls.get(f"/events/{found[1]}", dict))


def test_a_bundle_that_was_changed_is_found(auditor: Shell) -> None:
    """Exit code 1, with the findings."""
    auditor("export", "bundle.tar")
    file = auditor.folder / "bundle.tar"
    file.write_bytes(file.read_bytes().replace(b'"epsilon":"250000000"', b'"epsilon":"150000000"'))
    assert auditor("verify", "bundle.tar", code=1).text
    assert auditor.json("verify", "bundle.tar", code=1)["findings"]
    file.write_bytes(file.read_bytes()[:-512])
    auditor("verify", "bundle.tar", code=1)


def test_the_report_is_fetched_in_every_form(auditor: Shell) -> None:
    """By its format or by the file's ending, as beside the database; page by default."""
    assert auditor("report").out.lstrip().startswith(b"<!doctype html>")
    for form in ("html", "json", "csv"):
        auditor("report", "--out", f"report.{form}")
    document = json.loads((auditor.folder / "report.json").read_text())
    assert document["population"]["name"] == auditor.population
    assert auditor("report", "--format", "csv").out == (auditor.folder / "report.csv").read_bytes()
    assert "[misuse]" in auditor.wrong("report", "--out", "report.txt")


def test_a_receipt_is_fetched(auditor: Shell) -> None:
    """The proof of an own event, on standard output or in a file; of a grant by its id."""
    pipeline = auditor.with_("pipeline")
    data = pipeline("receipt", "--event", "4").out
    assert Receipt.from_bytes(data).index == 4
    pipeline("receipt", "--event", "g4", "--out", "x.tlog-proof")
    assert (auditor.folder / "x.tlog-proof").read_bytes() == data
    assert "[not-your-grant]" in auditor.with_("other").wrong("receipt", "--event", "4")
    assert "[unknown-event]" in pipeline.wrong("receipt", "--event", "99")
