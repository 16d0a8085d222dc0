"""One service for all tests of a run, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from service import NotStarted, Running, running


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The real service; tests that need it are skipped where none can be started."""
    try:
        with running(tmp_path_factory.mktemp("service")) as found:
            yield found
    except NotStarted as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close what a test has opened: an open socket would be reported in another test."""
    yield
    if "served" in request.fixturenames:
        request.getfixturevalue("served").close()
