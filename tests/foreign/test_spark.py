"""Spark adds the exported tables up to what DuckDB does, which tests/fleet hold to the service."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from support import ask, gaussian, laplace

from accountant.publishing.fleet.export import write_fleet

from conftest import HERE, Ledger  # isort: skip

QUERIES = ("datasets", "groups", "worst", "rules", "checks")


@pytest.fixture(scope="module")
def folder(open_ledger: Callable[..., Ledger], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with spent, reserved and infinite charges, on everyone and on groups."""
    ledger, made = open_ledger(), tmp_path_factory.mktemp("spark") / "fleet"
    ledger.spend(20)
    post = ledger.world.post
    women = {"subjects": {"sex": ["f"]}}
    kept, back = (post("/grants", ask(laplace("0.25"))).json()["id"] for _ in range(2))
    assert post(f"/grants/{back}/release", {"reason": "never run"}).status_code == 200
    assert post(f"/grants/{kept}/commit", {}).status_code == 200
    assert post("/grants", ask(laplace("0.125"), subjects={"sex": ["m"]})).status_code == 201
    for body in (ask(laplace("0.5"), **women), ask(gaussian("0.1"), **women)):
        assert post("/invocations", body).status_code == 201
    write_fleet(made, ledger.world.service.ledgers, {"fair": ledger.publisher.sign("fair")})
    ledger.world.close()
    return made


def test_spark_adds_up_the_same(foreign_python: Path, folder: Path) -> None:
    """The same SQL, unchanged, gives the same rows on Spark as on DuckDB."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed, which Spark runs on")
    if subprocess.run([foreign_python, "-c", "import pyspark"], check=False).returncode != 0:
        pytest.skip("pyspark is not installed in .venv-foreign")
    program = HERE / "programs" / "spark_totals.py"
    done = subprocess.run(
        [foreign_python, program, folder, *QUERIES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    with duckdb.connect() as engine:
        engine.execute(f"SET file_search_path = '{folder}'")
        for name in ("duckdb", "views"):
            engine.execute((folder / "sql" / f"{name}.sql").read_text())
        for name in QUERIES:
            rows = engine.execute((folder / "sql" / f"{name}.sql").read_text()).fetchall()
            assert found[name] == [[str(value) for value in row] for row in rows], name
            assert bool(rows) == (name != "checks")
