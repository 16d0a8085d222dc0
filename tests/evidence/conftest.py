"""Houses: services with a home, and witnesses, closed when the tests that share them are over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from house import ROOMS, House, adopt, audit, resident
from support import Clock
from witness import Witness
from witnessing import Witnessed, publication


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Makes services with homes below this test's folder."""
    with houses(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., House]]:
    """Makes services with homes for a file of tests."""
    with houses(tmp_path_factory.mktemp("shared")) as make:
        yield make


@contextmanager
def houses(folder: Path) -> Iterator[Callable[..., House]]:
    """Makes services with homes below a folder, and closes them."""
    made: list[House] = []

    def make(name: str = "home", clock: Clock | None = None) -> House:
        made.append(House(folder / name, clock))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def witnessed(house: Callable[..., House]) -> Iterator[Witnessed]:
    """A house whose policy names ``count`` witnesses, of which ``required`` have to agree."""
    running: list[Witness] = []

    def make(count: int = 1, required: int = 1) -> tuple[House, list[Witness]]:
        made = resident(house())
        made.sign()
        key = audit(made.bundle()).keys[0]
        mine = [Witness(f"witness.example/{n}").trust(key) for n in range(count)]
        running.extend(mine)
        adopt(made, ROOMS, publication(mine, required), confirmed_by="officer")
        return made, mine

    yield make
    for each in running:
        each.close()
