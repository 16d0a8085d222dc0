"""Several services on one database charge what a dataset was made from alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from support import World, ask, clean, laplace, make, snapshot

from accountant.budget.commands import Envelope
from accountant.budget.facts import grant_in
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers


def register(service: Service, name: str, *parents: str) -> Any:
    """Registers a dataset; the event."""
    command = make("register_dataset", id=name, namespace="n", name=name, parents=list(parents))
    return service.execute("fair", Envelope("admin", command)).events[-1]


def test_two_services_charge_a_late_ancestor_alike(world: Callable[..., World]) -> None:
    """What one of them registers, the other grants by, and so does one that starts later."""
    made = world().hospital()
    one, other = made.service, Service(open_ledgers(made.url))
    register(one, "late-child", "n/late")
    opened = made.post("/grants", ask(laplace("0.2"), dataset="late-child")).json()["id"]
    ran = make("record_invocations", dataset="late-child", mechanisms=[laplace("0.6")])
    other.execute("fair", Envelope("p", ran, "ran"))
    event = register(one, "late")
    assert event.body["charged_with"] == {"late": ["late-child"]}

    def granted(service: Service, key: str) -> bool:
        """Whether epsilon 0.3 of the ancestor is granted."""
        command = make("ask_grant", dataset="late", mechanisms=[laplace("0.3")])
        answer = service.execute("fair", Envelope("p", command, key))
        return bool(answer.events[-1].type == "grant.reserved.v1")

    assert not granted(other, "while it is open")
    assert made.post(f"/grants/{opened}/release", {"reason": "never run"}).status_code == 200
    assert granted(other, "when it is given back")
    third = Service(open_ledgers(made.url))
    assert not granted(third, "by one that starts now")
    for service in (other, third):
        assert snapshot(service.state("fair")) == snapshot(one.state("fair"))
        service.ledgers.close()
    clean(made)


def test_an_ancestor_is_registered_while_services_grant(world: Callable[..., World]) -> None:
    """Two services grant on data to the last unit while one of them registers what these were made
    from: every grant is charged there once, whether it came before or after.
    """
    made = world().hospital()
    other = Service(open_ledgers(made.url))
    register(made.service, "child", "n/late")
    start, got = threading.Barrier(5), list[str]()

    def race(service: Service, who: str) -> None:
        start.wait()
        for i in range(30):
            command = make("ask_grant", dataset="child", mechanisms=[laplace("0.01")])
            event = service.execute("fair", Envelope(who, command, f"{who}-{i}")).events[-1]
            if event.type == "grant.reserved.v1":
                got.append(grant_in(event))

    racers = [
        threading.Thread(target=race, args=[service, f"{number}-{place}"])
        for number, service in enumerate((made.service, other))
        for place in range(2)
    ]
    for racer in racers:
        racer.start()
    start.wait()
    while len(got) < 20:
        time.sleep(0.001)
    place = register(other, "late").sequence
    for racer in racers:
        racer.join()
    assert len(got) == 100
    assert made.used(dataset="late")[0][0] == made.used(dataset="child")[0][0] == 10**9
    assert 20 <= sum(int(grant[1:]) < place for grant in got) < 100
    assert snapshot(other.state("fair")) == snapshot(made.service.state("fair"))
    other.ledgers.close()
    clean(made)
