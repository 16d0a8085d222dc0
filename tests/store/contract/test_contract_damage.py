"""A database that went back, went another way, was changed by somebody, or was never migrated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from places import Place
from support import World, ask, clean, client_of, hundredth, laplace, last_replay, make

from accountant.budget.commands import Envelope
from accountant.budget.errors import Unavailable
from accountant.budget.facts import grant_in
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers


def test_a_restored_backup_is_noticed(world: Callable[..., World], place: Place) -> None:
    """A database that went back in time is not written to from a memory that is ahead of it."""
    made = world().hospital()
    place.backup()
    hundredth(made.service, "p", "k")
    made.service.ledgers.close()
    place.restore()
    for _ in range(2):
        diverged(made)  # its memory is the witness that something is missing
    assert made.post("/grants", ask(*[laplace("0.01", i + 1) for i in range(200)] * 3)).is_error
    made.service._projections.of("fair").drop()  # as after a commit that failed
    diverged(made)
    fresh = world()
    assert hundredth(fresh.service, "p", "k2").sequence == 4
    clean(fresh)


def test_a_history_of_the_same_length_is_noticed(world: Callable[..., World], place: Place) -> None:
    """A restored database that has grown again is another history, even at the same length."""
    made = world().hospital()
    place.backup()
    hundredth(made.service, "p", "k")
    made.service.ledgers.close()
    place.restore()
    other = Service(open_ledgers(made.url))
    command = make("ask_grant", dataset="d", mechanisms=[laplace("1")])
    assert other.execute("fair", Envelope("q", command, "k")).events[0].type == "grant.reserved.v1"
    other.ledgers.close()
    for _ in range(2):
        diverged(made)
        made.service._projections.of("fair").drop()
    assert hundredth(world().service, "p", "k2").type == "grant.refused.v1"  # all is spent
    clean(made := world())
    assert made.head().size == 6


def diverged(made: World) -> None:
    """Neither reading nor writing is answered, and nothing is written."""
    before = made.head()
    with pytest.raises(Unavailable) as refusal:
        hundredth(made.service, "p", "k2")
    assert refusal.value.code == "ledger-diverged"
    with pytest.raises(Unavailable):
        made.service.state("fair")
    assert made.post("/grants", ask(laplace("0.01")), key="k2").status_code == 503
    assert made.get("/accounts").status_code == 503
    assert made.head() == before


def test_an_event_that_fails_half_way_is_not_half_applied(
    world: Callable[..., World], place: Place
) -> None:
    """If an event cannot be folded to its end, nobody is ever shown what its beginning did."""
    made = world().hospital()
    grant = grant_in(hundredth(made.service, "p", "k"))
    made.service.execute("fair", Envelope("p", make("commit_grant", grant=grant)))
    body = made.stored()[4].replace(b'"10000000"', b'"' + b"9" * 30 + b'"')
    place.tamper(f"UPDATE event SET body = {place.blob(body.hex())} WHERE sequence = 4")
    fresh = Service(open_ledgers(made.url))
    for _ in range(3):  # a state that was half folded would fail in another way, or not at all
        with pytest.raises(Unavailable, match="event 4"):
            fresh.state("fair")
    fresh.ledgers.close()


def test_a_damaged_event_stops_the_service_not_the_verifier(
    world: Callable[..., World], place: Place
) -> None:
    """An event that cannot be folded makes the ledger unavailable; nothing is answered from a
    state that lacks it, before or after a second try.
    """
    made = world().hospital()
    hundredth(made.service, "p", "k")
    body = made.stored()[3].replace(b"d4", b"d5")
    place.tamper(
        f"UPDATE event SET body = {place.blob(body.hex())} WHERE sequence = 3",
        f"UPDATE event SET body = {place.blob('7b7d')} WHERE ledger = 'fair' AND sequence = 2",
    )
    fresh = Service(open_ledgers(made.url))
    for _ in range(2):
        with pytest.raises(Unavailable):
            hundredth(fresh, "p", "new")
        with pytest.raises(Unavailable):
            fresh.state("fair")
    assert len(last_replay("fair", made.stored()).findings) >= 2
    fresh.ledgers.close()


def test_a_missing_table_is_no_crash(empty: str) -> None:
    """A database that was never migrated is reported as unavailable, whatever is asked, and every
    call at the door answers 503, authentication included.
    """
    service = Service(open_ledgers(empty))
    for call in (
        lambda: hundredth(service, "p", "k"),
        service.ready,
        lambda: service.state("fair").__enter__(),
    ):
        with pytest.raises(Unavailable):
            call()
    with pytest.raises(Unavailable, match="accountant migrate"):
        service.ready()
    with client_of(service) as http:
        for path in ("/readyz", "/v1/populations/fair", "/v1/populations/fair/events"):
            answer = http.get(path, headers={"Authorization": "Bearer acct_x"})
            assert answer.status_code == 503, (path, answer.text)
    service.ledgers.close()
