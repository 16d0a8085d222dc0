"""Who writes a ledger: asks, sees what comes of it, and knows what can be asked next."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, Final

import driver
from preparing import mechanism_form, stored_form
from random_groups import Dimensions, Groups, dimensions, lengthy
from random_mechanisms import ADD, REPLACE, ZERO_OUT, Mechanisms, log_uniform
from random_policies import PURPOSES, Policies

Json = dict[str, Any]
SECOND: Final = 1_000_000
START: Final = 1_790_000_000 * SECOND
DATASETS: Final = ("health-visits", "health-labs", "usage-1", "other")
TEXTS: Final = ("weekly dashboard", "an answer to a letter", "Grundlagenforschung – Ä", " ")
LENGTHY: Final = (420,)
"""The size of a dimension whose names are long."""
_FREE: Final = ("purpose", "justification", "reason")


@dataclass(frozen=True)
class Profile:
    """What the ledgers of a family are like. ``weights``: how often each operation is chosen;
    ``sizes``: dimensions to choose from; ``everyone``: how often a request names no group.
    """

    weights: dict[str, int]
    steps: int = 110
    every: int = 55
    sizes: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3))
    gate: str | None = None
    relations: tuple[str, ...] = (ADD, REPLACE, ADD, REPLACE, ZERO_OUT)
    private: float = 0.2
    everyone: float = 0.35
    clients: int = 3
    lenient: float = 0.8
    typical: float = 0.04
    room: tuple[float, float] = (15, 60)
    """A limit is so many times the typical charge."""
    shipped: bool = False
    """The first policy is one that ships."""
    pool: int = 10
    corrected: bool = False
    """A bound was corrected in the program that the ledger is written by."""
    wild: dict[str, float] = field(
        default_factory=lambda: {"finite": 1, "partly": 0.06, "infinite": 0.02}
    )
    """How often a mechanism is taken, by what it costs."""
    ttl: tuple[int | None, ...] = (None, None, 30, 600, 86_400)


@dataclass
class Open:
    """A grant that is open, as its owner knows it."""

    by: str
    command: Json
    expires: int
    sequence: int
    total: Json
    answers: int = 0
    positives: int = 0

    @property
    def session(self) -> bool:
        """True if it is a sparse vector session."""
        return bool(self.command["type"] == "open_sparse_vector")


@dataclass
class Author:
    """Writes the ledger ``name``; all chance comes from ``rng``."""

    name: str
    profile: Profile
    rng: Random
    ledger: driver.Ledger = field(default_factory=driver.Ledger)
    steps: list[Json] = field(default_factory=list)
    now: int = START
    keys: int = 0
    open: dict[str, Open] = field(default_factory=dict)
    ended: list[tuple[str, Open]] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    rules: list[Json] = field(default_factory=list)
    purposes: set[str] = field(default_factory=set)
    keyed: list[Json] = field(default_factory=list)
    ran: list[Json] = field(default_factory=list)
    """What was booked for good: the facts that a revaluation states."""
    sequence: int = 0
    refused: int = 0
    """Judged requests that were refused one after another."""
    costs: dict[str, str] = field(default_factory=dict)
    """Mechanisms that were priced: "finite", "infinite", or "partly" where only epsilon is."""
    recoveries: int = 0

    def __post_init__(self) -> None:
        rng, profile = self.rng, self.profile
        self.relation = rng.choice(profile.relations)
        self.private = rng.random() < profile.private
        sizes = rng.choice(profile.sizes)
        long = sizes == LENGTHY
        self.people: Dimensions = lengthy(*sizes) if long else dimensions(rng, sizes)
        typical = log_uniform(rng, profile.typical / 2, profile.typical * 2)
        self.mechanisms = Mechanisms(
            rng, self.relation, typical, private=self.private and self.relation == REPLACE
        )
        self.pool = [mechanism_form(self.mechanisms.some()) for _ in range(profile.pool)]
        limit = typical * log_uniform(rng, *profile.room)
        self.policies = Policies(rng, limit, profile.gate)
        self.groups = Groups(rng, self.people)
        self.clients = ["one", "two", "three", "four"][: profile.clients]

    # -- asking --------------------------------------------------------------------------

    def submit(
        self,
        by: str,
        command: Json,
        key: str | None = None,
        items: list[Json] | None = None,
        text: str | None = None,
    ) -> Any:
        """Asks, writes down what comes of it, and returns that."""
        if command["type"] not in ("batch", "adopt_policy"):
            command = stored_form(command)
        request: Json = {"by": by, "key": key, "now": self.now, "command": command}
        if items is not None:
            request["items"] = [stored_form(item) for item in items]
        if text is not None:
            request["text"] = text
        return self.ask(request)

    def ask(self, request: Json) -> Any:
        """``submit``, of a whole request."""
        found, compared = self.ledger.ask(request)
        step = {"ask": request, "found": found} | ({"compared": compared} if compared else {})
        self.steps.append(step)
        if isinstance(found, list):
            self._learn(request, found)
            if request["key"]:
                self.keyed.append(request)
        if len(self.steps) % self.profile.every == 0:
            step["totals"] = self.ledger.totals()
        self.now += self.rng.choice([0, 0, 0, 0, 1, SECOND, self.rng.randrange(30) * SECOND])
        return found

    def end(self) -> Json:
        """The ledger, with its totals in the end."""
        self.steps[-1]["totals"] = self.ledger.totals()
        return {"name": self.name, "steps": self.steps}

    def key(self) -> str:
        """A fresh idempotency key."""
        self.keys += 1
        return f"k{self.keys}"

    def sealed(self, command: Json) -> Json:
        """The command with its free texts sealed, as a ledger may hold them."""
        found = dict(command)
        for name in _FREE:
            text = command.get(name)
            term = name == "purpose" and text in self.purposes
            if isinstance(text, str) and text.strip() and not term:
                salt = sha256(text.encode()).digest()  # the same one always: the file stays small
                found[name] = {"sealed": sha256(salt + text.encode()).hexdigest()}
        return found

    def purpose(self) -> str:
        """A term of the policy in most cases, if it has any; else something that somebody wrote."""
        if self.purposes and self.rng.random() < 0.85:
            return self.rng.choice(sorted(self.purposes))
        return self.rng.choice(TEXTS + PURPOSES)

    def required(self, name: str) -> bool:
        """True if a rule in force asks for the field ``name``, or lists its values."""
        listed = name == "purpose" and bool(self.purposes)
        return listed or any(name in rule.get("require", ()) for rule in self.rules)

    def mechanism(self, *, booked: bool) -> Json:
        """A mechanism; of those whose cost is known to be infinite only few, so that a limit is not
        closed for good at once. ``booked``: it will count whatever it costs.
        """
        rng, found = self.rng, Json()
        for _ in range(8):
            fresh = rng.random() < 0.15 and not booked
            found = mechanism_form(self.mechanisms.some()) if fresh else rng.choice(self.pool)
            cost = self.costs.get(json.dumps(found), "infinite" if booked else "finite")
            if rng.random() < self.profile.wild[cost]:
                break
        return found

    # -- seeing --------------------------------------------------------------------------

    def _learn(self, request: Json, events: list[Json]) -> None:
        commands = list(request.get("items") or [request["command"]])
        for event in events:
            self.sequence = event["sequence"] + 1
            if event["type"] != "batch.part":
                self._see(request, event, commands)
        if request["command"]["type"] == "adopt_policy" and events:
            rules = request["command"]["policy"]["rules"]
            self.purposes = {p for rule in rules for p in rule.get("purposes", ())}

    def _see(self, request: Json, event: Json, commands: list[Json]) -> None:
        kind = event["type"]
        if kind == "grant.expired":
            self._end(event["grant"], event["charge"], None)
            return
        if kind in ("batch.opened", "ledger.recovered"):
            for name in event.get("charged", ()):
                self._end(name, self.open[name].total, None)
            return
        command = commands.pop(0) if commands else request["command"]
        if kind == "grant.reserved":
            self.open[event["grant"]] = Open(
                request["by"],
                command,
                self._expires(request, event),
                event["sequence"],
                event["total"],
            )
        elif kind in ("grant.committed", "grant.released", "sparse_vector.closed"):
            run = None if kind == "grant.released" else command.get("mechanisms")
            self._end(event["grant"], event["charge"], run, ran=kind != "grant.released")
        elif kind == "sparse_vector.answered":
            grant = self.open[event["grant"]]
            grant.positives = event["positives"]
            grant.answers = event["positives"] + event["negatives"]
        elif kind == "invocation.recorded":
            everyone = event.get("charged_to") == "everyone"
            self._ran(event["sequence"], request["by"], command, event["total"], None, everyone)
        if "verdicts" in event:
            self._price(command, event)
        if "outcome" in event and kind != "invocation.recorded":
            self.refused = self.refused + 1 if event["outcome"] == "block" else 0

    def _expires(self, request: Json, event: Json) -> int:
        return int(request["now"] + event.get("late", 0) + event["lasts"])

    def _price(self, command: Json, event: Json) -> None:
        if event["type"] == "batch.refused":
            return
        stated = command.get("mechanisms") or [command["mechanism"]]
        for mechanism, charge in zip(stated, event.get("charges", [event["total"]]), strict=True):
            infinite = charge.get("infinite", {})
            cost = "finite" if "epsilon" not in infinite else "partly"
            self.costs[json.dumps(mechanism)] = "infinite" if "rho" in infinite else cost

    def _end(self, name: str, charge: Json, run: Any, *, ran: bool = True) -> None:
        grant = self.open.pop(name)
        self.ended.append((name, grant))
        if ran:
            self._ran(grant.sequence, grant.by, grant.command, charge, run, everyone=False)

    def _ran(
        self, sequence: int, by: str, command: Json, charge: Json, run: Any, everyone: bool
    ) -> None:
        if not isinstance(command["dataset"], str):
            return
        stated = run or command.get("mechanisms") or [command["mechanism"]]
        facts = {"event": sequence, "by": by, "dataset": command["dataset"]}
        facts |= {"mechanisms": stated, "booked": charge}
        facts |= {"subjects": command["subjects"]} if command.get("subjects") is not None else {}
        self.ran.append(facts | ({"everyone": True} if everyone else {}))
