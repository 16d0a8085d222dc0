"""The HTTP door: durable grants beside an empty POST of the same server and framework."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI

from accountant import logs
from accountant.api.app import create_app
from accountant.migrate import migrate
from accountant.service import Service
from accountant.settings import Settings
from accountant.store.ledgers import Ledgers
from bench.core import POLICY

CONNECTIONS = 32
REQUESTS = 2_000


def _serve(app: FastAPI) -> tuple[uvicorn.Server, str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    return server, f"http://127.0.0.1:{port}"


def _rate(base: str, send: Callable[[httpx2.Client, int], int]) -> tuple[float, float]:
    """(requests a second, 99th percentile in ms) over CONNECTIONS connections."""
    each = REQUESTS // CONNECTIONS
    latencies: list[float] = []

    def work(worker: int) -> None:
        with httpx2.Client(base_url=base) as client:
            for i in range(each):
                started = time.perf_counter()
                status = send(client, worker * each + i)
                latencies.append(time.perf_counter() - started)
                if status >= 400:
                    raise RuntimeError(f"answered {status}")

    started = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for done in [pool.submit(work, worker) for worker in range(CONNECTIONS)]:
            done.result()
    seconds = time.perf_counter() - started
    return len(latencies) / seconds, sorted(latencies)[int(len(latencies) * 0.99)] * 1e3


def durable_grants(folder: Path) -> list[dict[str, Any]]:
    """Durable grants over HTTP on one hot dataset, 32 connections."""
    logs.configure((folder / "service.log").open("w"))
    url = f"sqlite:///{folder}/bench.db"
    migrate(url)
    service = Service(Ledgers(url))
    secret = service.credentials.create("bench", "admin", "bench")
    app = create_app(service, Settings(home=folder))

    @app.post("/empty")
    async def empty() -> dict[str, str]:
        return {}

    server, base = _serve(app)
    headers = {"Authorization": f"Bearer {secret}"}
    with httpx2.Client(base_url=base, headers=headers) as client:
        population = {
            "privacy_unit": "person",
            "neighbouring": "add_or_remove_one",
            "membership": "public",
        }
        path = "/v1/populations/bench"
        client.put(path, json=population).raise_for_status()
        dataset = {"namespace": "bench", "name": "data"}
        client.put(f"{path}/datasets/data", json=dataset).raise_for_status()
        client.put(f"{path}/policy", content=POLICY).raise_for_status()
    body = {
        "dataset": "data",
        "purpose": "bench",
        "mechanisms": [{"kind": "laplace", "sensitivity": "1", "scale": "100"}],
    }

    def ask(client: httpx2.Client, i: int) -> int:
        sent = headers | {"Idempotency-Key": f"k{i}"}
        return client.post(f"{path}/grants", json=body, headers=sent).status_code

    plain, plain_p99 = _rate(base, lambda client, _: client.post("/empty", json=body).status_code)
    grants, grants_p99 = _rate(base, ask)
    server.should_exit = True
    return [
        {"what": "empty POST", "value": plain, "unit": "requests/s"},
        {"what": "empty POST, p99", "value": plain_p99, "unit": "ms"},
        {"what": "durable grants", "value": grants, "unit": "grants/s"},
        {"what": "durable grants, p99", "value": grants_p99, "unit": "ms"},
        {
            "what": "durable grants",
            "value": grants / plain,
            "unit": "ratio",
            "beside": "empty POST (client and server share two cores)",
        },
    ]
