"""A service under a mixed load for hours: its memory has to stay flat.

``python -m bench.soak`` runs for two hours; ``--minutes`` says otherwise. Almost no body repeats.
Pipelines ask, retry, commit in full or in part, release, forget to settle, send batches, record
what ran, count the answers of sessions, preview, and make mistakes; officers read accounts and
reports. The table has the resident memory of the service by minute.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx2

from bench.asking import HOT, register
from bench.core import POLICY
from bench.running import Served, processor_seconds, served

THREADS: Final = 6
RATE: Final = 140
"""Requests a second of all threads together."""
_PATIENCE: Final = 900.0
"""Seconds that a report of a long ledger may take."""
POPULATIONS: Final = ("lifetime", "monthly")
MONTHLY: Final = POLICY.replace("limit:", "window: month, limit:")
KINDS: Final = ("laplace", "discrete_laplace", "gaussian", "exponential")
SHARES: Final[dict[str, float]] = {
    "grant": 60, "retry": 4, "batch": 4, "record": 8, "session": 2, "preview": 4, "wrong": 4,
    "forgotten": 4, "refused": 2, "accounts": 1, "report": 0.001,
}  # fmt: skip
"""How often each kind of call is chosen."""

Body = dict[str, Any]


class Pipeline:
    """One client that calls until it is told to stop; ``done`` counts its answers by status."""

    def __init__(self, client: httpx2.Client, seed: int, numbers: Callable[[], int]) -> None:
        self._client, self._numbers = client, numbers
        self._draw = random.Random(seed)  # noqa: S311 no secret
        self.done: Counter[str] = Counter()

    def run(self, stop: threading.Event) -> None:
        """Call at this client's share of the rate."""
        due = time.monotonic()
        names, weights = list(SHARES), list(SHARES.values())
        while not stop.is_set():
            due += self._draw.expovariate(RATE / THREADS / 2)  # most choices are two calls
            stop.wait(max(0.0, due - time.monotonic()))
            [name] = self._draw.choices(names, weights)
            getattr(self, f"_{name}")(f"/v1/populations/{self._draw.choice(POPULATIONS)}")

    def _send(self, what: str, path: str, body: Any = None, key: str | None = None) -> Body:
        headers = {"Idempotency-Key": key or f"soak-{self._numbers()}"}
        if body is None:
            answer = self._client.get(path, timeout=_PATIENCE)
        else:
            answer = self._client.post(path, json=body, headers=headers)
        self.done[f"{what} {answer.status_code}"] += 1
        kind = answer.headers.get("content-type", "")
        return answer.json() if kind.endswith("json") else {}

    def _body(self, scale: float = 500.0) -> Body:
        """A request that was hardly ever made before."""
        number, kind = self._numbers(), self._draw.choice(KINDS)
        mechanism: Body = {
            "kind": kind,
            "sensitivity": "1",
            "scale": f"{scale * (1 + number / 1e8):.12g}",
        }
        mechanism |= {"delta": "1e-12"} if kind == "gaussian" else {}
        ages = self._draw.sample([str(age) for age in range(0, 100, 10)], self._draw.randint(1, 9))
        group = {"age": sorted(ages), "sex": self._draw.choice((["f"], ["m"], ["f", "m"]))}
        purpose = f"study {number}"
        return {"dataset": HOT, "subjects": group, "mechanisms": [mechanism], "purpose": purpose}

    def _grant(self, people: str) -> None:
        body = self._body() | {"ttl_seconds": 300}
        granted = self._send("grant", f"{people}/grants", body)
        ending = self._draw.choice(("commit", "commit", "commit", "release"))
        settled = {"reason": "the query failed"} if ending == "release" else {}
        self._send(ending, f"{people}/grants/{granted['id']}/{ending}", settled)

    def _retry(self, people: str) -> None:
        body, key = self._body() | {"ttl_seconds": 300}, f"soak-{self._numbers()}"
        for _ in range(2):
            granted = self._send("retry", f"{people}/grants", body, key)
        self._send("commit", f"{people}/grants/{granted['id']}/commit", {})

    def _forgotten(self, people: str) -> None:
        self._send("forgotten", f"{people}/grants", self._body() | {"ttl_seconds": 120})

    def _batch(self, people: str) -> None:
        items = [{"type": "record_invocations", **self._body()} for _ in range(5)]
        self._send("batch", f"{people}/batch", {"items": items})

    def _record(self, people: str) -> None:
        self._send("record", f"{people}/invocations", self._body())

    def _session(self, people: str) -> None:
        scales = {"threshold_scale": "500", "comparison_scale": f"{2000 + self._numbers() / 1e6:f}"}
        mechanism = {"kind": "sparse_vector", "sensitivity": "1", "max_positives": 3, **scales}
        opened = self._send(
            "session", f"{people}/sparse-vector", {"dataset": HOT, "mechanism": mechanism}
        )
        about = f"{people}/sparse-vector/{opened['id']}"
        self._send("answers", f"{about}/answers", {"positives": 1, "negatives": 20})
        self._send("close", f"{about}/close", {})

    def _preview(self, people: str) -> None:
        self._send("preview", f"{people}/preview", self._body())

    def _wrong(self, people: str) -> None:
        body = self._body()
        body["mechanisms"][0]["scale"] = self._draw.choice(("-1", "much", None, "0"))
        self._send("wrong", f"{people}/grants", body)

    def _refused(self, people: str) -> None:
        self._send("refused", f"{people}/grants", self._body(scale=1e-7))

    def _accounts(self, people: str) -> None:
        self._send("accounts", f"{people}/accounts?by=age")

    def _report(self, people: str) -> None:
        self._send("report", f"{people}/report?format=html")


def main() -> None:
    """Runs the load; prints a line a minute, and writes all of them to ``--out``."""
    parser = ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--out", type=Path, help="JSON with the samples")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with served(home, f"sqlite:///{home}/accountant.db") as service:
            for name, policy in zip(POPULATIONS, (POLICY, MONTHLY), strict=True):
                register(service, name, policy, [HOT])
            samples = _measured(service, chosen.minutes)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(samples, indent=1) + "\n")


def _measured(service: Served, minutes: float) -> list[dict[str, float]]:
    stop, numbers = threading.Event(), count()
    pipelines = [Pipeline(service.client(), seed, lambda: next(numbers)) for seed in range(THREADS)]
    threads = [threading.Thread(target=one.run, args=(stop,), daemon=True) for one in pipelines]
    for thread in threads:
        thread.start()
    samples: list[dict[str, float]] = []
    started = time.monotonic()
    while len(samples) < minutes:
        time.sleep(max(0.0, started + 60 * (len(samples) + 1) - time.monotonic()))
        done = sum((one.done for one in pipelines), Counter[str]())
        samples.append(
            {
                "minute": len(samples) + 1,
                "memory_mb": _resident(service.pid) / 1e6,
                "requests": done.total(),
                "processor_seconds": processor_seconds(service.pid),
            }
        )
        print(json.dumps(samples[-1]), flush=True)  # noqa: T201 a table for people
        if dead := sum(not thread.is_alive() for thread in threads):
            raise RuntimeError(f"{dead} clients have stopped")
    stop.set()
    for thread in threads:
        thread.join()
    print(dict(sorted(done.items())), file=sys.stderr)  # noqa: T201
    return samples


def _resident(pid: int) -> int:
    """Bytes of memory that a process and its children have."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [own] = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(_resident(int(child)) for child in children)


if __name__ == "__main__":
    main()
