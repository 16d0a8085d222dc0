"""A service of each test's own, on each kind of database."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.deployment import Deployment, copied, on_postgres, on_sqlite
from harness.effort import effort
from harness.programs import Launcher
from harness.recording import traceable
from places import Hosted

from bench.postgres import Server

DATABASES = {"sqlite": "on_file", "postgres": "on_server"}
"""The kinds of databases that tests are run on, and the fixture of a deployment on each."""


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Starts services in a tenth of the time."""
    started = Launcher()
    yield started
    started.close()


@pytest.fixture(scope="session")
def strace() -> None:
    """Skips a test where nobody may trace: to find out takes a moment, and a process to look at."""
    if not traceable():
        pytest.skip("strace is not installed, or may not attach to a process")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> Deployment:
    """A deployment with a database and keys, to be copied."""
    made = on_sqlite(tmp_path_factory.mktemp("template") / "home", launcher)
    made.set_up()
    return made


@pytest.fixture(scope="session")
def hosted_template(
    tmp_path_factory: pytest.TempPathFactory, launcher: Launcher, postgres: Server
) -> Deployment:
    """The same on PostgreSQL."""
    postgres.create("crash")
    home = tmp_path_factory.mktemp("template") / "home"
    made = on_postgres(home, launcher, Hosted(postgres, "crash"))
    home.mkdir()
    made.set_up()
    return made


@pytest.fixture
def on_file(tmp_path: Path, launcher: Launcher, template: Deployment) -> Deployment:
    """A deployment of this test's own, with a database and keys."""
    return copied(template, on_sqlite(tmp_path / "home", launcher))


@pytest.fixture
def hosted(postgres: Server, hosted_template: Deployment) -> Iterator[Hosted]:
    """A database of this test's own on PostgreSQL, with those keys."""
    name = f"c_{secrets.token_hex(6)}"
    postgres.create(name, "crash")
    yield Hosted(postgres, name)
    postgres.drop(name)


@pytest.fixture
def on_server(
    tmp_path: Path, launcher: Launcher, hosted_template: Deployment, hosted: Hosted
) -> Deployment:
    """The same on PostgreSQL."""
    return copied(hosted_template, on_postgres(tmp_path / "home", launcher, hosted))


@pytest.fixture(params=DATABASES)
def either(request: pytest.FixtureRequest) -> Deployment:
    """A deployment of this test's own, on each kind of database."""
    made: Deployment = request.getfixturevalue(DATABASES[request.param])
    return made


@pytest.fixture(params=effort(["sqlite"], list(DATABASES)))
def deployment(request: pytest.FixtureRequest) -> Deployment:
    """The same where the kind of database matters little: if time is short, on a file."""
    made: Deployment = request.getfixturevalue(DATABASES[request.param])
    return made
