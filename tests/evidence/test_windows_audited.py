"""Both verifiers come to the same as the service on ledgers under windows and caps."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from house import House, adopt, audit, resident
from support import Clock, declared, gaussian, laplace, last_replay
from test_minimal_verifier import report

from accountant.budget.accounts.spans import Window
from accountant.budget.accounts.unlocking import UNLOCKED
from accountant.budget.errors import Problem
from accountant.budget.state import State
from accountant.ledger.events import Event

RULES = (
    "  - {{id: w, {span}, limit: {{epsilon: {epsilon}, delta: 1e-4}}}}\n"
    "  - {{id: each, per: client, window: 1d, limit: {{epsilon: 0.8}}, action: flag}}\n"
    "  - {{id: nearly, of: w, at: 60%}}\n"
    "  - {{id: cap, at_most: {{epsilon: 0.3}}}}\n"
    "  - {{id: wide, limit: {{epsilon: 1000, delta: 1e-3}}}}\n"
)
GROUPS: tuple[Any, ...] = (
    None,
    {"sex": ["f"]},
    {"age": ["1"]},
    [{"sex": ["m"]}, {"age": ["2"]}],
)
MECHANISMS = ([laplace("0.1")], [laplace("0.05", 3)], [declared("0.1", "0.000001")],
              [gaussian("0.05")], [laplace("0.31")])  # fmt: skip


class Played:
    """A ledger on which anything may happen, at any time."""

    def __init__(self, house: Callable[..., House], seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 (which ledger it is)
        self.clock = Clock()
        self.house = resident(house(clock=self.clock), {"age": ["1", "2"], "sex": ["f", "m"]})
        self.ages = ["1", "2"]
        self.policy()

    def policy(self) -> None:
        """Adopts the rules with some window and limit."""
        windows = ["window: 12h"] * 3 + ["window: 1d", "window: month"]
        span = self.random.choice([*windows, *["refresh: daily"] * 3, "refresh: weekly"])
        span += self.random.choice(["", ", unlock: {over: 5h}", ", unlock: {per_request: 1/9}"])
        rules = RULES.format(span=span, epsilon=self.random.choice(["0.9", "1.1"]))
        adopt(self.house, rules, confirmed_by="officer")

    def step(self) -> None:
        """One thing; what is refused as a problem leaves no event."""
        choice, house = self.random.choice, self.house
        self.clock.forward(choice([1, 600, 3_000, 20_000, 43_200, 90_000]))
        kind = choice(["ask"] * 6 + ["record"] * 2 + ["end"] * 5 + ["rare"])
        fields = {"dataset": "d", "mechanisms": choice(MECHANISMS), "subjects": choice(GROUPS)}
        state = house.service.state("fair")
        opened, epochs = sorted(state.open), state.last_epoch
        with suppress(Problem, IndexError):  # no event at all
            if kind == "ask":
                house.do("ask_grant", ttl_seconds=86_400, **fields)
            elif kind == "record":
                house.do("record_invocations", **fields)
            elif kind == "end" and opened:
                name = choice(opened)
                if choice([True, False, False]):
                    house.do("release_grant", grant=name, reason="never run")
                else:
                    house.do("commit_grant", grant=name)
            elif kind == "rare":
                self.rare(choice(["policy", "extend", "attested", "carry", "expire"]), epochs)

    def rare(self, kind: str, epochs: dict[str, int]) -> None:
        """What seldom happens."""
        if kind == "policy":
            self.policy()
        elif kind == "expire":
            self.house.service.expire_due()
        elif kind == "carry":
            used = {"epsilon": "400000000", "delta": "7"}
            account = {"rule": "w", "epoch": epochs["w"], "dataset": "d", "client": ""}
            self.house.do("carry_over", "officer", accounts=[account | {"used": used}])
        elif len(self.ages) < 5:
            self.ages.append(f"x{len(self.ages)}")
            self.house.do(
                "register_population",
                "admin",
                privacy_unit="person",
                neighbouring="replace_one",
                membership="public",
                dimensions={"age": self.ages, "sex": ["f", "m"]},
                attested_new=kind == "attested",
            )


@pytest.mark.parametrize("seed", range(4))
def test_verifiers_take_every_decision_again(house: Callable[..., House], seed: int) -> None:
    """Whatever happened, and when: neither verifier has a finding, nor has the replay."""
    played = Played(house, seed)
    for _ in range(120):
        played.step()
    bundle = played.house.bundle()
    assert [str(finding) for finding in audit(bundle).findings] == []
    assert report(bundle)["findings"] == []
    stored = played.house.stored()
    assert last_replay("fair", stored).findings == []
    kinds = [Event.from_bytes(body).type for body in stored]
    assert kinds.count("grant.refused.v1") > 5
    assert kinds.count("grant.reserved.v1") > 5


def test_who_frees_too_early_is_found(house: Callable[..., House]) -> None:
    """A grant that the window did not have room for yet is a finding of both verifiers."""
    made = resident(house(clock=Clock()))
    adopt(made, RULES.format(span="window: 12h", epsilon="0.3"), confirmed_by="officer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Window, "ends", lambda self, at: at + 1)
        for _ in range(2):
            granted = made.do("ask_grant", dataset="d", mechanisms=[laplace("0.3")])
            made.do("commit_grant", grant=f"g{granted.sequence}")
            made.clock.forward(60)
    bundle = made.bundle()
    assert audit(bundle).count > 0
    assert report(bundle)["findings"]


def test_who_unlocks_too_early_is_found(house: Callable[..., House]) -> None:
    """A grant of what was still locked is a finding of the verifier that replays. The second one
    believes how much is locked: it says so, and holds grants to the whole limit.
    """
    made = resident(house(clock=Clock()))
    span = "window: 12h, unlock: {per_request: 1/3}"
    adopt(made, RULES.format(span=span, epsilon="0.9"), confirmed_by="officer")
    made.do("ask_grant", dataset="d", mechanisms=[laplace("0.2")])
    assert report(made.bundle())["believed"] == ["w"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(State, "lock", lambda *_: UNLOCKED)
        for _ in range(2):
            made.do("ask_grant", dataset="d", mechanisms=[laplace("0.3")])
    bundle = made.bundle()
    assert audit(bundle).count > 0
    assert report(bundle)["findings"] == []


def test_a_bundle_is_of_the_last_event(house: Callable[..., House]) -> None:
    """What has left a window since the last event still counts in the totals of the bundle."""
    made = resident(house(clock=Clock()))
    adopt(made, RULES.format(span="window: 12h", epsilon="0.9"), confirmed_by="officer")
    made.do("record_invocations", dataset="d", mechanisms=[laplace("0.2")])
    made.sign()
    made.clock.forward(90_000)
    bundle = made.bundle()
    assert [str(finding) for finding in audit(bundle).findings] == []
    assert report(bundle)["findings"] == []
