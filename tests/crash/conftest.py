"""A service of each test's own, on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.deployment import Deployment, copied, on_sqlite
from harness.programs import Launcher

DATABASES = ("sqlite",)
"""The kinds of databases that every test is run on."""


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Starts services in a tenth of the time."""
    started = Launcher()
    yield started
    started.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> Deployment:
    """A deployment with a database and keys, to be copied."""
    made = on_sqlite(tmp_path_factory.mktemp("template") / "home", launcher)
    made.set_up()
    return made


@pytest.fixture(params=DATABASES)
def deployment(tmp_path: Path, launcher: Launcher, template: Deployment) -> Deployment:
    """A deployment of this test's own, with a database and keys."""
    return copied(template, tmp_path / "home", launcher)
