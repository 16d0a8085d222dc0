"""Hypothesis profiles and the fixtures that several folders share."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from support import Clock, World, migrate

settings.register_profile(
    "default",
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> None:
    """A log line for each of some thousand requests would hide what matters."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database file without an event; tests work on copies."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def database(empty_database: Path, tmp_path: Path) -> str:
    """The URL of a fresh migrated database of this test's own."""
    path = tmp_path / "accountant.db"
    shutil.copy(empty_database, path)
    return f"sqlite:///{path}"


@pytest.fixture
def world(database: str) -> Iterator[Callable[..., World]]:
    """Makes services with keys and an HTTP client on this test's database; closes them after."""
    made: list[World] = []

    def make(clock: Clock | None = None, url: str = database, **more: Any) -> World:
        made.append(World(url, clock, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
