"""A service to which the documented story can be told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from story_runner import Told


@pytest.fixture
def told(database: str) -> Iterator[Told]:
    """A service on a database of its own."""
    with closing(Told(database)) as made:
        yield made
