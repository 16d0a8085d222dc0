"""Clients at once over HTTP, each of which keeps its own account of what it was let run and ran.

Nothing here reads the ledger: what the clients know of themselves is added up at the end, person
by person, and has to be within the limits. They ask about the same data in joins and by what was
made from them; hide kinds that are denied inside others; send the same request twice at once;
settle what is another's; and keep of a grant no more than they ran.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from effort import examples
from support import World, declared, laplace

from accountant.budget.replay import replay

RULES = """
  - {id: each, limit: {epsilon: 1}, relaxed: [
     {when: {purposes: [alarm]}, epsilon: 1.3, why: "an outbreak"}]}
  - {id: person, across: datasets, limit: {epsilon: 2}}
  - {id: quota, per: client, limit: {epsilon: 0.9}}
  - {id: never, mechanisms: [exponential, non_private]}
"""
MOST, TOGETHER, QUOTA = Decimal("1.3"), Decimal(2), Decimal("0.9")
CHARGED = {"d": "d", "e": "e", "g": "dg", "h": "dgh"}
"""Datasets, with all that each was made from."""
SEXES = ("f", "m")
HIDDEN = {"kind": "exponential", "sensitivity": "1", "scale": "400"}
"""A kind that is denied, at an epsilon of 0.005."""
CLIENTS = 4
"""Threads that ask at once, as two clients."""


EVENT = {"class": "ExponentialMechanismDpEvent", "fields": {"epsilon": 0.005}}
"""The same as another library writes it."""


def nested(inner: dict[str, Any]) -> list[dict[str, Any]]:
    """Requests that have ``inner`` inside, at several depths."""
    little = laplace("0.001")
    composed = {"kind": "composed", "mechanisms": [little, inner]}
    rounds = {"kind": "multiplicative_weights", "rounds": 2, "measurement": little}
    tested = {"kind": "propose_test_release", "distance_scale": "100", "threshold": "9000"}
    counted = {"class": "SelfComposedDpEvent", "fields": {"event": EVENT, "count": 2}}
    return [
        inner,
        composed,
        {"kind": "composed", "mechanisms": [composed]},
        {"kind": "plan", "mechanisms": [composed], "epsilon": "0.1", "delta": "1e-9"},
        {"kind": "boosting", "rounds": 1, "draws": 1, "draw": inner, "base": little},
        rounds | {"selection": inner},
        {"kind": "subsample_and_aggregate", "aggregator": composed},
        {"kind": "repeat_and_select", "mechanism": composed, "mean": "2"},
        tested | {"release": inner},
        EVENT,
        {"class": "ComposedDpEvent", "fields": {"events": [counted]}},
    ]


@dataclass
class Honest:
    """A client, and what it knows that it ran."""

    made: World
    who: str
    seed: int
    ran: list[tuple[tuple[str, ...], tuple[str, ...], Decimal]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def works(self) -> None:
        """Sends some dozen requests."""
        chance = random.Random(self.seed)  # noqa: S311 it has to be the same each time
        for hidden in nested(HIDDEN)[self.seed :: CLIENTS]:
            self.hides(chance.choice("degh"), hidden)
        for number in range(examples(12)):
            self.asks(chance, f"{self.seed}-{number}")

    def post(self, path: str, body: Any, key: str | None = None) -> Any:
        """One request of its own."""
        return self.made.post(path, body, who=self.who, key=key)

    def hides(self, dataset: str, hidden: dict[str, Any]) -> None:
        """A denied kind inside others is denied."""
        answer = self.post("/grants", {"dataset": dataset, "mechanisms": [hidden]})
        if not answer.json()["type"].endswith("mechanism-denied"):
            self.wrong.append(f"{hidden} was answered {answer.text}")

    def asks(self, chance: random.Random, key: str) -> None:
        """Asks twice at once, runs once what was granted, and settles it."""
        named = chance.choice(["d", "e", "g", "h", ["d", "e"], ["e", "g"], ["d", "g"]])
        each, count = chance.choice(["0.03", "0.05", "0.11"]), chance.choice([1, 2, 4])
        kind = chance.choice([laplace, lambda e, n: declared(e, count=n)])
        body: dict[str, Any] = {"dataset": named, "mechanisms": [kind(each, count)]}
        cells = SEXES
        if chance.random() < 0.6:
            cells = (chance.choice(SEXES),)
            body["subjects"] = {"sex": list(cells)}
        if chance.random() < 0.3:
            body["purpose"] = "alarm"
        with ThreadPoolExecutor(2) as both:
            first, other = both.map(lambda _: self.post("/grants", body, key), range(2))
        if first.status_code != 201:
            return
        if first.json() != other.json():
            self.wrong.append("a retry had another answer")
        fresh = [one for one in (first, other) if "Idempotent-Replay" not in one.headers]
        if len(fresh) != 1:
            self.wrong.append(f"{len(fresh)} of two equal requests were the first")
        self.settles(chance, first.json()["id"], named, cells, (kind, each, count))

    def settles(
        self, chance: random.Random, grant: str, named: Any, cells: Any, asked: tuple[Any, ...]
    ) -> None:
        """Runs a part, some of it or none, and says so, once or more often."""
        kind, each, count = asked
        used = chance.choice([0, count, count, chance.randint(1, count)])
        if used:
            charged = {one for name in named for one in CHARGED[name]}
            self.ran.append((tuple(sorted(charged)), cells, Decimal(each) * used))
        commit: dict[str, Any] = {} if used == count else {"mechanisms": [kind(each, used)]}
        more = {"mechanisms": [kind(each, count + 1)]}
        path = f"/grants/{grant}"
        thief = self.made.post(f"{path}/release", {"reason": "x"}, who="admin")
        if thief.status_code != 403 or self.post(f"{path}/commit", more).status_code < 400:
            self.wrong.append("a grant was settled by another, or for more than it held")
        if chance.random() < 0.15:
            return  # it stays open: what it holds is never less than what ran
        settle = (f"{path}/commit", commit) if used else (f"{path}/release", {"reason": "none ran"})
        if self.post(*settle).status_code != 200:
            self.wrong.append(f"what ran of {grant} was not taken")
        if self.post(f"{path}/release", {"reason": "x"}).status_code < 400:
            self.wrong.append(f"{grant} was given back after it had ended")


def test_honest_clients_at_once_never_run_more_than_the_limits(
    world: Callable[..., World],
) -> None:
    """What all of them ran is within each limit, for each person, whatever was sent at once."""
    made = world().hospital(RULES, {"sex": list(SEXES)})
    for name, parents in (("e", []), ("g", ["d"]), ("h", ["N/%67 "])):
        body = {"namespace": "n", "name": name, "parents": parents}
        assert made.put(f"/datasets/{name}", body).status_code == 200
    for name in ("D", " d.", "%2564", "d\u200b", "\uff44", "\u0501"):
        body = {"namespace": "N/", "name": name}
        assert made.put("/datasets/again", body).status_code == 409, name
    for who in ("one", "two"):
        made.secrets[who] = made.new_key(who, "pipeline")
    clients = [Honest(made, who, seed) for seed, who in enumerate(("one", "two") * (CLIENTS // 2))]
    with ThreadPoolExecutor(CLIENTS) as at_once:
        list(at_once.map(Honest.works, clients))
    assert [wrong for client in clients for wrong in client.wrong] == []
    each, person, quota = Counter[Any](), Counter[Any](), Counter[Any]()
    for client in clients:
        for charged, cells, epsilon in client.ran:
            for cell in cells:
                person[cell] += epsilon  # type: ignore[assignment]
                for name in charged:
                    each[name, cell] += epsilon  # type: ignore[assignment]
                    quota[client.who, name, cell] += epsilon  # type: ignore[assignment]
    assert max(each.values()) <= MOST
    assert max(person.values()) <= TOGETHER
    assert max(quota.values()) <= QUOTA
    assert max(each.values()) > Decimal("0.8")  # they did run something
    [*_, last] = replay("fair", made.stored())
    assert last.findings == []
