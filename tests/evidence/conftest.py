"""Houses: services with a home, and witnesses, closed when the test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import ROOMS, House, adopt, audit, resident
from support import Clock
from witness import Witness
from witnessing import Witnessed, publication


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Makes services with homes below this test's folder."""
    made: list[House] = []

    def make(name: str = "home", clock: Clock | None = None) -> House:
        made.append(House(tmp_path / name, clock))
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
