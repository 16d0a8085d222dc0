"""Hypothesis profiles and the fixtures that several folders share."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import structlog
from effort import examples
from hypothesis import HealthCheck, settings
from places import Hosted
from report_desk import Desk
from support import OPENED, Clock, World, migrate

from accountant import verify_minimal
from accountant.publishing.publisher import Publisher
from accountant.store.migrate import migrate as apply_migrations
from accountant.store.vault import Vault
from bench.postgres import Server, server

MEMORY = Path("/dev/shm")  # noqa: S108 (pytest makes a folder of its own in it)
ROOM = 4_000_000_000
"""Bytes; with one worker for each of two cores, tests hold a tenth of that at a time."""


def in_memory() -> None:
    """Lets the folders of tests lie in memory, where there is room and nobody named another place:
    tests begin some thousand databases, and each commit would wait for the disk.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    there = os.statvfs(MEMORY)
    if there.f_bavail * there.f_frsize >= ROOM and not there.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


in_memory()
settings.register_profile(
    "default",
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Looks for no garbage among what is collected: all of it is needed to the end. After that it
    is looked for less often than usual.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(5_000, 10, 10)


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> None:
    """A log line for each of some thousand requests would hide what matters."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture(autouse=True, scope="session")
def _each_signature_once() -> Iterator[None]:
    """The second verifier checks each signature of a key once in a process: a check takes two
    milliseconds of pure Python, and archives that differ by a byte have mostly the same ones.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_minimal, "verifies", lru_cache(4_096)(verify_minimal.verifies))
        yield


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Closes the clients that a test has opened, and their doors."""
    before = len(OPENED)
    yield
    while len(OPENED) > before:
        OPENED.pop().close()


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
def desk(database: str) -> Iterator[Desk]:
    """A desk on a fresh database."""
    made = Desk(database)
    yield made
    made.ledgers.close()


@pytest.fixture
def publisher(desk: Desk, tmp_path: Path) -> Publisher:
    """Who signs for the desk's ledger."""
    return Publisher(desk.service, Vault(tmp_path), "example.org")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server, started when the first test wants it."""
    with server() as made:
        made.create("migrated")
        apply_migrations(made.url("app", "migrated"), made.url("owner", "migrated"))
        yield made


@pytest.fixture
def hosted(postgres: Server) -> Iterator[Hosted]:
    """A fresh migrated database of this test's own on PostgreSQL."""
    name = f"t_{secrets.token_hex(6)}"
    postgres.create(name, "migrated")
    yield Hosted(postgres, name)
    for each in (name, f"{name}_copy"):
        postgres.drop(each)


@pytest.fixture
def world(database: str, tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes services with keys and an HTTP client on this test's database; closes them after."""
    made: list[World] = []

    def make(clock: Clock | None = None, url: str = database, **more: Any) -> World:
        if not url.startswith("sqlite:"):
            more = {"home": tmp_path} | more
        made.append(World(url, clock, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
