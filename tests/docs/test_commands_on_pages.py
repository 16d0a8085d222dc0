"""The commands that pages show beside a database are run, on the ledger of the tutorial."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fences import blocks, commands_of
from here import accountant
from support import Served, World
from test_tutorial import first_ledger

from accountant.client import command_line

KEY = "'example.org/visitors+…'"
"""How pages write a verifier key."""
LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "20"}
REQUEST = {"dataset": "visits", "mechanisms": [LAPLACE]}
SHOWN: dict[str, tuple[slice, dict[str, str]]] = {
    "docs/how-to/back-up.md": (
        slice(1),
        {"/backup/": "{folder}/", "/etc/accountant/": "{folder}/"},
    ),
    "docs/how-to/choose-epsilon.md": (slice(2), {}),
    "docs/how-to/evidence-for-an-auditor.md": (slice(2), {KEY: "'{key}'"}),
    "docs/how-to/get-alerts.md": (slice(1, 2), {"clinic": "visitors"}),
    "docs/how-to/operate.md": (slice(1), {"/etc/prometheus": "{folder}"}),
    "docs/how-to/record-after-the-fact.md": (slice(1), {}),
    "docs/how-to/sign-a-report.md": (
        slice(1),
        {"fair-survey": "visitors", "marriages": "visits", "2026-10": "{month}"}
        | {"--from 2026-07-01 --to 2026-09-30": "--from {month}-01"},
    ),
    "docs/how-to/sign-in.md": (slice(1, 2), {}),
}
"""Pages, with which of their blocks of shell are run, and what stands for the reader's own folders,
names and months.
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the pages leave to the reader, in the folder where commands are run."""
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    (tmp_path / "queries.json").write_text(json.dumps([LAPLACE]))
    (tmp_path / "invocations.jsonl").write_text(json.dumps(REQUEST) + "\n")
    (tmp_path / "backup-passphrase").write_text("correct horse battery staple")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def key_of(bundle: str) -> str:
    """The verifier key in a bundle."""
    with tarfile.open(bundle) as parts:
        keys = parts.extractfile("keys")
        assert keys
        return keys.read().decode().splitlines()[0]


def commands(page: str, which: slice, own: dict[str, str], **stands_for: str) -> list[list[str]]:
    """The commands of a page, with what stands for the reader's own."""
    code = [one.code for one in blocks() if (one.page, one.language) == (page, "sh")][which]
    script = "".join(code)
    for shown, meant in own.items():
        assert shown in script, (page, shown)
        script = script.replace(shown, meant.format(**stands_for))
    found = [words[1:] for words in commands_of(script) if words[0] == "accountant"]
    assert found, page
    return found


def test_the_commands_end_well(world: Callable[..., World], files: Path) -> None:
    """Each command of these pages, in order, beside the database: exit code 0."""
    there, month = first_ledger(world()), f"{datetime.now(UTC):%Y-%m}"
    home = {"ACCOUNTANT_DATABASE_URL": there.url, "ACCOUNTANT_HOME": str(there.settings.home)}
    accountant("export", "-p", "visitors", "first.tar", **home)
    stands_for = {"key": key_of("first.tar"), "folder": str(files), "month": month}
    wrong: list[object] = []
    for page, (which, own) in SHOWN.items():
        for words in commands(page, which, own, **stands_for):
            done = accountant(*words, **home)
            wrong += [] if done.code == 0 else [(page, words, done)]
    assert not wrong


def test_the_commands_end_well_from_afar(
    world: Callable[..., World], files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Commands that ask a service: an auditor fetches, checks and records; a job runs under a grant
    and is charged what the page states.
    """
    there = first_ledger(world())
    served = Served(there.service, there.settings, there.publisher)
    where = {
        "ACCOUNTANT_URL": f"http://127.0.0.1:{served.port}",
        "ACCOUNTANT_POPULATION": "visitors",
    }
    auditor = where | {"ACCOUNTANT_KEY": there.secrets["auditor"]}
    pipeline = where | {"ACCOUNTANT_KEY": there.secrets["pipeline"]}
    assert command_line.main(["export", "first.tar"], env=auditor) == 0
    page, key = "docs/how-to/evidence-for-an-auditor.md", key_of("first.tar")
    for words in commands(page, slice(2, 4), {KEY: "'{key}'"}, key=key):
        if "--local" not in words:
            assert command_line.main(words, env=auditor) == 0, (words, capfd.readouterr())
    own = {"dbt run --select weekly": "true", "scale=10": "scale=100"}  # there is 0.5 left
    for words in commands("docs/how-to/run-a-command.md", slice(1), own):
        assert command_line.main(words, env=pipeline) == 0, (words, capfd.readouterr())
    url = "/v1/populations/visitors/accounts"
    [account] = there.http.get(url, headers=there.auth("auditor")).json()["accounts"]
    assert account["total"]["spent"] == "0.57", account
    served.close()
