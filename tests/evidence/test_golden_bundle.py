"""The charter, held to what was written: a bundle that verified once verifies for ever."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import orjson
import pytest
from house import audit, reasons

from accountant.auditing.totals import totals_of
from accountant.budget.reading import TYPES
from accountant.ledger.events import canonical
from accountant.ledger.tiles import unpack_entries
from accountant.reporting.statement import accounts_json

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "evidence"
BUNDLES = sorted(GOLDEN.glob("*.tar"))
UNWRITTEN = {"engine.adopted.v1", "charge.revalued.v1"}
"""Nobody writes these before a bound is corrected for the first time."""

every_bundle = pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.stem)


def types() -> set[str]:
    """The types of all events of the golden bundles."""
    found = set()
    for bundle in BUNDLES:
        with tarfile.open(bundle) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if member.name.startswith("tile/entries/") and content is not None:
                    found |= {orjson.loads(body)["type"] for body in unpack_entries(content.read())}
    return found


@every_bundle
def test_the_golden_bundle_verifies(bundle: Path) -> None:
    """What an old version wrote is accepted by every later one, decision by decision."""
    verdict = audit(bundle.read_bytes())
    assert (reasons(verdict), verdict.decided) == ([], True)


@every_bundle
def test_the_golden_bundle_amounts_to_what_it_did(bundle: Path) -> None:
    """No later version adds its events up to anything else."""
    state = audit(bundle.read_bytes()).state
    assert state is not None
    expected = json.loads(bundle.with_suffix(".json").read_text())
    shown = accounts_json(state, by="sex")
    for part in ("sequence", "accounts", "lifetime"):
        assert shown[part] == expected[part]


def test_the_golden_bundles_have_events_of_every_type() -> None:
    """Every type that is written is kept valid by an example of it."""
    assert types() | UNWRITTEN == set(TYPES)


@every_bundle
def test_the_minimal_verifier_agrees(bundle: Path) -> None:
    """The second verifier accepts the golden bundle, and adds up the same."""
    command = [sys.executable, "-m", "accountant.verify_minimal", "--json", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    state = audit(bundle.read_bytes()).state
    assert state is not None
    assert canonical({"accounts": json.loads(done.stdout)["totals"]}) == totals_of(state)
