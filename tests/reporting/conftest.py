"""What tests of the report share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from report_desk import Desk

from accountant.publishing.publisher import Publisher
from accountant.store.vault import Vault


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
