"""What tests of the report share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from report_desk import Desk


@pytest.fixture
def desk(database: str) -> Iterator[Desk]:
    """A desk on a fresh database."""
    made = Desk(database)
    yield made
    made.ledgers.close()
