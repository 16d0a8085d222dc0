"""Requests that cannot be answered: a ledger stays as it is, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from author import DATASETS, SECOND, Author, Json
from custodians import key_of
from operations import SYSTEM, registered, request
from random_groups import spelled

_LAPLACE: Final = {"kind": "laplace", "sensitivity": "1", "scale": "100"}
_LONG: Final = "x" * 98


def _asking(author: Author, **more: Any) -> Json:
    named = {"type": "ask_grant", "dataset": author.datasets[0], "mechanisms": [_LAPLACE]}
    return named | more


def _try(author: Author, command: Json, by: str = "one", *, keyed: bool = False) -> None:
    author.submit(by, author.sealed(command), author.key() if keyed else None)


def no_such_dataset(author: Author) -> None:
    """It names a dataset that nobody registered."""
    _try(author, _asking(author, dataset="nowhere"), keyed=True)


def no_such_group(author: Author) -> None:
    """It names a dimension, or a value, that there is not, or a range the wrong way round."""
    rng = author.rng
    subjects: Json = {"planet": ["mars"]}
    if author.people and rng.random() < 0.8:
        name = rng.choice(sorted(author.people))
        known = author.people[name]
        subjects = rng.choice([
            {name: ["nobody"]},
            {name: {"from": known[-1], "to": known[0]}},
            {name: {"from": known[0], "to": "nobody"}},
            {name: spelled([999_999])},
            {name: [*known[:400], "nobody"]},
        ])  # fmt: skip
    _try(author, _asking(author, subjects=subjects), keyed=True)


def no_key(author: Author) -> None:
    """It can spend, and has no key."""
    _try(author, _asking(author))


def no_such_grant(author: Author) -> None:
    """It settles what nobody was granted."""
    kind = author.rng.choice(["commit_grant", "close_sparse_vector", "expire_grant"])
    name = author.rng.choice(["g99999", "g01", "grant", f"g{author.sequence - 1}x"])
    _try(author, {"type": kind, "grant": name})


def settled_badly(author: Author) -> None:
    """It settles a grant of another, one that is settled, a session as a grant, or the reverse."""
    rng = author.rng
    there = list(author.open.items()) + author.ended[-8:]
    if not there:
        return
    name, grant = rng.choice(there)
    by = grant.by if rng.random() < 0.8 else "somebody"
    command: Json = rng.choice([
        {"type": "commit_grant", "grant": name},
        {"type": "close_sparse_vector", "grant": name},
        {"type": "release_grant", "grant": name, "reason": "never run"},
        {"type": "count_answers", "grant": name, "positives": 1, "negatives": 0},
    ])  # fmt: skip
    ends = (
        command["type"] == "close_sparse_vector"
        if grant.session
        else command["type"] == "commit_grant"
    )
    if name in author.open and by == grant.by and ends and author.now < grant.expires:
        command = {"type": "expire_grant", "grant": name}
    _try(author, command, by, keyed=command["type"] == "count_answers")


def too_much_committed(author: Author) -> None:
    """It commits more than was reserved, or something else."""
    found = [(name, grant) for name, grant in author.open.items() if not grant.session]
    if not found:
        return
    name, grant = author.rng.choice(found)
    first = grant.command["mechanisms"][0]
    more = first | {"count": first.get("count", 1) + 1}
    listed = author.rng.choice([[more], [first, first], [_LAPLACE]])
    _try(author, {"type": "commit_grant", "grant": name, "mechanisms": listed}, grant.by)


def counted_badly(author: Author) -> None:
    """It counts nothing, or more than the session may give; or releases one that has answered."""
    found = [(name, grant) for name, grant in author.open.items() if grant.session]
    if not found:
        return
    name, grant = author.rng.choice(found)
    if grant.answers and author.rng.random() < 0.4:
        _try(author, {"type": "release_grant", "grant": name, "reason": "never run"}, grant.by)
        return
    counted = author.rng.choice([(0, 0), (11, 0), (10**9, 1)])
    command: Json = {"type": "count_answers", "grant": name}
    command |= dict(zip(("positives", "negatives"), counted, strict=True))
    _try(author, command, grant.by, keyed=True)


def two_sessions(author: Author) -> None:
    """It opens two sessions at once."""
    stated = author.mechanisms.session(0.1) | {"count": 2}
    command = {"type": "open_sparse_vector", "dataset": author.datasets[0], "mechanism": stated}
    _try(author, command, keyed=True)


def not_there_yet(author: Author) -> None:
    """It erases the texts of, or revalues, an event that is not there."""
    later = author.sequence + 5
    if author.rng.random() < 0.5:
        command: Json = {"type": "erase_text", "event": later, "fields": ["reason"], "reason": "x"}
    else:
        command = {"type": "revalue", "event": later, "by": "one", "dataset": "nowhere",
                   "mechanisms": [_LAPLACE], "booked": {"epsilon": "1"}, "reason": "x"}  # fmt: skip
        command["event"] = author.rng.choice([later, 0])
    _try(author, command, "officer")


def other_population(author: Author) -> None:
    """It changes what never changes of a population, or makes it absurdly large."""
    rng, there = author.rng, registered(author)
    dimensions: Json = there["dimensions"]
    changes: list[Json] = [
        {"privacy_unit": "household"},
        {"membership": "public" if author.private else "private"},
        {"dimensions": dimensions | {"planet": ["mars"]}},
        {"dimensions": {name: [str(n) for n in range(101)] for name in "abc"}},
    ]
    if author.people:
        name = rng.choice(sorted(author.people))
        known = author.people[name]
        changes += [
            {"dimensions": dimensions | {name: ["first", *known]}},
            {"dimensions": dimensions | {name: [*known, known[0]]}},
        ]
    change = rng.choice(changes)
    if len(str(there)) < 2_000 or rng.random() < 0.2:
        _try(author, there | change, "admin")


def badly_extended(author: Author) -> None:
    """It extends a dimension that there is not, or by a value that there is."""
    added: Json = {"planet": ["mars"]}
    if author.people and author.rng.random() < 0.6:
        name = author.rng.choice(sorted(author.people))
        added = {name: author.people[name][:1]}
    _try(author, {"type": "extend_population", "added": added}, "admin")


def other_dataset(author: Author) -> None:
    """It registers other data under a known id, or known data under another id."""
    name = author.datasets[0]
    known = author.rng.choice([(name, "other data"), ("renamed", name)])
    command = {"type": "register_dataset", "namespace": "n"}
    _try(author, command | dict(zip(("id", "name"), known, strict=True)), "admin")


def bad_policy(author: Author) -> None:
    """It adopts a file that is no policy."""
    text = author.rng.choice([
        "policy: p\nrules: []\n",
        "policy: p\nrules:\n  - {id: a, limit: {epsilon: 0}}\n",
        "policy: p\nrules:\n  - {id: a, of: b, at: 80%}\n",
        "policy: p\nrules:\n  - {id: a, limit: {epsilon: 1, delta: 1e-6, own_delta: 1e-5}}\n",
        "policy: [",
    ])  # fmt: skip
    author.submit("admin", {"type": "adopt_policy"}, text=text)


def bad_key(author: Author) -> None:
    """It adopts a key that is none, that only cosigns, or that was adopted before."""
    adopted = [
        step["ask"]["command"]["key"]
        for step in author.steps
        if step["ask"]["command"]["type"] == "adopt_signing_key" and isinstance(step["found"], list)
    ]
    bad = ["none", key_of("example.org/log", bytes(32), 4)]
    chosen = author.rng.choice(adopted if adopted and author.rng.random() < 0.7 else bad)
    _try(author, {"type": "adopt_signing_key", "key": chosen}, "admin")


def bad_custody(author: Author) -> None:
    """It recovers from no checkpoint, carries over no amount, accepts another time."""
    rng = author.rng
    account = {"rule": "", "epoch": 0, "dataset": author.datasets[0], "client": ""}
    command: Json = rng.choice([
        {"type": "recover", "reason": "put back", "lost": ["no checkpoint"]},
        {"type": "carry_over", "accounts": [account | {"used": {"epsilon": "much"}}]},
        {"type": "accept_time", "clock": "2020-01-01T00:00:00.000000Z", "reason": "x"},
        {"type": "accept_time", "clock": "2099-01-01T00:00:00.000000Z", "reason": "x"},
        {"type": "resume_publication", "reason": "x"},
        {"type": "adopt_engine", "version": 7},
    ])  # fmt: skip
    _try(author, command, "officer")


def bad_batch(author: Author) -> None:
    """It is empty, mixes what may be refused with what ran, or holds what does not go together."""
    rng = author.rng
    items: list[Json] = rng.choice([
        [],
        [request(author, "ask_grant"), request(author, "record_invocations")],
        [request(author, "record_invocations"), {"type": "commit_grant", "grant": "g1"}],
        [_asking(author), _asking(author, dataset="nowhere")],
        [_asking(author), {"type": "expire_grant", "grant": "g1"}],
    ])  # fmt: skip
    author.submit("one", {"type": "batch"}, author.key() if rng.random() < 0.9 else None, items)


EVERYWHERE: Final[tuple[Callable[[Author], None], ...]] = (
    no_such_dataset, no_such_group, no_such_group, no_key, no_such_grant, settled_badly,
    settled_badly, settled_badly, too_much_committed, counted_badly, counted_badly, two_sessions,
    not_there_yet, other_population, badly_extended, other_dataset, bad_policy, bad_key, bad_key,
    bad_custody, bad_custody, bad_batch, bad_batch,
)  # fmt: skip
"""What may go wrong at any time."""


def mistake(author: Author) -> None:
    """One of them."""
    author.rng.choice(EVERYWHERE)(author)


def large(author: Author) -> None:
    """What is too large to be answered: commands, events, batches, unions."""
    sampler = {"library": _LONG, "version": _LONG}
    digits = _LAPLACE | {"scale": "1." + "3" * 38, "sampler": sampler}
    claim = {"claimed": {"epsilon": "0." + "7" * 38}}
    _try(author, _asking(author, mechanisms=[digits | claim] * 200), keyed=True)
    author.submit("one", {"type": "batch"}, author.key(), [_asking(author)] * 4_001)
    items = [_asking(author, mechanisms=[digits] * 3)] * 60
    author.submit("one", {"type": "batch"}, author.key(), items)


def scattered(author: Author) -> None:
    """A union that falls into many boxes, or too many; that takes two long dimensions."""
    if min(map(len, author.people.values())) >= 30 and len(author.people) > 1:
        some = author.rng.choice([3, 8, 8])
        terms = [
            {name: author.rng.sample(known, some) for name, known in author.people.items()}
            for _ in range(100)
        ]
        _try(author, _asking(author, subjects=terms), keyed=True)


def unregistered(author: Author) -> None:
    """Everything is asked too early: there is no population."""
    author.datasets.append(DATASETS[0])
    _try(author, _asking(author), keyed=True)
    _try(author, {"type": "commit_grant", "grant": "g0"})
    said = {"witness": "w", "status": 1, "detail": "d", "size": 0}
    _try(author, {"type": "stop_publication"} | said, SYSTEM)
    _try(author, _asking(author))
    author.datasets.clear()
    author.now += SECOND


OPERATIONS: Final = {"mistake": mistake, "large": large, "scattered": scattered}
"""Those that an author may choose."""
