"""The same data are the same budget over all populations of a database, whoever registers them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from places import Place
from support import World, by_two, laplace, make

from accountant.budget.commands import Envelope
from accountant.budget.errors import Conflict, Forbidden, Problem
from accountant.budget.outcome import CHARGING
from accountant.reporting.files import rendered, report_of
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers

VISITS = {"namespace": "postgres://warehouse", "name": "public.visits"}
AGAIN = {"namespace": "postgresql://Warehouse:5432", "name": 'Public."Visits"'}
PEOPLE = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}


def opened(service: Service, *names: str) -> None:
    """Registers populations."""
    for name in names:
        service.execute(name, Envelope("admin", make("register_population", **PEOPLE)))


def register(
    service: Service,
    ledger: str,
    id: str,  # noqa: A002
    confirmed_by: str | None = None,
    **fields: Any,
) -> Any:
    """Registers a dataset as an administrator, confirmed if somebody is named."""
    asked = Envelope("admin", make("register_dataset", id=id, **fields))
    if confirmed_by is None:
        return service.execute(ledger, asked)
    return by_two(service, ledger, asked, confirmed_by)


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service whose population ``fair`` has the table of visits as ``v``; two more are empty."""
    found = world().hospital()
    opened(found.service, "east", "west")
    register(found.service, "fair", "v", **VISITS)
    return found


def test_another_population_cannot_have_the_data_unsaid(made: World) -> None:
    """A second population with the same table, in whatever spelling, would have a second budget."""
    before = made.service.head("east")
    for fields in (VISITS, AGAIN):
        with pytest.raises(Conflict, match="as fair/v: a second registration") as refused:
            register(made.service, "east", "w", **fields)
        assert refused.value.code == "dataset-known-elsewhere"
        assert refused.value.numbers["also"] == ["fair/v"]
    assert made.service.head("east") == before
    assert made.service.state("east").datasets == {}
    register(made.service, "east", "w", namespace="postgres://warehouse", name="public.wards")


def test_a_second_use_takes_a_second_person(made: World) -> None:
    """It states where else the data are, and somebody else confirms; the event keeps both."""
    with pytest.raises(Forbidden, match="admin proposed this"):
        register(made.service, "east", "w", **AGAIN, also=["fair/v"], confirmed_by="admin")
    assert made.service.elsewhere("fair") == {}
    answer = register(made.service, "east", "w", **AGAIN, also=["fair/v"], confirmed_by="officer")
    [event] = answer.events
    assert event.body["command"]["also"] == ["fair/v"]
    assert event.body["command"]["confirms"]["proposer"] == "admin"
    with pytest.raises(Conflict) as unsaid:
        register(made.service, "west", "x", **VISITS, also=["fair/v"], confirmed_by="officer")
    assert unsaid.value.numbers["also"] == ["east/w", "fair/v"]
    both = ["fair/v", "east/w"]
    register(made.service, "west", "x", **VISITS, also=both, confirmed_by="officer")
    assert made.service.elsewhere("fair") == {"v": ["east/w", "west/x"]}
    assert made.service.elsewhere("west") == {"x": ["east/w", "fair/v"]}


@pytest.mark.parametrize("also", [["east/nothing"], ["fair/v", "east/nothing"], ["west/v"]])
def test_what_is_stated_has_to_be_so(made: World, also: list[str]) -> None:
    """Neither one use too few nor one too many: what is confirmed is what there is."""
    with pytest.raises(Conflict) as refused:
        register(made.service, "east", "w", **VISITS, also=also, confirmed_by="officer")
    assert refused.value.code == "dataset-known-elsewhere"
    with pytest.raises(Conflict, match="leave `also` out"):
        register(
            made.service, "east", "w", namespace="n", name="new", also=also, confirmed_by="officer"
        )


def test_a_late_ancestor_is_found_too(made: World) -> None:
    """Where a registration charges, the data are known to other populations as any are."""
    register(made.service, "fair", "w", namespace="n", name="w", parents=["n/x"])
    run = make("record_invocations", dataset="w", mechanisms=[laplace("0.5")])
    made.service.execute("fair", Envelope("pipe", run, "one"))
    [event] = register(made.service, "fair", "x", namespace="n", name="x").events
    assert event.type == CHARGING
    with pytest.raises(Conflict, match="as fair/x: a second registration"):
        register(made.service, "east", "x", namespace="n", name="x")


def test_a_registration_can_be_repeated(made: World) -> None:
    """What is registered is registered: a retry, or another owner, need not state it again."""
    for _ in range(2):
        register(made.service, "east", "w", **AGAIN, also=["fair/v"], confirmed_by="officer")
    assert made.service.head("east").size == 3
    register(made.service, "east", "w", **AGAIN, owner="somebody")
    register(made.service, "fair", "v", **VISITS, owner="somebody")
    found = made.service.state("east").datasets["w"]
    assert (found.owner, found.also, found.confirmed_by) == ("somebody", ("fair/v",), "officer")


def test_over_http(made: World) -> None:
    """It is proposed, and confirmed by whoever else reads it; both populations show the use."""
    path = "/v1/populations/east"
    admin = made.auth("admin")
    unsaid = made.http.put(f"{path}/datasets/w", json=VISITS, headers=admin)
    assert unsaid.json()["type"].endswith(":dataset-known-elsewhere")
    answer = made.http.put(f"{path}/datasets/w", json=VISITS | {"also": ["fair/v"]}, headers=admin)
    assert (answer.status_code, answer.json()["effect"]) == (202, {"also": ["fair/v"]})
    confirm = f"{path}/proposals/{answer.json()['proposal']}/confirm"
    digest = {"digest": answer.json()["digest"]}
    for who, code in (("admin", "same-person"), ("pipeline", "role-not-allowed")):
        refused = made.http.post(confirm, json=digest, headers=made.auth(who))
        assert refused.json()["type"].endswith(code)
    done = made.http.post(confirm, json=digest, headers=made.auth("officer"))
    assert (done.status_code, done.json()["event"]) == (200, "dataset.registered.v1")
    shown = {
        name: made.http.get(f"/v1/populations/{name}", headers=admin).json()["datasets"]
        for name in ("fair", "east")
    }
    assert [one["also"] for one in shown["east"]] == [["fair/v"]]
    assert [one["confirmed_by"] for one in shown["east"]] == ["officer"]
    assert [one.get("also") for one in shown["fair"]] == [None, ["east/w"]]


def test_both_reports_show_the_other_use(made: World) -> None:
    """The later use stands in its event, the earlier one is looked up for the report."""
    register(made.service, "east", "w", **AGAIN, also=["fair/v"], confirmed_by="officer")
    reports = {name: report_of(made.service.ledgers, name, None) for name in ("fair", "east")}
    uses = {name: {one.id: one.also for one in report.datasets} for name, report in reports.items()}
    assert uses == {"fair": {"d": (), "v": ("east/w",)}, "east": {"w": ("fair/v",)}}
    assert "east/w" in rendered(reports["fair"], "html")
    assert "officer" in rendered(reports["east"], "html")


def test_of_many_at_once_one_is_the_first(made: World) -> None:
    """Two services and many threads register the same new data: one of them has it unsaid, and the
    others are told about that one.
    """
    services = [made.service, Service(open_ledgers(made.url))]
    names = [f"p{number}" for number in range(6)]
    for name in names:
        opened(made.service, name)
    outcomes: dict[str, Any] = {}
    ready = threading.Barrier(len(names))

    def run(number: int, name: str) -> None:
        ready.wait()
        try:
            register(services[number % 2], name, "w", namespace="n", name="new")
            outcomes[name] = None
        except Problem as problem:
            outcomes[name] = problem

    threads = [threading.Thread(target=run, args=each) for each in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = [name for name, problem in outcomes.items() if problem is None]
    assert len(first) == 1, outcomes
    others = [problem for problem in outcomes.values() if problem is not None]
    assert {problem.code for problem in others} <= {"dataset-known-elsewhere"}
    assert all(problem.numbers["also"] == [f"{first[0]}/w"] for problem in others)
    registered = [name for name in names if services[1].state(name).datasets]
    assert registered == first
    services[1].close()


def test_the_table_is_rebuilt_from_the_ledgers(made: World, place: Place) -> None:
    """A service that starts enters what is missing, and then refuses as before."""
    before = sorted(place.run("SELECT * FROM data_use"))
    assert len(before) == 2
    place.tamper("DELETE FROM data_use")
    made.service.start(None, 10**15)
    assert sorted(place.run("SELECT * FROM data_use")) == before
    assert made.service.enter_datasets("fair") == 0
    with pytest.raises(Conflict):
        register(made.service, "east", "w", **VISITS)


def test_a_registration_that_fails_is_not_entered(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is of the same transaction as the event."""
    fields = {"namespace": "n", "name": "new"}
    with monkeypatch.context() as patch:
        patch.setattr(made.service.ledgers, "append", lambda *_: False)
        with pytest.raises(Problem):
            register(made.service, "east", "w", **fields)
    register(made.service, "west", "x", **fields)
