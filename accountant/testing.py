"""A ledger for the unit tests of pipelines: the real service and its rules, inside the process.

::

    from decimal import Decimal
    from accountant.testing import ledger

    def test_the_dashboard_pays_for_two_counts():
        with ledger(epsilon=1, datasets=["visits"]) as visits:
            dashboard(visits)                       # takes the client that it takes in production
            assert visits.accounts()["limit"].total.spent == Decimal("0.5")

It decides, prices and refuses as the service does, for it is the service: nothing is imitated. It
listens at no port, and what it stored is gone with the process. The first ledger takes a second to
start, each further one some milliseconds.
"""

from __future__ import annotations

import asyncio
import atexit
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx2

from accountant.api.app import create_app
from accountant.client import AsyncClient, Client, Registrar
from accountant.client.amounts import Amount, exact
from accountant.config.settings import Settings
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault

__all__ = ["async_ledger", "ledger"]

_URL: Final = "http://inside"
_ROLES: Final = {"admin": "admin", "officer": "officer", "pipeline": "pipeline"}
_numbers: Final = count(1)


@contextmanager
def ledger(
    policy: str | None = None,
    *,
    epsilon: Amount = 1,
    delta: Amount = "1e-6",
    datasets: Sequence[str] = ("visits",),
    dimensions: Mapping[str, Sequence[str]] | None = None,
    privacy_unit: str = "person",
    neighbouring: str = "add_or_remove_one",
    membership: str = "private",
    units: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[Client]:
    """Yield the client of a new population whose ``datasets`` have nothing spent.

    ``policy`` is the text of a policy file; without it one rule, ``limit``, blocks beyond (epsilon,
    delta) on each dataset. ``options`` are the client's, for instance ``spool``.
    """
    inside = _inside()
    about: dict[str, Any] = {"privacy_unit": privacy_unit, "neighbouring": neighbouring}
    about |= {"membership": membership, "dimensions": dimensions or {}, "units": units or {}}
    name = inside.population(policy or _limit(epsilon, delta), datasets, about)
    options = {"transport": inside.transport} | options
    with Client(_URL, inside.keys["pipeline"], name, **options) as client:
        yield client


@asynccontextmanager
async def async_ledger(policy: str | None = None, **about: Any) -> AsyncIterator[AsyncClient]:
    """Yield the asynchronous client of a new population; the parameters are those of ``ledger``."""
    with ledger(policy, **about) as client:
        inside = _inside()
        transport = httpx2.ASGITransport(inside.app)
        key = inside.keys["pipeline"]
        async with AsyncClient(_URL, key, client.population, transport=transport) as awaited:
            yield awaited


def _limit(epsilon: Amount, delta: Amount) -> str:
    limit = f"{{epsilon: {exact(epsilon)}, delta: {exact(delta)}}}"
    return f"policy: test\nrules:\n  - {{id: limit, limit: {limit}}}\n"


class _Inside:
    """The service of this process, in a folder that goes with it."""

    def __init__(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="accountant-testing-")
        home = Path(folder.name)
        url = f"sqlite:///{home}/accountant.db"
        migrate(url)
        vault = Vault(home)
        service = Service(open_ledgers(url), vault=vault)
        settings = Settings(home=home)
        self.app = create_app(service, settings, Publisher(service, vault, settings.origin))
        create = service.credentials.create
        self.keys = {name: create(name, role, "test") for name, role in _ROLES.items()}  # type: ignore[arg-type]
        self.transport = _Blocking(self.app)
        atexit.register(folder.cleanup)
        atexit.register(service.close)

    def population(
        self,
        policy: str,
        datasets: Sequence[str],
        about: Mapping[str, Any],
    ) -> str:
        """Register a new population with its datasets and policy. Return its name."""
        name = f"people-{next(_numbers)}"
        with Registrar(_URL, self.keys["admin"], name, transport=self.transport) as registrar:
            registrar.register(**about)
            for dataset in datasets:
                registrar.dataset(dataset, namespace=name, name=dataset)
            first = registrar.policy(policy)
        with Registrar(_URL, self.keys["officer"], name, transport=self.transport) as second:
            second.confirm(first["proposal"], first["digest"])
        return name


@cache
def _inside() -> _Inside:
    return _Inside()


class _Blocking(httpx2.BaseTransport):
    """Hands requests to an application on an event loop of its own."""

    def __init__(self, app: Any) -> None:
        self._application = httpx2.ASGITransport(app)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Wait for the whole answer."""
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._application.handle_async_request(request)
        content = await response.aread()
        return httpx2.Response(response.status_code, headers=response.headers, content=content)
