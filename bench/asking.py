"""Who asks in the benchmarks: populations, policies, and a mix of requests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, cycle
from math import lcm
from typing import Any, Final

import orjson

from accountant.api.quick import Quick
from accountant.budget.commands import (
    AdoptPolicy,
    AskGrant,
    ConfirmChange,
    Envelope,
    RegisterDataset,
    RegisterPopulation,
)
from accountant.budget.policy_file import parse_policy
from accountant.runtime.service import Service
from bench.core import POLICY
from bench.load import drive, request
from bench.mixed import opening, requests
from bench.running import Served

_PAGE: Final = 1_024

PEOPLE: Final = {k: v for k, v in opening()[0].command.to_json().items() if k != "type"}
"""The population of ``bench.mixed``, as the body of a request."""
HOT: Final = "data"
"""The dataset that everybody asks about."""

FIVE_RULES: Final = POLICY + (
    "  - {id: each, per: client, limit: {epsilon: 1000000, delta: 1e-5}, gate: zcdp}\n"
    "  - {id: sure, limit: {epsilon: 1000000, delta: 1e-5}, gate: basic}\n"
)


def bodies(datasets: list[str]) -> list[dict[str, Any]]:
    """Bodies to send over and over: twenty different ones, a third with a purpose, the datasets by
    turns.
    """
    mix = requests(random.Random(1))  # noqa: S311 no secret
    found = []
    for i in range(lcm(len(mix), 3, len(datasets))):
        body = mix[i % len(mix)] | {"dataset": datasets[i % len(datasets)]}
        found.append(body | {"purpose": f"nightly run {i}"} if i % 3 == 0 else body)
    return found


def unseen(many: int, start: int) -> list[dict[str, Any]]:
    """Bodies none of which was ever seen: each has its own noise scale, group and purpose. Those
    of other starts differ too, if they are as far apart as they are many.
    """
    ages = [str(age) for age in range(0, 100, 10)]
    found = []
    for i in range(start, start + many):
        chosen = [age for place, age in enumerate(ages) if (1 + i % 1_023) >> place & 1]
        sexes = (["f"], ["m"], ["f", "m"])[i // 1_023 % 3]
        scale = {"kind": "laplace", "sensitivity": "1", "scale": f"{100 + i / 1000:.3f}"}
        purpose = f"study {i} of the year"
        subjects = {"age": chosen, "sex": sexes}
        body = {"dataset": HOT, "subjects": subjects, "mechanisms": [scale], "purpose": purpose}
        found.append(body)
    return found


def grants(
    path: str, headers: Mapping[str, str], asked: Sequence[Any], many: int, run: str
) -> list[bytes]:
    """So many requests with these bodies, each with a key of its own in this run."""
    mark = b"{key}"
    made = [
        request("POST", path, body, {**headers, "Idempotency-Key": mark.decode()}).split(mark, 1)
        for body in asked
    ]
    return [
        b"%b%b-%d%b" % (before, run.encode(), i, after)
        for i, (before, after) in zip(range(many), cycle(made), strict=False)
    ]


def register(
    served: Served,
    population: str,
    policy: str,
    datasets: list[str],
    dimensions: dict[str, list[str]] | None = None,
) -> None:
    """The population of ``bench.mixed``, or one of other dimensions, under another policy and with
    other datasets.
    """
    people = PEOPLE | ({"dimensions": dimensions} if dimensions else {})
    path = f"/v1/populations/{population}"
    with served.client() as client:
        client.put(path, json=people).raise_for_status()
    about = [
        request(
            "PUT",
            f"{path}/datasets/{name}",
            {"namespace": population, "name": name},
            served.headers,
        )
        for name in datasets
    ]
    drive(served.port, about, min(32, len(about)))
    with served.client() as client:
        proposed = client.put(f"{path}/policy", content=policy).raise_for_status().json()
    confirm(served, population, proposed)


def confirm(served: Served, population: str, answer: dict[str, Any]) -> None:
    """Confirm what an answer proposes, if it does, as a second person."""
    if "proposal" in answer:
        path = f"/v1/populations/{population}/proposals/{answer['proposal']}/confirm"
        second = {"Authorization": f"Bearer {served.officer}"}
        with served.client() as client:
            digest = {"digest": answer["digest"]}
            client.post(path, json=digest, headers=second).raise_for_status()


def open_ledger(
    service: Service,
    ledger: str,
    datasets: Sequence[str] = (HOT,),
    dimensions: dict[str, list[str]] | None = None,
) -> None:
    """The population of ``bench.mixed``, or one of other dimensions, with these datasets, in this
    process.
    """
    policy, digest = parse_policy(POLICY)
    about = [RegisterDataset(id=name, namespace=ledger, name=name) for name in datasets]
    adopting = AdoptPolicy(policy=policy.to_json(), source_digest=digest)
    first = opening()[0]
    if dimensions is not None:
        people = PEOPLE | {"dimensions": dimensions}
        first = Envelope("admin", RegisterPopulation.model_validate(people))
    for asked in (first, *(Envelope("admin", one) for one in (*about, adopting))):
        service.execute(ledger, asked)
    [one], _ = service.proposals(ledger)
    confirmed = ConfirmChange(proposal=one.sequence, digest=one.digest)
    service.confirm(ledger, Envelope("second", confirmed))


def endless_grants(prefix: str) -> Iterator[Envelope]:
    """Grants to ask for on the hot dataset, without end, with keys that begin with ``prefix``: read
    from bytes that repeat, as the service reads them.
    """
    return _read(prefix, cycle([orjson.dumps(body) for body in bodies([HOT])]))


def endless_unseen(prefix: str) -> Iterator[Envelope]:
    """The same with bodies none of which was ever seen."""
    pages = (unseen(_PAGE, start) for start in count(step=_PAGE))
    return _read(prefix, (orjson.dumps(body) for page in pages for body in page))


def _read(prefix: str, bodies: Iterable[bytes]) -> Iterator[Envelope]:
    quick = Quick()
    for number, body in enumerate(bodies):
        yield quick.one(AskGrant, "bench", body, f"{prefix}{number}")
