"""What an author may do next: one function an operation, chosen by the weights of a profile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Final

from author import DATASETS, SECOND, Author, Json, Open
from preparing import policy_command
from random_groups import more_of

SYSTEM: Final = ":accountant"
_LARGEST: Final = 2**62
_EXCESSIVE: Final = ("1e9", "3e9", "4e9")


def registered(author: Author) -> Json:
    """The command that registers the author's population as it is known now."""
    return {
        "type": "register_population",
        "privacy_unit": "person",
        "neighbouring": author.relation,
        "membership": "private" if author.private else "public",
        "dimensions": {name: list(known) for name, known in author.people.items()},
    } | ({"fixed": {"week": "the week of joining"}} if "week" in author.people else {})


def dataset(author: Author) -> None:
    """Registers a dataset, or one again with another owner."""
    name = author.rng.choice(DATASETS)
    command: Json = {"type": "register_dataset", "id": name, "namespace": "n", "name": name}
    if author.rng.random() < 0.3:
        command |= {"owner": "team", "parents": [author.rng.choice(["n/raw", *DATASETS])]}
    if author.rng.random() < 0.5:
        command["approved_by"] = "officer"
    if isinstance(author.submit("admin", command), list) and name not in author.datasets:
        author.datasets.append(name)


def adopt(author: Author, rules: list[Json], text: str | None = None, **more: Any) -> Any:
    """Adopts rules; with a second name if it takes one, most of the time. One's own is none."""
    text = text or author.policies.text(rules, **more)
    for second in author.rng.choice([(None, "officer"), ("officer",), ("admin", "officer")]):
        command = policy_command(text, second)
        found = author.submit("admin", command, text=text)
        if found == {"problem": "policy-closes-limit"} and author.rng.random() < 0.8:
            closing = [rule["id"] for rule in rules if "limit" in rule]
            found = author.submit("admin", command | {"closes": closing}, text=text)
        if isinstance(found, list):
            author.rules = rules
            break
        if author.rng.random() < 0.2:
            break
    return found


def policy(author: Author) -> None:
    """Changes the policy; raises or resets its limits where nothing goes any more."""
    if author.refused > 4 or not author.rules:
        author.refused = 0
        author.policies.typical *= 1.3
        rules = author.policies.raised(
            author.rules, author.rng.choice([1.5, 3]), reset=author.rng.random() < 0.6
        )
        adopt(author, rules or author.policies.first(lenient=True))
    else:
        adopt(author, author.policies.changed(author.rules))


def same_policy(author: Author) -> None:
    """Adopts what is in force already."""
    if author.rules:
        text = author.policies.text(author.rules)
        author.submit("admin", policy_command(text, None), text=text)


def request(author: Author, kind: str, everyone: float | None = None) -> Json:
    """A random request for, or record of, some mechanisms."""
    rng, profile = author.rng, author.profile
    command: Json = {"type": kind, "dataset": rng.choice(author.datasets)}
    if len(author.datasets) > 1 and rng.random() < 0.08:
        command["dataset"] = rng.sample(author.datasets, 2)
    booked = kind == "record_invocations"
    n = rng.choice([1, 1, 1, 1, 1, 2, 3])
    command["mechanisms"] = [author.mechanism(booked=booked) for _ in range(n)]
    _describe(author, command, profile.everyone if everyone is None else everyone)
    if kind == "ask_grant":
        _expires(author, command)
    elif rng.random() < 0.5:
        ran = datetime.fromtimestamp(author.now // SECOND, UTC) - timedelta(hours=3)
        command["ran_at"] = ran.strftime("%Y-%m-%dT%H:%M:%SZ")
    return author.sealed(command)


def _describe(author: Author, command: Json, everyone: float) -> None:
    if (group := author.groups.some(everyone)) is not None:
        command["subjects"] = group
    for name, often in (("purpose", 0.5), ("justification", 0.2)):
        if author.rng.random() < (0.9 if author.required(name) else often):
            command[name] = author.purpose()


def _expires(author: Author, command: Json) -> None:
    if (seconds := author.rng.choice(author.profile.ttl)) is not None:
        command["ttl_seconds"] = seconds


def ask(author: Author) -> None:
    """Asks for a grant."""
    author.submit(author.rng.choice(author.clients), request(author, "ask_grant"), author.key())


def record(author: Author) -> None:
    """Records what ran."""
    command = request(author, "record_invocations")
    author.submit(author.rng.choice(author.clients), command, author.key())


def fill(author: Author) -> None:
    """Asks for exactly what is left under some limit, or for one unit more, or less."""
    totals, rng = author.ledger.totals(), author.rng
    if not totals["limits"]:
        return
    rule = rng.choice(sorted(totals["limits"]))
    limit = totals["limits"][rule]
    name = limit.get("of", rule)
    there = [a for a in totals["accounts"] if a["key"][:2] == [name, _epoch(totals, name)]]
    account: Json = rng.choice(there) if there else {"key": [name, 0, "*", ""]}
    currency = rng.choice(sorted(limit["capacity"]))
    used = account.get("used", {}).get(currency, [0])[0]
    left = limit["capacity"][currency] - used + rng.choice([0, 0, 0, 1, -1])
    if (stated := _costing(left, currency)) is None:
        return
    on = account["key"][2] if account["key"][2] in author.datasets else rng.choice(author.datasets)
    by = account["key"][3] or rng.choice(author.clients)
    command = {"type": "ask_grant", "dataset": on, "mechanisms": [stated], "purpose": "study",
               "justification": "exactly"}  # fmt: skip
    found = author.submit(by, author.sealed(command), author.key())
    granted = found[-1].get("grant") if isinstance(found, list) else None
    if granted and rng.random() < 0.85:  # else nothing would go any more
        back = {"type": "release_grant", "grant": granted, "reason": "not run"}
        author.submit(by, author.sealed(back))


def _epoch(totals: Json, rule: str) -> int:
    return int(totals["limits"][rule]["epoch"])


def _costing(units: int, currency: str) -> Json | None:
    """What costs exactly so many units of a currency, where something does."""
    if units < 1:
        return None
    if currency == "epsilon":
        return {"kind": "laplace", "sensitivity": f"{units}e-9", "scale": "1"}
    if currency == "delta" and units <= 10**15:
        return {"kind": "declared", "epsilon": "1e-9", "delta": f"{units}e-15"}
    if currency == "rho":
        return {"kind": "declared", "rho": f"{units}e-15"}
    if currency.startswith("tau_"):
        order = ceil(float(currency.removeprefix("tau_")))  # a declared one is whole
        return {"kind": "declared", "renyi": {str(order): f"{units}e-15"}}
    return None


def huge(author: Author) -> None:
    """Records, or asks for, what no sum can hold twice."""
    rng = author.rng
    stated: Json = rng.choice([
        {"kind": "declared", "epsilon": rng.choice(_EXCESSIVE)},
        {"kind": "declared", "epsilon": "0.1", "delta": "1", "count": rng.choice([1, 1000, 4000])},
        {"kind": "declared", "rho": rng.choice(["1000", "4000", "5000"])},
        {"kind": "declared", "renyi": {"8": "2000", "512": "4000"}},
        {"kind": "laplace", "sensitivity": "1e-30", "scale": "1e30"},
        {"kind": "laplace", "sensitivity": "1", "scale": "1", "count": 10**9},
        {"kind": "gaussian", "sensitivity": "60", "scale": "1", "delta": "1e-9"},
        {"kind": "non_private"},
    ])  # fmt: skip
    kind = rng.choice(["record_invocations", "record_invocations", "ask_grant"])
    command = request(author, kind) | {"mechanisms": [stated]}
    if rng.random() < 0.6:  # either twice, which may be too much for one sum, or beside another
        command["mechanisms"].append(rng.choice([stated, stated, rng.choice(author.pool)]))
    author.submit(rng.choice(author.clients), command, author.key())


def brim(author: Author) -> None:
    """Fills a dataset's lifetime almost to 2**62 units, begins all limits anew, reserves more than
    the lifetime has room for, and commits a part, which may have room.
    """
    rng, where, one = author.rng, author.rng.choice(author.datasets), 50_000_000
    lifetimes = {a["key"][2]: a for a in author.ledger.totals()["accounts"] if not a["key"][0]}
    held = lifetimes.get("*", {}).get("bound", {}).get("epsilon", 0)
    left = _LARGEST - held - rng.choice([2, 3]) * one
    if left > 0:
        full = {"kind": "declared", "epsilon": f"{left}e-9"}
        command: Json = {"type": "record_invocations", "dataset": where, "mechanisms": [full]}
        author.submit("one", command, author.key())
    adopt(author, author.policies.raised(author.rules, 3, reset=True))
    part = {"kind": "laplace", "sensitivity": "0.05", "scale": "1", "count": 5}
    asked = {"type": "ask_grant", "dataset": where, "mechanisms": [part]}
    asked |= {"purpose": author.purpose(), "justification": author.purpose()}
    found = author.submit("one", author.sealed(asked), author.key())
    if isinstance(found, list) and "grant" in found[-1]:
        run = [part | {"count": rng.choice([1, 2, 4])}]
        commit = {"type": "commit_grant", "grant": found[-1]["grant"], "mechanisms": run}
        author.submit("one", commit)


def session(author: Author) -> None:
    """Opens a sparse vector session."""
    stated = author.mechanisms.session(author.mechanisms.typical * author.rng.choice([0.5, 1, 3]))
    if author.private and author.rng.random() < 0.8:
        stated["neighbouring"] = "add_or_remove_one"
    if author.rng.random() < 0.1:
        stated["group_size"] = 2
    if author.rng.random() < 0.15:
        stated["claimed"] = {"epsilon": str(author.rng.choice([0.001, 0.5, 2]))}
    command: Json = {"type": "open_sparse_vector", "mechanism": stated}
    command["dataset"] = author.rng.choice(author.datasets)
    _describe(author, command, author.profile.everyone)
    _expires(author, command)
    author.submit(author.rng.choice(author.clients), author.sealed(command), author.key())


def _pick(author: Author, *, session: bool) -> tuple[str, Open] | None:
    found = [(name, grant) for name, grant in author.open.items() if grant.session is session]
    return author.rng.choice(found) if found else None


def count(author: Author) -> None:
    """Counts answers of a session."""
    if (found := _pick(author, session=True)) is not None:
        name, grant = found
        command: Json = {"type": "count_answers", "grant": name}
        command |= {
            "positives": author.rng.choice([0, 0, 1, 1, 2]),
            "negatives": author.rng.randint(0, 40),
        }
        author.submit(grant.by, command, author.key())


def close(author: Author) -> None:
    """Closes a session."""
    if (found := _pick(author, session=True)) is not None:
        name, grant = found
        author.submit(grant.by, {"type": "close_sparse_vector", "grant": name})


def commit(author: Author) -> None:
    """Commits a grant, whole or in part."""
    if (found := _pick(author, session=False)) is not None:
        name, grant = found
        key = author.key() if author.rng.random() < 0.2 else None
        author.submit(grant.by, _commit(author, name, grant), key)


def _commit(author: Author, name: str, grant: Open) -> Json:
    rng = author.rng
    command: Json = {"type": "commit_grant", "grant": name}
    if rng.random() < 0.5:
        listed = grant.command["mechanisms"]
        run = [
            m | {"count": rng.randint(1, m.get("count", 1))} for m in listed if rng.random() < 0.8
        ]
        if run:
            command["mechanisms"] = run
    return command


def release(author: Author) -> None:
    """Releases a grant, or a session that has not answered."""
    if author.open:
        name, grant = author.rng.choice(list(author.open.items()))
        author.submit(grant.by, _release(author, name))


def _release(author: Author, name: str) -> Json:
    return author.sealed({"type": "release_grant", "grant": name, "reason": "never run"})


def expire(author: Author) -> None:
    """Expires what is due."""
    for name in [name for name, grant in author.open.items() if author.now >= grant.expires]:
        author.submit(SYSTEM, {"type": "expire_grant", "grant": name})


def late(author: Author) -> None:
    """Settles a grant whose time has passed, noticed or not."""
    due = [(name, grant) for name, grant in author.open.items() if author.now >= grant.expires]
    found = author.rng.choice(due + author.ended[-6:]) if due or author.ended else None
    if found is not None:
        name, grant = found
        kind = "close_sparse_vector" if grant.session else "commit_grant"
        author.submit(grant.by, {"type": kind, "grant": name})


def jump(author: Author) -> None:
    """Lets time pass, sometimes to the very moment at which a grant expires, or just before it; the
    clock may also go back a little.
    """
    if author.open and author.rng.random() < 0.35:
        author.now = author.rng.choice(list(author.open.values())).expires - author.rng.choice(
            [0, 1]
        )
        return
    author.now += author.rng.choice([1, 40, 700, 4_000, 90_000, -30]) * SECOND


def extend(author: Author) -> None:
    """Appends values to a dimension; most of the time they inherit."""
    if not author.people:
        return
    name = author.rng.choice(sorted(author.people))
    known = author.people[name]
    more = more_of(known, author.rng.choice([1, 1, 2, 5, 5 + len(known) // 3]))
    new = author.rng.random() < 0.4
    if author.rng.random() < 0.3 and len(more) < 100:
        command: Json = {"type": "extend_population", "added": {name: more}}
    else:
        command = registered(author)
        command["dimensions"] |= {name: known + more}
    if isinstance(author.submit("admin", command | {"attested_new": new}), list):
        author.people[name] = known + more


def batch(author: Author) -> None:
    """Asks for many things at once: what gives back comes first."""
    rng, by = author.rng, author.rng.choice(author.clients)
    mine = [(n, g) for n, g in author.open.items() if g.by == by and not g.session]
    chosen = rng.sample(mine, min(len(mine), rng.randint(0, 3)))
    items = [
        _release(author, name) if rng.random() < 0.3 else _commit(author, name, grant)
        for name, grant in chosen
    ]
    items += [request(author, "ask_grant") for _ in range(rng.randint(0 if items else 1, 4))]
    if rng.random() < 0.08:
        items.insert(rng.randrange(len(items) + 1), {"type": "commit_grant", "grant": "g999999"})
    author.submit(by, {"type": "batch"}, author.key(), items)


def records(author: Author) -> None:
    """Records many invocations at once."""
    items = [request(author, "record_invocations") for _ in range(author.rng.randint(1, 5))]
    author.submit(author.rng.choice(author.clients), {"type": "batch"}, author.key(), items)


def retry(author: Author) -> None:
    """Asks the same again under the same key; sometimes something else, or as somebody else."""
    if not author.keyed:
        return
    rng = author.rng
    before = rng.choice(author.keyed)
    again = before | {"now": author.now}
    match rng.randrange(4):
        case 0 if "items" not in again and "purpose" not in again["command"]:
            other = {"purpose": "study"} if "dataset" in again["command"] else {"grant": "g0"}
            again["command"] = again["command"] | other
        case 1:
            again["by"] = rng.choice(author.clients)
    author.ask(again)


OPERATIONS: Final[dict[str, Callable[[Author], None]]] = {
    one.__name__: one
    for one in (
        dataset, policy, same_policy, ask, record, fill, huge, brim, session, count, close, commit,
        release, expire, late, jump, extend, batch, records, retry,
    )
}  # fmt: skip
"""Every operation, by name."""
