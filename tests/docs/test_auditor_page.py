"""The auditor's page checks one event by its receipt alone, as it stands there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fences import blocks
from here import accountant
from support import World
from test_tutorial import first_ledger

from accountant.ledger.notes import Signer

PAGE = "docs/how-to/evidence-for-an-auditor.md"


def test_an_event_is_proved_without_the_bundle(
    world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's code takes every event of the tutorial with its receipt; with a byte changed, or
    under another ledger's key, it takes none.
    """
    there = first_ledger(world())
    home = {"ACCOUNTANT_DATABASE_URL": there.url, "ACCOUNTANT_HOME": str(there.settings.home)}
    monkeypatch.chdir(tmp_path)
    [code] = [one.code for one in blocks() if (one.page, one.language) == (PAGE, "python")]
    run = compile(code, PAGE, "exec")
    accountant("publish", "-p", "visitors", **home)
    rows = list(there.service.stream("visitors"))
    [key] = [
        one["command"]["key"]
        for one in map(json.loads, (row.body for row in rows))
        if one["type"] == "signing_key.adopted.v1"
    ]
    for row in rows:
        Path("event.json").write_bytes(row.body)
        said = accountant("receipt", "-p", "visitors", "--event", str(row.sequence), **home)
        Path("event.tlog-proof").write_text(said.out, encoding="utf-8")
        Path("key").write_text(f"{key}\n", encoding="utf-8")
        names: dict[str, Any] = {}
        exec(run, names)  # noqa: S102 our own page
        assert names["key"] == key
        Path("event.json").write_bytes(row.body.replace(b"visitors", b"visitorz"))
        with pytest.raises(AssertionError, match="not in the tree"):
            exec(run, {})  # noqa: S102 our own page
    Path("event.json").write_bytes(rows[-1].body)
    Path("key").write_text(str(Signer.new("localhost/visitors").verifier), encoding="utf-8")
    with pytest.raises(AssertionError, match="has not signed"):
        exec(run, {})  # noqa: S102 our own page
