"""What is kept of alerts, whichever database it is in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from places import Place

from accountant.store.ledgers import NEVER, AlertRow, Ledgers, Mute, StoreError
from accountant.store.opening import open_ledgers

ROW = AlertRow("threshold/d/a/1/80", "officers", 10, 10, 0, 0, b'{"kind":"threshold"}')


@pytest.fixture
def both(place: Place) -> Iterator[tuple[Ledgers, Ledgers]]:
    """Two services' views of one database, where one alert is due."""
    made = open_ledgers(place.url), open_ledgers(place.url)
    with made[0].writing("a") as writing:
        writing.keep_alerts("a", [ROW, ROW._replace(channel="chat", delivered=10)])
        writing.commit()
    yield made
    for each in made:
        each.close()


def claimed(ledgers: Ledgers, row: AlertRow, due: int) -> bool:
    """Claims a row in a transaction of its own."""
    with ledgers.writing("a") as writing:
        found = writing.claim_alert("a", row, due)
        writing.commit()
        return found


def test_one_of_two_claims_an_alert(both: tuple[Ledgers, Ledgers]) -> None:
    """Both have read the same row: the second one's claim changes nothing."""
    [seen] = both[1].open_alerts("a")
    assert (claimed(both[0], ROW, 99), claimed(both[1], seen, 77)) == (True, False)
    assert both[1].open_alerts("a") == [ROW._replace(due=99, attempts=1)]


def test_what_was_entered_is_known(both: tuple[Ledgers, Ledgers]) -> None:
    """By name and channel, in its own ledger only; it cannot be entered twice."""
    names = [f"none/{number}" for number in range(1_200)]
    assert both[1].known_alerts("a", [*names, ROW.name]) == {
        (ROW.name, "officers"),
        (ROW.name, "chat"),
    }
    assert both[1].known_alerts("b", [ROW.name]) == both[1].known_alerts("a", []) == set()
    with both[1].writing("a") as writing, pytest.raises(StoreError):
        writing.keep_alerts("a", [ROW])


@pytest.mark.parametrize("delivered", [0, 50])
def test_what_is_done_with_is_not_open(both: tuple[Ledgers, Ledgers], delivered: int) -> None:
    """Delivered or given up, it stays in the list, and cannot be claimed once it was delivered."""
    with both[0].writing("a") as writing:
        writing.end_alert("a", ROW, delivered)
        writing.commit()
    after = ROW._replace(delivered=50) if delivered else ROW._replace(due=NEVER)
    assert both[1].open_alerts("a") == []
    assert both[1].alerts("a") == [ROW._replace(channel="chat", delivered=10), after]
    assert not claimed(both[1], ROW, 99)


def test_a_mute_ends(both: tuple[Ledgers, Ledgers]) -> None:
    """By itself at its end, or before by somebody, whose name is kept."""
    mute = Mute(0, "threshold", 10, 20, "operator:me", "why")
    with both[0].writing("a") as writing:
        writing.keep_mute("a", mute)
        writing.commit()
    assert both[1].mutes("a") == [mute]
    assert both[1].mutes("b") == []
    assert [now for now in (9, 10, 19, 20) if mute.holds(now)] == [10, 19]
    with both[1].writing("a") as writing:
        writing.end_mute("a", 0, 15, "operator:you")
        writing.commit()
    [ended] = both[0].mutes("a")
    assert (ended.ended, ended.ended_by, ended.reason) == (15, "operator:you", "why")
    assert not ended.holds(16)
