"""Ledgers of the real service, with populations of every relation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Self

import httpx2
import pytest

from accountant import testing
from accountant.client import Client

POLICY = """
policy: queries
rules:
  - {id: lifetime, limit: {epsilon: "1000", delta: "1e-6"}}
  - {id: reasons, require: [purpose]}
"""
COUNTRIES = {"country": ["CH", "JP", "KR"]}
Opens = Callable[..., Client]
"""Opens a ledger of a relation and a membership, with dataset ``visits`` and a large budget."""


class Network(httpx2.BaseTransport):
    """The way to the service, which may be cut."""

    def __init__(self, way: httpx2.BaseTransport) -> None:
        self._way, self.cut = way, False

    @classmethod
    def of(cls, ledger: Client) -> Self:
        """The way of a client that has not sent anything yet."""
        network = cls(ledger._options["transport"])
        ledger._options["transport"] = network
        return network

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Pass it on, if there is a way."""
        if self.cut:
            raise httpx2.ConnectError("cut")
        return self._way.handle_request(request)


@pytest.fixture(scope="session")
def opened() -> Iterator[Opens]:
    """Opens ledgers; they are closed in the end."""
    with ExitStack() as stack:

        def open_one(
            relation: str = "add_or_remove_one",
            membership: str = "public",
            policy: str = POLICY,
            **options: Any,
        ) -> Client:
            about = {"neighbouring": relation, "membership": membership, "dimensions": COUNTRIES}
            return stack.enter_context(testing.ledger(policy, **about, **options))  # type: ignore[arg-type]

        yield open_one


@pytest.fixture(scope="session")
def comes_and_goes(opened: Opens) -> Client:
    """A ledger under add_or_remove_one."""
    return opened()


@pytest.fixture(scope="session")
def replaces(opened: Opens) -> Client:
    """A ledger under replace_one, where it is public who is in which group."""
    return opened("replace_one")
