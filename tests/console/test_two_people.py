"""A person in a session is one of two people as the holder of a key is: by their name, and by who
let them in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import Clock, World, confirming, proposed
from test_signing_in import events

from accountant.auth.keys import Key, key_digest
from accountant.auth.links import Links
from accountant.auth.sessions import Sessions
from accountant.budget.commands import DAY, AdoptPolicy, Envelope
from accountant.budget.errors import Conflict, Forbidden, Invalid, Problem
from accountant.budget.facts import SECOND
from accountant.budget.policy_file import parse_policy

HOURS = 3_600 * SECOND


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population under a policy, and keys of a month ago."""
    clock = Clock()
    one = world(clock=clock)
    clock.forward(30 * DAY)
    return one.hospital()


def sessions(made: World) -> Sessions:
    """The sessions of the service."""
    return Sessions(made.service.credentials, HOURS, 12 * HOURS)


def enter(made: World, code: str) -> Key:
    """As which key a code lets in."""
    kept = sessions(made)
    found = kept.find(kept.enter_by_link(code))
    assert found is not None
    return found.key


def looser(made: World, by: str, limit: int = 2) -> Any:
    """What somebody proposes: a larger limit."""
    rule = f"  - {{id: a, limit: {{epsilon: {limit}}}}}\n"
    policy, digest = parse_policy(f"policy: p\nrules:\n{rule}")
    command = AdoptPolicy(policy=policy.to_json(), source_digest=digest)
    return proposed(made.service.execute("fair", Envelope(by, command)).events)


def confirm(made: World, event: Any, key: Key | None, by: str = "") -> Any:
    """The answer to a confirmation by the holder of a key."""
    name = key.name if key else by
    return made.service.confirm("fair", Envelope(name, confirming(event)), key)


def refusal(made: World, event: Any, key: Key | None, by: str = "") -> str:
    """Why somebody may not confirm."""
    with pytest.raises(Forbidden) as found:
        confirm(made, event, key, by)
    return found.value.code


def test_the_first_two_who_confirm_are_let_in_at_once(world: Callable[..., World]) -> None:
    """As with keys; from then on another person confirms each link of such a role, and who made it
    is not that. Links of auditors are made at once.
    """
    made = world(clock=Clock())
    credentials = made.service.credentials
    links = Links(credentials)
    _, auditor = links.create("eve", "auditor", "operator:ann")
    code, event = links.create("carol", "officer", "operator:ann")
    assert (auditor.type, event.type) == ("link.created.v1", "link.proposed.v1")
    with pytest.raises(Problem, match="not valid"):
        sessions(made).enter_by_link(code)
    one, _ = credentials.proposal(event.sequence)
    assert one.command == {"type": "create_link", "name": "carol", "role": "officer"}
    for by in ("operator:ann", "Ann"):
        with pytest.raises(Forbidden, match="another admin or officer"):
            credentials.confirm(one.sequence, one.digest, by)
    credentials.confirm(one.sequence, one.digest, "operator:bob")
    assert enter(made, code).makers == ("operator:ann", "operator:bob")
    assert events(made)[-1] == "person.signed_in.v1"


def test_alone_one_person_needs_nobody(tmp_path: Path, database: str) -> None:
    """A single user comes in by links as often as they like."""
    from accountant.auth.keys import Credentials  # noqa: PLC0415
    from accountant.store.opening import open_ledgers  # noqa: PLC0415

    ledgers = open_ledgers(database)
    kept = Credentials(ledgers, Clock())
    for _ in range(3):
        _, event = Links(kept).create("me", "admin", "operator:me")
        assert event.type == "link.created.v1"
    ledgers.close()


def test_who_made_a_link_is_no_second_person(made: World) -> None:
    """They confirm nothing by it that they proposed, and not with their own key what was proposed
    by it; others do both.
    """
    credentials = made.service.credentials
    code, event = Links(credentials).create("carol", "officer", "operator:admin")
    one, _ = credentials.proposal(event.sequence)
    credentials.confirm(one.sequence, one.digest, "operator:zoe")
    carol = enter(made, code)
    admin, officer = credentials.named("admin"), credentials.named("officer")
    mine, hers = looser(made, "admin", 3), looser(made, "carol", 4)
    assert refusal(made, mine, carol) == "key-too-new"
    assert refusal(made, hers, admin) == "key-too-new"
    assert refusal(made, hers, None, "operator:zoe") == "key-too-new"
    assert refusal(made, hers, carol) == "same-person"
    confirm(made, hers, officer)


def test_a_later_link_hides_no_maker(made: World) -> None:
    """Whoever let somebody in before the proposal is a maker still, when another has let them in
    since, or they have a key of long ago.
    """
    credentials, clock = made.service.credentials, made.service.credentials._clock
    assert isinstance(clock, Clock)
    changes = []
    for limit, maker in enumerate(("admin", "zoe"), start=2):
        code, event = Links(credentials).create("officer", "officer", f"operator:{maker}")
        one, _ = credentials.proposal(event.sequence)
        credentials.confirm(one.sequence, one.digest, "test-2")
        enter(made, code)
        changes.append(looser(made, "officer", limit))
        clock.forward(DAY)
    for change in changes:
        assert refusal(made, change, credentials.named("admin")) == "key-too-new"
    clock.forward(5 * DAY)
    assert refusal(made, changes[1], credentials.named("admin")) == "key-too-new"
    again = looser(made, "officer", 9)
    confirm(made, again, credentials.named("admin"))


def test_a_link_of_ones_own_key_makes_nothing_new(made: World) -> None:
    """Whoever comes in by it is the holder of the key, so made when it was: nobody confirms it, and
    two who have keys are two people in their sessions. It ends with the key.
    """
    credentials = made.service.credentials
    code, event = Links(credentials).create_own(key_digest(made.secrets["officer"]))
    assert event.type == "link.created.v1"
    officer = enter(made, code)
    assert officer == credentials.named("officer")
    change = looser(made, "admin")
    confirm(made, change, officer)
    assert refusal(made, looser(made, "officer", 5), officer) == "same-person"
    later, _ = Links(credentials).create_own(key_digest(made.secrets["officer"]))
    credentials.revoke("officer", "operator:ann")
    with pytest.raises(Problem, match="not valid"):
        enter(made, later)
    for wrong in (made.secrets["officer"], made.secrets["pipeline"], "acct_x"):
        with pytest.raises(Problem):
            Links(credentials).create_own(key_digest(wrong))


def test_a_link_is_for_a_person(made: World) -> None:
    """With a legal name, a role of people, and minutes."""
    links = Links(made.service.credentials)
    for name, role, minutes in (
        ("operator:ann", "officer", 10),
        ("", "officer", 10),
        ("carol", "pipeline", 10),
        ("carol", "officer", 0),
        ("carol", "officer", 61),
    ):
        with pytest.raises(Invalid):
            links.create(name, role, "operator:ann", minutes)  # type: ignore[arg-type]


def test_who_signs_in_by_a_provider_is_another_than_a_key(made: World) -> None:
    """They confirm what others proposed, and not what they did; what is known of them is their role
    and when they signed in, and nobody has made them.
    """
    from accountant.auth.oidc import Person  # noqa: PLC0415
    from accountant.auth.people import enter as arrive  # noqa: PLC0415

    kept = sessions(made)
    who = Person(("https://id.example.org", "u1"), "officer", "admin", "f" * 64)
    found = kept.find(arrive(made.service.credentials, kept, who))
    assert found is not None
    person = found.key
    assert (person.role, person.makers) == ("officer", ())
    change = looser(made, "admin")
    answer = confirm(made, change, person)
    assert answer.events[-1].body["command"]["confirms"]["key"]["by"] == []
    assert refusal(made, looser(made, person.name, 3), person) == "same-person"
    with pytest.raises(Conflict):
        made.service.credentials.create(person.name, "auditor", "operator:ann")
