"""END TO END, SLOW (about a minute): ``python -m examples`` runs every kind of query, and its table
says what the service says.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from examples.__main__ import ended
from examples.queries.closing import agrees
from examples.queries.results import Claim

pytestmark = pytest.mark.xdist_group("examples")
"""In one worker: what they share takes long to make."""

SYSTEMS: Final = {
    "primer": {
        "noisy count", "clamped sum", "mean", "second moment", "variance", "standard deviation",
        "Pearson correlation, noisy sums", "correlation, exponential mechanism",
        "exponential mechanism, own score", "median", "quantile 0.25", "quantile 0.9",
    },
    "lecture notes": {
        "randomized response", "forced response", "Laplace mean",
        "exponential mechanism, data sets", "histogram density", "orthogonal series density",
        "Gaussian process on a kernel density", "Bernstein mechanism", "reusable holdout",
    },
    "introduction": {"posterior bounds", "checker of the definition"},
    "local chapter": {
        "randomized response, 5 categories", "unary encoding", "beside it: local",
        "beside it: central",
    },
    "slides": {
        "vector Laplace", "histogram", "sparse vector", "sparse vector with numeric answers",
        "private multiplicative weights, online", "boosting for queries",
        "subsample and aggregate", "propose-test-release, median", "propose-test-release, range",
        "feature selection, exponential mechanism", "feature selection, sparse vector",
        "one adversary over all clients",
    },
}  # fmt: skip
FREE: Final = {"forced response", "posterior bounds", "checker of the definition"}
"""Nothing is drawn for these."""
PICTURES: Final = {
    "beliefs.svg", "correlation.svg", "densities.svg", "function.svg", "local-and-central.svg",
    "questions.svg",
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of one whole run, on a machine whose proxy is out of order."""
    folder = tmp_path_factory.mktemp("examples") / "output"
    run = subprocess.run(
        [sys.executable, "-m", "examples", "--out", str(folder)],
        env=os.environ | {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder, run.stdout


@pytest.fixture(scope="module")
def found(finished: tuple[Path, str]) -> dict[str, Any]:
    """The results file."""
    read: dict[str, Any] = json.loads((finished[0] / "results.json").read_text(encoding="utf-8"))
    return read


def test_every_row_is_there(found: dict[str, Any], finished: tuple[Path, str]) -> None:
    """The table has each kind of query once, under where it comes from, and no other; so have the
    files, and what is printed.
    """
    rows = [(row["source"], row["system"]) for row in found["rows"]]
    assert len(set(rows)) == len(rows)
    assert set(rows) == {(source, each) for source, some in SYSTEMS.items() for each in some}
    folder, output = finished
    table = (folder / "results.md").read_text(encoding="utf-8")
    for source, system in rows:
        assert f"| {source} | {system} |" in table
        assert f"  {system}: " in output


def test_nothing_costs_more_than_asked(found: dict[str, Any]) -> None:
    """Each row is booked at more than nothing and no more than was asked; what draws nothing costs
    nothing.
    """
    for row in found["rows"]:
        booked = Decimal(row["booked"])
        if row["system"] in FREE:
            assert (row["asked"], booked, row["receipt"]) == (None, 0, "")
        else:
            assert 0 < booked <= Decimal(row["asked"]), row


def test_rows_are_booked_as_the_account_says(found: dict[str, Any]) -> None:
    """A row's booked amount is the charge of its grants, and the charges of all grants of a dataset
    add up to what the service's account of it shows.
    """
    charged = {each["receipt"]: each["charged"] for each in found["grants"]}
    assert len(charged) == len(found["grants"])
    for row in found["rows"]:
        if row["asked"] is not None:
            population, grants = row["receipt"].split("/")
            parts = [charged[f"{population}/{grant}"] for grant in grants.split("+")]
            assert sum(Decimal(each[row["currency"]]) for each in parts) == Decimal(row["booked"])
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for each in found["grants"]:
        sums[each["account"]] += Decimal(each["charged"]["epsilon"])
    spent = {each["account"]: Decimal(each["spent"]) for each in found["accounts"]}
    assert spent.keys() == sums.keys()
    assert 0 < spent.pop("patients/curves") < 2  # of a filter that does not add up epsilons
    assert spent == {name: sums[name] for name in spent}


def test_errors_are_finite(found: dict[str, Any]) -> None:
    """Every answer has a finite error, and says how far it is from the truth."""
    for row in found["rows"]:
        if row["system"] in FREE:
            assert row["error"] is None
        else:
            assert math.isfinite(row["error"])
            assert row["error"] > 0
            assert math.isfinite(row["off"])
            assert row["unit"]


def test_every_claim_says_when_it_fails(found: dict[str, Any]) -> None:
    """All hold, and the probabilities with which they can fail are small, also together."""
    assert all(claim["holds"] for claim in found["claims"])
    assert sum(float(claim["chance"]) for claim in found["claims"]) < 1e-4
    told = " ".join(claim["text"] for claim in found["claims"])
    for part in ("1,000 records are too noisy", "10,000 are fine", "within 0.00006", "percents"):
        assert part in told


def test_pictures_and_receipts(finished: tuple[Path, str], found: dict[str, Any]) -> None:
    """Pictures are images, each grant has its proof, and no key is left anywhere."""
    folder, output = finished
    assert {each.name for each in folder.glob("*.svg")} == PICTURES
    for name in PICTURES:
        assert ElementTree.parse(folder / name).getroot().tag.endswith("svg")  # noqa: S314 our own
    proofs = {each.stem: each.read_bytes() for each in (folder / "receipts").iterdir()}
    assert proofs.keys() == {each["receipt"].replace("/", "-") for each in found["grants"]}
    assert all(proof.startswith(b"c2sp.org/tlog-proof@v1") for proof in proofs.values())
    assert "acct_" not in output
    for path in folder.rglob("*"):
        assert path.is_dir() or b"acct_" not in path.read_bytes(), path


def test_the_exit_code_tells_whether_all_holds() -> None:
    """One claim that does not hold is enough; a run without claims has shown nothing."""
    good, bad = (Claim("a", "1", holds=holds, chance="0") for holds in (True, False))
    assert ended([good, good], 1.0) == 0
    assert ended([good, bad], 1.0) == 1
    assert ended([], 1.0) == 1


@pytest.mark.parametrize(
    ("changed", "agreed"),
    [
        ({}, True),
        ({"spent": Decimal("0.3")}, False),
        ({"reserved": Decimal("0.1")}, False),
        ({"gate": "zcdp"}, True),
        ({"gate": "zcdp", "spent": Decimal(0)}, False),
    ],
)
def test_an_account_that_differs_is_noticed(changed: dict[str, Any], agreed: bool) -> None:
    """A sum that is off, a grant that is still open, and an account that shows nothing."""
    account = {"gate": "basic", "spent": Decimal("0.2"), "booked": Decimal("0.2")}
    assert agrees(account | {"reserved": Decimal(0)} | changed) is agreed
