"""When a key was last used is kept to the minute, for all processes, outside of any request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import START, Clock, World, ask, laplace, migrate

from accountant import jobs
from accountant.auth.keys import Credentials, key_digest
from accountant.budget.facts import SECOND
from accountant.store.ledgers import StoreError
from accountant.store.opening import open_ledgers

MINUTE = 60 * SECOND


def last_uses(keys: Credentials) -> dict[str, int | None]:
    """When each key was last used, by name."""
    return {key.name: used for key, used in keys.listed()}


def test_the_last_use_is_noted_by_the_job(world: Callable[..., World]) -> None:
    """Of the quick way and of the routes; a request writes nothing, and what is not valid, or not
    used again, is not noted.
    """
    clock = Clock()
    made = world(clock=clock).hospital()
    keys = made.service.credentials
    assert set(last_uses(keys).values()) == {None}
    jobs.note_uses(made.service)
    first = clock() - clock() % MINUTE
    assert last_uses(keys) == {"admin": first, "officer": first, "pipeline": None, "auditor": None}
    clock.forward(600)
    assert made.post("/grants", ask(laplace("0.01"))).status_code == 201
    assert last_uses(keys)["pipeline"] is None
    jobs.note_uses(made.service)
    assert keys.note_uses() == 0
    found = last_uses(keys)
    assert (found["pipeline"], found["admin"]) == (first + 600 * SECOND, first)


def test_of_several_processes_the_last_use_counts(world: Callable[..., World]) -> None:
    """Whichever writes last; and what could not be written is written by the next run."""
    clock = Clock()
    made = world(clock=clock).hospital()
    keys, secret = made.service.credentials, made.secrets["auditor"]
    behind = Clock(clock() - 3_600 * SECOND)
    other = Credentials(open_ledgers(made.url), behind)
    assert other.find(secret) is not None
    for one in (keys, other):
        one.use(key_digest(secret))
        one.note_uses()
    assert last_uses(other)["auditor"] == clock() - clock() % MINUTE
    other.ledgers.close()


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    """By the next run, once the database answers."""
    url = f"sqlite:///{tmp_path}/a.db"
    keys = Credentials(open_ledgers(url), Clock())
    keys.use("ab" * 32)
    with pytest.raises(StoreError):
        keys.note_uses()
    migrate(url)
    assert keys.note_uses() == 1
    assert keys.ledgers.key_uses("_service") == {b"\xab" * 32: START - START % MINUTE}
    keys.ledgers.close()
