"""The families of ledgers: what each is about, and how its ledgers begin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import custodians
import mistakes
import yaml
from author import DATASETS, LENGTHY, Author, Json, Profile
from operations import OPERATIONS, adopt, registered
from random_mechanisms import ADD, REPLACE
from random_policies import FILTERS

_POLICIES: Final = Path(__file__).parents[2] / "policies"
_ALL: Final = OPERATIONS | custodians.OPERATIONS | mistakes.OPERATIONS
_USUAL: Final = {"ask": 40, "record": 15, "commit": 14, "release": 3, "mistake": 3, "retry": 2,
                 "jump": 2, "expire": 2, "late": 1, "fill": 4, "policy": 3}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """So many ledgers with one profile."""

    ledgers: int
    profile: Profile


FAMILIES: Final[dict[str, Family]] = {
    "mechanisms": Family(22, Profile(
        _USUAL | {"ask": 55, "record": 30, "policy": 2}, pool=40, sizes=((), (), (2,)), clients=1,
        room=(30, 90),
    )),
    "gates": Family(21, Profile(
        _USUAL | {"ask": 60, "fill": 12, "policy": 2}, sizes=((), (2,), (4,)), typical=0.02,
        room=(4, 25), pool=7, clients=1,
    )),
    "groups": Family(16, Profile(
        _USUAL | {"ask": 70, "extend": 1, "scattered": 6},
        sizes=((6, 4), (3, 4, 5), (12, 12, 8), (40, 50), (500,)), everyone=0.1, pool=6,
        steps=100, every=50,
    )),
    "wide": Family(10, Profile(
        _USUAL | {"ask": 70, "extend": 2}, sizes=((900,), (1_900,), (450, 3), LENGTHY),
        everyone=0.1, pool=5, steps=80, every=40,
    )),
    "policies": Family(20, Profile(
        _USUAL | {"policy": 22, "same_policy": 1}, pool=8, room=(8, 60),
    )),
    "clients": Family(19, Profile(
        _USUAL | {"ask": 60, "dataset": 2}, clients=4, shipped=True, pool=8, everyone=0.6,
    )),
    "grants": Family(22, Profile(
        _USUAL | {"ask": 45, "commit": 30, "release": 10, "late": 7, "expire": 6, "jump": 8,
                  "mistake": 12, "retry": 9, "recover": 1},
        ttl=(None, 5, 30, 60, 600, 2_592_000), everyone=0.5,
    )),
    "sessions": Family(18, Profile(
        _USUAL | {"ask": 10, "record": 5, "session": 26, "count": 36, "close": 20, "late": 3,
                  "jump": 3, "mistake": 16},
        room=(40, 150),
    )),
    "batches": Family(36, Profile(
        _USUAL | {"ask": 12, "batch": 28, "records": 12, "mistake": 6, "retry": 5, "jump": 9},
        steps=80, every=40, ttl=(None, None, 30, 600),
    )),
    "populations": Family(17, Profile(
        _USUAL | {"extend": 7, "mistake": 6}, sizes=((1,), (2,), (2, 2), (1, 3, 2)), private=0.6,
        everyone=0.3, relations=(ADD, REPLACE, REPLACE), ttl=(None, 86_400),
    )),
    "custody": Family(18, Profile(
        _USUAL | {"recover": 3, "carry_over": 8, "erase": 4, "alarm": 6, "signing_key": 5,
                  "clock": 3, "engine": 1, "huge": 3, "mistake": 10, "session": 2},
    )),
    "extremes": Family(14, Profile(
        _USUAL | {"huge": 26, "brim": 4, "carry_over": 2, "record": 10, "ask": 25, "batch": 4},
        room=(60, 1e6), sizes=((), (2,), (2, 3)),
    )),
    "corrections": Family(10, Profile(
        _USUAL | {"engine": 4, "revalue": 14, "session": 3, "batch": 3}, private=0.3,
        corrected=True,
    )),
}  # fmt: skip
"""Every family, by name."""


def author_of(family: str, number: int) -> Author:
    """The author of a ledger, before it wrote anything; gates and relations take turns."""
    profile, name = FAMILIES[family].profile, f"{family}-{number}"
    if family == "gates":
        profile = replace(profile, gate=FILTERS[number % len(FILTERS)])
    return Author(name, profile, Random(name))  # noqa: S311 (it has to come again)


def written(author: Author, number: int) -> Json:
    """The whole ledger."""
    _begin(author, number)
    names, weights = zip(*author.profile.weights.items(), strict=True)
    while len(author.steps) < author.profile.steps:
        [name] = author.rng.choices(names, weights)
        if author.refused > 6 and author.rng.random() < 0.5:
            name = "policy"
        _ALL[name](author)
    return author.end()


def _begin(author: Author, number: int) -> None:
    rng = author.rng
    if rng.random() < 0.1:
        mistakes.unregistered(author)
    author.submit("admin", registered(author))
    for name in DATASETS[: rng.randint(1, 3)]:
        command = {"type": "register_dataset", "id": name, "namespace": "n", "name": name}
        author.submit("admin", command)
        author.datasets.append(name)
    if rng.random() < 0.15:  # what runs before there is a policy
        for name in ("ask", "record", "record"):
            _ALL[name](author)
    if rng.random() < 0.05:
        mistakes.large(author)
    if author.profile.shipped and number % 2:
        _shipped(author, number)
    else:
        lenient = rng.random() < author.profile.lenient
        adopt(author, author.policies.first(lenient=lenient), publication=_witnesses(author))


def _shipped(author: Author, number: int) -> None:
    files = sorted(_POLICIES.glob("*.yaml"))
    text = files[number // 2 % len(files)].read_text()
    adopt(author, yaml.safe_load(text)["rules"], text)


def _witnesses(author: Author) -> Json | None:
    """Some policies name witnesses."""
    if author.rng.random() < 0.9:
        return None
    names = author.rng.sample(["w1.example", "w2.example"], author.rng.randint(1, 2))
    keys = [custodians.key_of(name, bytes([len(name)]) * 32, 4) for name in names]
    witnesses = [
        {"url": f"https://{name}", "key": key} for name, key in zip(names, keys, strict=True)
    ]
    return {"witnesses": witnesses, "required": 1}
