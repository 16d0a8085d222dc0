"""Texts are sealed for all commands of a unit of work before the first is decided."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import confirming, laplace, last_replay, make, migrate

from accountant.budget.commands import AdoptPolicy, Envelope
from accountant.budget.errors import Problem
from accountant.budget.policy_file import parse_policy
from accountant.budget.sealing import Opened
from accountant.ledger.events import Event
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers

LIMIT = "  - {id: a, limit: {epsilon: 1}}\n"
NAMED = LIMIT + "  - {id: p, purposes: [survey]}\n"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A population with a dataset and a limit."""
    url = f"sqlite:///{tmp_path}/a.db"
    migrate(url)
    made = Service(open_ledgers(url))
    stated = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    made.execute_all(
        "clinic",
        [
            Envelope("admin", make("register_population", dimensions={}, **stated)),
            Envelope("admin", make("register_dataset", id="d", namespace="n", name="d")),
        ],
    )
    made.execute_all("clinic", [confirmed(made, LIMIT)])
    yield made
    made.close()


def adopting(rules: str) -> Envelope:
    """The adoption of a policy."""
    policy, digest = parse_policy("policy: p\nrules:\n" + rules)
    command = AdoptPolicy(policy=policy.to_json(), source_digest=digest)
    return Envelope("admin", command)


def confirmed(service: Service, rules: str) -> Envelope:
    """The confirmation of a policy that was proposed before."""
    [event] = service.execute("clinic", adopting(rules)).events
    return Envelope("officer", confirming(event))


def grant(key: str, purpose: str) -> Envelope:
    """A request with a purpose."""
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.1")], purpose=purpose)
    return Envelope("pipe", command, key)


def purposes(service: Service, commands: list[Envelope]) -> list[Any]:
    """The purposes that the events hold which answer ``commands`` in one unit of work."""
    answers = service.execute_all("clinic", commands)
    return [answer.events[0].body["command"].get("purpose") for answer in answers]


def test_a_policy_of_the_same_unit_decides_what_stands_in_clear(service: Service) -> None:
    """A purpose that the new policy lists is not sealed, though the old one would have sealed it;
    one that it no longer lists is.
    """
    before, _, after = purposes(
        service, [grant("1", "survey"), adopting(NAMED), grant("2", "survey")]
    )
    assert before.keys() == {"sealed"}
    assert after == "survey"
    before, _, after = purposes(
        service, [grant("3", "survey"), confirmed(service, LIMIT), grant("4", "survey")]
    )
    assert before == "survey"
    assert after.keys() == {"sealed"}
    stored = [row.body for row in service.stream("clinic")]
    assert not last_replay("clinic", stored).findings


def test_a_retry_in_the_same_unit_gets_the_first_answer(service: Service) -> None:
    """The salt of a retry is that of the first request, whatever was drawn ahead."""
    first, again = service.execute_all("clinic", [grant("1", "survey"), grant("1", "survey")])
    assert again.repeated
    assert again.entries == first.entries
    [text] = service.texts("clinic", 0, 2**53)
    assert text.text == "survey"


def test_a_text_is_kept_with_the_salt_of_its_digest(service: Service) -> None:
    """Each event of a unit holds the digest of its own text."""
    answers = service.execute_all("clinic", [grant(str(i), f"study {i}") for i in range(5)])
    texts = {text.sequence: text for text in service.texts("clinic", 0, 2**53)}
    for i, answer in enumerate(answers):
        [event] = answer.events
        text = texts[event.sequence]
        assert text.text == f"study {i}"
        assert event.body["command"]["purpose"] == {"sealed": Opened(text.salt, text.text).digest}


def test_what_cannot_be_sealed_concerns_its_own_command(service: Service) -> None:
    """Half of a surrogate pair is refused when its turn comes; the others are decided."""
    good = grant("2", "x")
    wrong = good.asking(good.command.model_copy(update={"purpose": "half \ud800"}))
    asked = [grant("1", "survey"), wrong, grant("3", "survey")]
    with service.writing("clinic") as unit:
        unit.work_out(asked)
        outcomes: list[Any] = []
        for one in asked:
            try:
                outcomes.append(unit.answer(one))
            except (Problem, ValueError) as error:
                outcomes.append(error)
    kinds = [type(one).__name__ for one in outcomes]
    assert kinds[0] == kinds[2] == "Answer"
    assert kinds[1] != "Answer"
    assert [Event.from_bytes(row.body).type for row in service.stream("clinic")][-2:] == [
        "grant.reserved.v1"
    ] * 2
