"""dbt runs models that were granted; what it ran is committed, what it skipped comes back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ledger import committed
from pages import HOW_TO, code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service import Running

pytest.importorskip("dbt.adapters.duckdb", reason="dbt-duckdb is not installed")

import duckdb

from accountant.adapters.dbt import Undeclared, granted, models
from accountant.client import Client, MayHaveRun, Refused, laplace

pytestmark = pytest.mark.filterwarnings("ignore")  # dbt warns of itself
COUNT, MEAN = laplace(1, 4), laplace("0.5", 4)
NOISE = "{scale} * sign(random() - 0.5) * -ln(random())"
FILES = {
    "dbt_project.yml": "{name: weekly, profile: weekly, models: {+materialized: table}}",
    "profiles.yml": "weekly: {target: dev, outputs: {dev: {type: duckdb, path: weekly.duckdb}}}",
    "models/counts.sql": f"select 10 + {NOISE.format(scale=4)} as n",
    "models/broken.sql": f"select {NOISE.format(scale=4)} + no_such_column as n",
    "models/means.sql": "select n / 10 as mean from {{ ref('broken') }}",
    "models/plain.sql": "select 1 as n",
    "models/models.yml": """
models:
  - name: counts
    config: {meta: {accountant: {dataset: visits, purpose: test, mechanisms: [
      {kind: laplace, sensitivity: 1, scale: 4}]}}}
  - name: broken
    config: {meta: {accountant: {dataset: visits, purpose: test, mechanisms: [
      {kind: laplace, sensitivity: 1, scale: 4}]}}}
  - name: means
    config: {meta: {accountant: {dataset: visits, purpose: test, mechanisms: [
      {kind: laplace, sensitivity: 0.5, scale: 4}]}}}
""",
}


class Project:
    """A dbt project in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.target = folder, folder / "target"

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def dbt(self, *command: str) -> int:
        """Run dbt; return its exit code."""
        env = os.environ | {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
        program = "from dbt.cli.main import cli; cli()"
        found = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, *command],
            cwd=self.folder,
            env=env,
            capture_output=True,
            check=False,
        )
        return found.returncode

    def tables(self) -> set[str]:
        """The tables that dbt has made."""
        file = self.folder / "weekly.duckdb"
        if not file.exists():
            return set()
        with duckdb.connect(str(file)) as database:
            return {str(row[0]) for row in database.execute("show tables").fetchall()}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, parsed once: that takes dbt the longest."""
    made = Project(tmp_path_factory.mktemp("template"))
    for name, text in FILES.items():
        made.write(name, text)
    assert made.dbt("parse") == 0
    return made.folder


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Project:
    """A copy of its own for each test."""
    return Project(Path(shutil.copytree(template, tmp_path / "project")))


@pytest.fixture
def population(served: Running) -> str:
    """A limit of epsilon 1."""
    return served.population()


@pytest.fixture
def ledger(served: Running, population: str) -> Iterator[Client]:
    """A pipeline's client of that population."""
    with served.client(population) as client:
        yield client


def states(ledger: Client, grants: dict[str, Any]) -> dict[str, str]:
    """The state of each model's grant."""
    named = {unique_id.split(".")[-1]: grant for unique_id, grant in grants.items()}
    return {name: ledger.grant_state(grant.id).state for name, grant in named.items()}


def test_what_dbt_ran_is_committed(
    served: Running, population: str, ledger: Client, project: Project
) -> None:
    """A model that ran is committed with the mechanism of its meta; a plain one needs nothing."""
    with granted(ledger, project.target, run="week-1", select=["counts"]) as grants:
        assert project.dbt("run", "--select", "counts", "plain") == 0
    assert states(ledger, grants) == {"counts": "committed"}
    assert committed(served, population) == [COUNT]
    assert project.tables() == {"counts", "plain"}


def test_what_dbt_skipped_comes_back(ledger: Client, project: Project) -> None:
    """A model that failed may have drawn its noise and is committed; one that was skipped after it
    is released.
    """
    with granted(ledger, project.target, run="week-1") as grants:
        assert project.dbt("run") == 1
    assert states(ledger, grants) == {
        "broken": "committed",
        "counts": "committed",
        "means": "released",
    }


def test_a_refusal_leaves_nothing(
    served: Running, population: str, ledger: Client, project: Project
) -> None:
    """Where one model is refused, dbt does not run, and the others' grants are released."""
    with ledger.grant("visits", [laplace(1, 2)], purpose="test"):
        pass
    before = committed(served, population)
    with pytest.raises(Refused), granted(ledger, project.target, run="week-1"):
        raise AssertionError
    assert committed(served, population) == before
    assert [*ledger.open_grants()] == []
    assert project.tables() == set()


def test_a_run_that_is_tried_again_is_charged_once(
    served: Running, population: str, ledger: Client, project: Project
) -> None:
    """In the same run, what an earlier try ran is stopped, and what it skipped may run now."""
    with granted(ledger, project.target, run="week-1", select=["broken", "means"]):
        project.dbt("run", "--select", "broken", "means")
    with (
        pytest.raises(MayHaveRun),
        granted(ledger, project.target, run="week-1", select=["broken", "means"]),
    ):
        raise AssertionError
    project.write("models/broken.sql", "select 3 as n")  # what it drew is paid for
    project.dbt("parse")
    with granted(ledger, project.target, run="week-1", select=["means"]) as grants:
        assert project.dbt("run", "--select", "means") == 1  # its source is not there
    assert states(ledger, grants) == {"means": "committed"}
    assert committed(served, population) == [COUNT, MEAN]


def test_without_results_everything_is_committed(ledger: Client, project: Project) -> None:
    """A dbt that dies, and leaves the results of an earlier run behind, may have drawn it all."""
    project.dbt("run", "--select", "plain")

    def run(grants: dict[str, Any]) -> None:
        with granted(ledger, project.target, run="week-1", select=["counts"]) as found:
            grants |= found
            raise ConnectionError

    grants: dict[str, Any] = {}
    with pytest.raises(ConnectionError):
        run(grants)
    assert states(ledger, grants) == {"counts": "committed"}


def test_a_model_that_the_results_do_not_name_is_committed(
    ledger: Client, project: Project
) -> None:
    """An interrupted dbt leaves out the models that it was running, as it does those that it was
    not told to run: they may have drawn their noise.
    """
    with granted(ledger, project.target, run="week-1", select=["counts"]) as grants:
        project.dbt("run", "--select", "plain")
    assert states(ledger, grants) == {"counts": "committed"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"metadata": {"invocation_id": "new"}}'])
def test_results_that_cannot_be_read_commit_everything(
    ledger: Client, project: Project, text: str
) -> None:
    """A dbt that was killed while it wrote, or ran out of disk, has run: nothing comes back."""
    with granted(ledger, project.target, run="week-1", select=["counts"]) as grants:
        project.write("target/run_results.json", text)
    assert states(ledger, grants) == {"counts": "committed"}


def test_what_dbt_stops_for_another_model_is_committed(ledger: Client, project: Project) -> None:
    """With --fail-fast dbt calls models skipped whose SQL was running when another one failed."""
    project.write("profiles.yml", FILES["profiles.yml"].replace("duckdb,", "duckdb, threads: 2,"))
    slow = f"select count(*) + {NOISE.format(scale=4)} as n from range(3000000000)"
    project.write("models/counts.sql", slow)
    project.write("models/broken.sql", "select count(*) + no_such_column from range(100)")
    project.dbt("parse")
    with granted(ledger, project.target, run="week-1", select=["counts", "broken"]) as grants:
        assert project.dbt("run", "--fail-fast", "--select", "counts", "broken") == 1
    results = json.loads((project.target / "run_results.json").read_text())["results"]
    assert {each["status"] for each in results} == {"error", "skipped"}
    assert states(ledger, grants) == {"counts": "committed", "broken": "committed"}


def test_what_ran_without_a_grant_is_recorded(
    served: Running, population: str, ledger: Client, project: Project
) -> None:
    """A model beyond the selection is recorded when it has run, and the run fails."""
    with (
        pytest.raises(Undeclared, match="counts"),
        granted(ledger, project.target, run="week-1", select=["means"]),
    ):
        project.dbt("run", "--select", "counts")
    recorded = [e for e in served.events(population) if e["type"] == "invocation.recorded.v1"]
    assert [event["command"]["mechanisms"] for event in recorded] == [[COUNT]]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{dataset: visits}", "needs dataset and mechanisms"),
        ("{dataset: visits, mechanisms: [], epsilon: 1}", "has no field epsilon"),
    ],
)
def test_a_meta_that_says_too_little_is_refused(project: Project, said: str, why: str) -> None:
    """A model whose meta cannot be read is an error that names it."""
    said = f"models: [{{name: plain, config: {{meta: {{accountant: {said}}}}}}}]"
    project.write("models/plain.yml", said)
    project.dbt("parse")
    with pytest.raises(ValueError, match=f"plain.*{why}"):
        models(project.target)


def test_views_are_refused(project: Project) -> None:
    """A view would draw fresh noise whenever it is read, for one charge."""
    project.write("models/counts.sql", "{{ config(materialized='view') }} select 1 as n")
    project.dbt("parse")
    with pytest.raises(ValueError, match="make it a table"):
        models(project.target)


def test_an_unknown_model_is_refused(project: Project) -> None:
    """A selected model that is not in the manifest, or has no meta, is an error."""
    for name in ("plain", "nothing"):
        with pytest.raises(ValueError, match=name):
            models(project.target, [name])


def test_the_page_does_what_it_says(
    served: Running, population: str, ledger: Client, project: Project
) -> None:
    """The meta and the Python of the page, with a model of that name, run as they stand there."""
    page = (HOW_TO / "orchestrators.md").read_text(encoding="utf-8")
    [meta] = re.findall(r"^```yaml\n(models:.+?)^```", page, re.DOTALL | re.MULTILINE)
    project.write("models/weekly.yml", meta)
    project.write("models/weekly_counts.sql", f"select 10 + {NOISE.format(scale=10)} as n")
    names: dict[str, Any] = {"ledger": ledger, "run_id": "week-1"}
    [block] = code("orchestrators.md", "dbt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project.folder)
        patch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        exec(compile(block, "orchestrators.md", "exec"), names)  # noqa: S102 our own page
    assert project.tables() == {"weekly_counts"}
    [found] = committed(served, population)
    assert (found["kind"], found["scale"]) == ("laplace", "10")
