"""Keys that may confirm are proposed by one person and confirmed by another, from the third on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Clock, migrate

from accountant.auth.keys import Credentials, Key
from accountant.budget.commands import DAY
from accountant.budget.errors import Problem
from accountant.budget.proposals import Proposal
from accountant.store.opening import open_ledgers


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Credentials, Clock]]:
    """Keys of an admin and an officer, made a month ago by an operator."""
    url = f"sqlite:///{tmp_path}/a.db"
    migrate(url)
    ledgers, clock = open_ledgers(url), Clock()
    keys = Credentials(ledgers, clock)
    for name, role in (("alice", "admin"), ("bob", "officer")):
        assert keys.find(keys.create(name, role, "operator"))  # type: ignore[arg-type]
    clock.forward(30 * DAY)
    yield keys, clock
    ledgers.close()


def named(keys: Credentials, name: str) -> Key:
    """A key that is valid."""
    found = keys.named(name)
    assert found is not None
    return found


def waiting(keys: Credentials) -> list[Proposal]:
    """The keys that can be confirmed."""
    found, now = keys.proposals()
    return [one for one in found if one.is_open(now)]


def test_the_third_is_valid_once_another_person_confirms(made: tuple[Credentials, Clock]) -> None:
    """Both had a part in making it, so it is neither's second key within seven days."""
    keys, clock = made
    secret = keys.create("carol", "admin", "alice")
    assert keys.find(secret) is None
    [one] = waiting(keys)
    for by, code in (("Alice", "same-person"), ("alice", "same-person")):
        with pytest.raises(Problem) as refused:
            keys.confirm(one.sequence, one.digest, by, named(keys, "alice"))
        assert refused.value.code == code
    with pytest.raises(Problem, match="digest"):
        keys.confirm(one.sequence, "0" * 64, "bob", named(keys, "bob"))
    made_at = [keys.confirm(one.sequence, one.digest, "bob", named(keys, "bob")) for _ in "12"]
    assert made_at[0] == made_at[1]  # a retry changes nothing
    found = keys.find(secret)
    assert found is not None
    assert (found.name, found.makers, found.made) == ("carol", ("alice", "bob"), clock())
    assert waiting(keys) == []
    keys.create("dave", "officer", "alice")
    [two] = waiting(keys)
    with pytest.raises(Problem) as early:
        keys.confirm(two.sequence, two.digest, "carol", named(keys, "carol"))
    assert early.value.code == "key-too-new"


def test_a_revoked_name_does_not_come_back_alone(made: tuple[Credentials, Clock]) -> None:
    """Whoever revokes another key cannot make it anew alone; other keys are made at once."""
    keys, clock = made
    keys.revoke("bob", "alice")
    assert keys.find(keys.create("bob", "officer", "alice")) is None
    assert keys.find(keys.create("pipe", "pipeline", "alice")) is not None
    [one] = waiting(keys)
    clock.forward(7 * DAY)
    assert waiting(keys) == []
    with pytest.raises(Problem, match="expired"):
        keys.confirm(one.sequence, one.digest, "operator")


def test_a_declined_key_stays_invalid(made: tuple[Credentials, Clock]) -> None:
    """Whoever declines it; then nobody confirms it."""
    keys, _ = made
    keys.create("carol", "admin", "alice")
    [one] = waiting(keys)
    event = keys.decline(one.sequence, "alice", "not this year")
    assert set(event.body["reason"]) == {"sealed"}
    with pytest.raises(Problem, match="was declined by alice"):
        keys.confirm(one.sequence, one.digest, "bob", named(keys, "bob"))
