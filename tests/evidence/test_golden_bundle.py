"""The charter, held to what was written: a bundle of the first format verifies for ever."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import orjson
from house import audit, reasons

from accountant.budget.folding import HANDLERS
from accountant.budget.state import lifetime
from accountant.ledger.tiles import unpack_entries
from accountant.reporting.statement import accounts_json

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "evidence"
BUNDLE = GOLDEN / "bundle-1.tar"
UNWRITTEN = {"engine.adopted.v1", "charge.revalued.v1"}
"""Nobody writes these before a bound is corrected for the first time."""
YOUNGER = {"batch.opened.v1", "batch.refused.v1", "clock.accepted.v1"}
"""Nobody wrote these yet when the bundle was made."""


def types() -> set[str]:
    """The types of all events of the golden bundle."""
    found = set()
    with tarfile.open(BUNDLE) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if member.name.startswith("tile/entries/") and content is not None:
                found |= {orjson.loads(body)["type"] for body in unpack_entries(content.read())}
    return found


def test_the_golden_bundle_verifies() -> None:
    """What the first version wrote is accepted by every later one, decision by decision."""
    verdict = audit(BUNDLE.read_bytes())
    assert (reasons(verdict), verdict.decided) == ([], True)


def test_the_golden_bundle_amounts_to_what_it_did() -> None:
    """No later version adds its events up to anything else."""
    state = audit(BUNDLE.read_bytes()).state
    assert state is not None
    expected = json.loads((GOLDEN / "bundle-1.json").read_text())
    shown = accounts_json(state, by="sex")
    for part in ("sequence", "accounts", "lifetime"):
        assert shown[part] == expected[part]


def test_the_golden_bundle_has_events_of_every_type() -> None:
    """Every type that is written is kept valid by an example of it."""
    assert types() | UNWRITTEN | YOUNGER == set(HANDLERS)


def test_the_minimal_verifier_agrees() -> None:
    """The second verifier accepts the golden bundle, and adds up the same."""
    command = [sys.executable, "-m", "accountant.verify_minimal", "--json", str(BUNDLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    state = audit(BUNDLE.read_bytes()).state
    assert state is not None
    most = state.accounts[lifetime("d")].used.most().tolist()
    total = json.loads(done.stdout)["totals"]["d"]
    assert [int(total["epsilon"]), int(total["delta"])] == most[:2]
