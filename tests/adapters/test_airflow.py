"""Airflow's retries are charged once: real DAGs, run by Airflow itself on a database of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ledger import committed
from pages import code

if TYPE_CHECKING:
    from service import Running

pytest.importorskip("airflow", reason="apache-airflow is not installed")

from accountant.client import laplace

pytestmark = pytest.mark.filterwarnings("ignore")  # Airflow warns of itself
COUNT = laplace(1, 4)
DAGS = """
import json, os, sys
from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import dag, task

from accountant.adapters.airflow import charged, connection, granted
from accountant.client import laplace

NOW = {"retries": 3, "retry_delay": timedelta(seconds=0)}
PEOPLE = json.loads(os.environ["PEOPLE"])
COUNT = laplace(1, 4)

def drawn(name):
    with Path(os.environ["DRAWN"]).open("a") as stream:
        stream.write(name + chr(10))
    return Path(os.environ["DRAWN"]).read_text().split().count(name)

def ledger(name):
    return connection("accountant", PEOPLE[name])

def dag_of(name):
    return dag(dag_id=name, schedule=None, start_date=datetime(2026, 1, 1), catchup=False)

@dag_of("decorated")
def decorated():
    @task(**NOW)
    @charged(ledger("decorated"), "visits", [COUNT], purpose="test")
    def count(value):
        return drawn("decorated") + value
    count.expand(value=[1, 2])

@dag_of("after")
def after():
    @task(**NOW)
    def count():
        with granted(ledger("after"), "visits", [COUNT], purpose="test"):
            drawn("after")
            raise ConnectionError("the answer could not be written")
    count()

@dag_of("before")
def before():
    @task(**NOW)
    def count():
        drawn_here = drawn("tries-before")
        with granted(ledger("before"), "visits", [COUNT], purpose="test", tracked=True) as grant:
            if drawn_here < 3:
                raise ConnectionError("the table is not there yet")
            grant.use(COUNT)
            drawn("before")
    count()

@dag_of("refused")
def refused():
    @task(**NOW)
    def count():
        drawn("tries-refused")
        with granted(ledger("refused"), "visits", [laplace(1, "0.1")], purpose="test"):
            drawn("refused")
    count()

ALL = [decorated(), after(), before(), refused()]
if __name__ == "__main__":
    states = {each.dag_id: str(each.test().state) for each in ALL}
    Path(sys.argv[1]).write_text(json.dumps(states))
"""

PAGE = """
import json, sys
from datetime import datetime
from pathlib import Path

from airflow.sdk import dag

def read():
    return [1, 2]

def draw(rows):
    return float(len(rows))

{page}
@dag(dag_id="page", schedule=None, start_date=datetime(2026, 1, 1), catchup=False)
def page():
    weekly()
    careful()

made = page()
if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps({{"page": str(made.test().state)}}))
"""


@dataclass
class Ran:
    """How the runs ended, which lines their tasks wrote, and in which populations."""

    states: dict[str, str]
    drawn: list[str]
    people: dict[str, str]


@pytest.fixture(scope="module")
def ran(served: Running, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """All DAGs, run once each."""
    home = tmp_path_factory.mktemp("airflow")
    names = ("decorated", "after", "before", "refused", "page")
    people = {name: served.population() for name in names}
    folder = home / "dags"
    folder.mkdir()
    [block] = code("orchestrators.md", "Airflow")
    for name, text in {"paid": DAGS, "page": PAGE.format(page=block)}.items():
        (folder / f"{name}.py").write_text(text)
    connection = {"conn_type": "http", "host": served.url, "password": served.keys["pipeline"]}
    connection["extra"] = json.dumps({"population": people["page"]})
    env = os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_ACCOUNTANT": json.dumps(connection),
        "PEOPLE": json.dumps(people),
        "DRAWN": str(home / "drawn.txt"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }

    def run(*command: str) -> None:
        found = subprocess.run(
            [sys.executable, *command], env=env, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]

    run("-m", "airflow", "db", "migrate")
    run("-m", "airflow", "dags", "reserialize")
    states = {}
    for name in ("paid", "page"):
        run(str(folder / f"{name}.py"), str(home / f"{name}.json"))
        states |= json.loads((home / f"{name}.json").read_text())
    return Ran(states, (home / "drawn.txt").read_text().split(), people)


def outcome(ran: Ran, name: str, served: Running) -> tuple[str, int, list[dict[str, Any]]]:
    """How a DAG ended, how often it drew, and what it was charged."""
    return ran.states[name], ran.drawn.count(name), committed(served, ran.people[name])


def test_mapped_tasks_are_charged_each(served: Running, ran: Ran) -> None:
    """A decorated task that is mapped over two values draws twice, and is charged for both."""
    assert outcome(ran, "decorated", served) == ("success", 2, [COUNT, COUNT])


def test_a_retry_after_noise_draws_nothing(served: Running, ran: Ran) -> None:
    """A task that failed after its noise fails for good at its second try; it is charged once."""
    assert outcome(ran, "after", served) == ("failed", 1, [COUNT])


def test_a_retry_before_noise_goes_on(served: Running, ran: Ran) -> None:
    """Two tries that drew nothing cost nothing; the third draws and is charged."""
    assert outcome(ran, "before", served) == ("success", 1, [COUNT])
    assert ran.drawn.count("tries-before") == 3


def test_a_refusal_is_not_tried_again(served: Running, ran: Ran) -> None:
    """A refused task draws nothing, and Airflow does not retry it."""
    assert outcome(ran, "refused", served) == ("failed", 0, [])
    assert ran.drawn.count("tries-refused") == 1


def test_the_page_does_what_it_says(served: Running, ran: Ran) -> None:
    """The two tasks of the page run as they stand there; each is charged for its noise."""
    mechanisms = committed(served, ran.people["page"])
    assert ran.states["page"] == "success"
    assert mechanisms == [laplace(1, 10)] * 2
