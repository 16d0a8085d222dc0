"""Another secret of a key: it opens no more than the old one, which goes on for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Clock, migrate

from accountant.auth.keys import Credentials, key_digest
from accountant.auth.links import Links
from accountant.auth.rotation import Rotation
from accountant.auth.sessions import Sessions
from accountant.budget.commands import DAY
from accountant.budget.errors import Problem
from accountant.budget.facts import SECOND
from accountant.store.opening import open_ledgers

HOUR = 3_600


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Credentials, Credentials, Clock]]:
    """The keys as two processes see them: of an admin and an officer, of a month ago."""
    url = f"sqlite:///{tmp_path}/a.db"
    migrate(url)
    one, other, clock = open_ledgers(url), open_ledgers(url), Clock()
    keys = Credentials(one, clock)
    for name, role in (("alice", "admin"), ("bob", "officer")):
        keys.create(name, role, f"operator:{name}")  # type: ignore[arg-type]
    clock.forward(30 * DAY)
    yield keys, Credentials(other, clock), clock
    one.close(), other.close()


def test_a_holder_rotates_their_own_key(made: tuple[Credentials, Credentials, Clock]) -> None:
    """Makers, age, scope and end stay; the old one goes on for as long as was said, and makes no
    other: for every process.
    """
    one, other, clock = made
    old = one.create("pipe", "pipeline", "alice", days=30, populations=["a"])
    before = one.find(old)
    assert before is not None
    clock.forward(10 * DAY)
    new, key, _ = Rotation(other).rotate(key_digest(old), hours=2)
    for keys in (one, other):
        assert keys.find(new) == key == before
        ending = keys.find(old)
        assert ending is not None
        assert (ending.until, ending.replaced) == (clock() + 2 * HOUR * SECOND, clock())
        assert keys.named("pipe") == key
    with pytest.raises(Problem, match=r"was rotated at .*renew") as refused:
        Rotation(one).rotate(key_digest(old))
    assert refused.value.code == "key-rotated"
    clock.forward(2 * HOUR)
    assert one.find(old) is None
    with pytest.raises(Problem, match=r"was rotated, and this one expired at .*keys renew"):
        Rotation(one).rotate(key_digest(old))
    last, _, _ = Rotation(one).rotate(key_digest(new), hours=0)
    assert other.find(new) is None
    clock.forward(20 * DAY - 2 * HOUR - 1)
    assert other.find(last) is not None
    clock.forward(1)
    assert other.find(last) is None  # three secrets, and no day more than the first was given


def test_who_renews_a_key_had_a_part_in_making_it(
    made: tuple[Credentials, Credentials, Clock],
) -> None:
    """And hides nobody who made it within seven days; its life begins anew."""
    one, other, clock = made
    old = one.create("pipe", "pipeline", "alice", days=5, populations=["a"])
    clock.forward(4 * DAY)
    new = Rotation(other).renew("pipe", "bob")
    key = one.find(new)
    assert key is not None
    assert (key.makers, key.made) == (("bob", "alice"), clock())
    assert (key.until, key.populations) == (clock() + 5 * DAY * SECOND, {"a"})
    assert one.find(old) is not None
    clock.forward(DAY)
    assert one.find(old) is None
    clock.forward(3 * DAY)
    later = one.find(Rotation(one).renew("pipe", "carol", days=9))
    assert later is not None
    assert later.makers == ("carol", "bob", "alice")
    with pytest.raises(Problem, match="no valid key"):
        Rotation(one).renew("nobody", "bob")
    with pytest.raises(Problem, match="0 to 168 hours"):
        Rotation(one).renew("pipe", "bob", hours=169)


def test_nobody_renews_alone_a_key_that_may_confirm(
    made: tuple[Credentials, Credentials, Clock],
) -> None:
    """It is proposed as a new one is, and made if the old one is still there; nothing ends before.
    Its holder rotates it alone, and is no new person by that.
    """
    one, other, clock = made
    secret = one.create("carol", "officer", "alice")
    [proposal], _ = one.proposals()
    one.confirm(proposal.sequence, proposal.digest, "bob", one.named("bob"))
    clock.forward(30 * DAY)
    new = Rotation(one).renew("carol", "alice", hours=1)
    assert other.find(new) is None
    [proposal, _], _ = other.proposals()
    assert proposal.command["type"] == "renew_key"
    with pytest.raises(Problem) as refused:
        one.confirm(proposal.sequence, proposal.digest, "alice", one.named("alice"))
    assert refused.value.code == "same-person"
    other.confirm(proposal.sequence, proposal.digest, "bob", other.named("bob"))
    key = one.find(new)
    assert key is not None
    assert key.makers == ("alice", "bob")
    clock.forward(HOUR)
    assert one.find(secret) is None
    lost = Rotation(one).renew("carol", "alice")
    [proposal, *_], _ = other.proposals()
    one.revoke("carol", "bob")
    with pytest.raises(Problem, match="has ended"):
        one.confirm(proposal.sequence, proposal.digest, "bob", one.named("bob"))
    assert one.find(lost) is None
    before = one.named("bob")
    bob = [d for d, k in one.ring()[0].by_digest.items() if k.name == "bob"]
    Rotation(one).rotate(bob[0])
    assert one.named("bob") == before


def test_what_is_of_a_rotated_key_ends_with_it(
    made: tuple[Credentials, Credentials, Clock],
) -> None:
    """The sessions and links of the name go on no longer than the old key."""
    one, other, _ = made
    secret = one.create("pipe", "auditor", "alice")
    links = Links(one)
    sessions = Sessions(other, 12 * HOUR * SECOND, 24 * HOUR * SECOND)
    token = sessions.enter_by_link(links.create_own(key_digest(secret))[0])
    code, _ = links.create_own(key_digest(secret), minutes=60)
    Rotation(one).rotate(key_digest(secret), hours=0)
    assert sessions.find(token) is None
    with pytest.raises(Problem, match="not valid"):
        sessions.enter_by_link(code)
