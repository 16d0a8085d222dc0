"""What the tests of messages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from receiving import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver."""
    made = Receiver()
    yield made
    made.end.set()
    made.server.shutdown()
    made.server.server_close()
