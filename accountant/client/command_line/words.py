"""Answers of the service in words, one text a line. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from accountant.client.command_line.output import table
from accountant.client.errors import Body

REFUSALS: Final = ("grant.refused.v1", "batch.refused.v1")
"""The events that refuse."""
WAITS: Final = "the service is away: the report waits in the spool (accountant deliver)"
_DIGITS: Final = {"epsilon": 9}
"""The decimals of a currency's units; of all others:"""
_OTHERS: Final = 15
_MOST_TEXT: Final = 200
"""Characters of a list of names."""


def cost(charge: Mapping[str, str]) -> str:
    """Return a charge in the currencies that everybody reads. Training has no epsilon by itself,
    and is bounded in another one.
    """
    sure = {name: charge[name] for name in ("epsilon", "delta") if name in charge}
    said = {name: f"{name} {amount}" for name, amount in sure.items()}
    bounded = any(charge[name] != "infinite" for name in charge.keys() - sure)
    if sure.get("epsilon") == "infinite" and bounded:
        said["epsilon"] = "no epsilon by itself"
    return ", ".join(said.values())


def reserved(answer: Body, *, repeated: bool) -> Iterator[str]:
    """Tell of a grant, or that the request waits."""
    if answer["state"] == "waiting":
        asks = f" (asked for by {', '.join(answer['asks'])})" if answer["asks"] else ""
        yield f"{answer['id']}: waits until {answer['until']} for {answer['waits_for']}{asks}"
        return
    yield f"{answer['id']}: {cost(answer['charge'])}, reserved until {answer['expires']}"
    yield from flagged(answer)
    if repeated:
        yield "  this key was used before: it is the grant that was given then"


def flagged(answer: Body) -> Iterator[str]:
    """Name the rules that fired."""
    if names := [flag["rule"] for flag in answer.get("flags", ())]:
        yield f"  flagged by {', '.join(names)}"


def settled(answer: Body) -> Iterator[str]:
    """Tell how a grant ended, or that it is open until somebody confirms."""
    if "proposal" in answer:
        grant = answer["change"]["grant"]
        yield f"{grant}: open until another person confirms proposal {answer['proposal']}"
        yield from proposal(answer)
        return
    charge = answer.get("charged", {})
    booked = f"{cost(charge)} charged" if set(charge.values()) - {"0"} else "nothing charged"
    note = f" ({answer['note']})" if "note" in answer else ""
    yield f"{answer['id']}: {answer['state']}, {booked}{note}"
    yield from flagged(answer)


def proposal(one: Body, option: str = "") -> Iterator[str]:
    """Show a proposal: what it would do, and how to confirm it, with an ``option`` more."""
    yield f"proposal {one['proposal']} by {one['by']}, {one['time']}: {one['state']}"
    yield f"  change: {one['change']['type']}; {one['why']}"
    yield from _new(one, one["by"])
    if "closed" in one:
        yield f"  {one['state']} by {one['closed_by']} (event {one['closed']})"
    if "next" in one:
        yield f"  until {one['expires']}, by another admin or officer:"
        yield f"  accountant confirm {one['proposal']}{option} --digest {one['digest']}"


def approval(one: Body, population: str) -> Iterator[str]:
    """Show a request that waits for a person: what it would do, and how it is decided."""
    yield f"{one['id']} of {one['client']}, {one['time']}: {cost(one['charge'])}"
    for name in ("purpose", "justification"):
        if name in one["request"]:
            yield f"  {name}: {one['request'][name]}"
    for said in one["asks"]:
        yield f"  approval is asked for by {said['rule']}: {said['text']}"
    for said in one["blocked_by"]:
        yield f"  it cannot be granted now, by {said['rule']}: {said['text']}"
    for line in one["effect"]:
        yield f"  {line['text']}"
    yield from _new(one, one["client"])
    yield f"  until {one['until']}, by an admin or officer who did not ask:"
    yield f"  accountant approve {one['id']} -p {population} --digest {one['digest']}"


def _new(one: Body, first: str) -> Iterator[str]:
    """Tell which keys confirm nothing of somebody's, for they had a part in making them."""
    for key in one.get("new_keys", ()):
        yield f"  new key: {key['name']} ({key['role']}), made by {first} at {key['made']}"


def closed(answer: Body) -> Iterator[str]:
    """Tell how a proposal ended."""
    yield f"proposal {answer['proposal']}: {answer['state']}, event {answer['sequence']}"


def recorded(answer: Body) -> Iterator[str]:
    """Tell what was recorded."""
    over = "; a limit is exceeded" if answer["overrun"] else ""
    yield f"event {answer['sequence']}: {cost(answer['charge'])} recorded{over}"
    yield from flagged(answer)


def open_grants(found: Sequence[Body]) -> Iterator[str]:
    """List open grants."""
    if not found:
        yield "no open grants"
        return
    head = ("grant", "dataset", "state", "until", "reserved")
    rows = [head]
    for one in found:
        dataset = one["dataset"]
        named = dataset if isinstance(dataset, str) else " + ".join(dataset)
        rows.append((one["id"], named, one["state"], one["expires"], cost(one["reserved"])))
    yield from table(rows, right=len(head))


def accounts(found: Body) -> Iterator[str]:
    """Show limits and sums as a table."""
    yield f"ε of {found['population']} at event {found['sequence']}"
    rows = [("rule", "scope", "group", "limit", "spent", "reserved", "left")]
    for line in found["accounts"]:
        names = (line["rule"], line["scope"].removeprefix("dataset "))
        for balance in (line["total"], *line["groups"]):
            left = "over" if balance["void"] else balance["remaining"]
            sums = (line["limit"]["epsilon"], balance["spent"], balance["reserved"], left)
            rows.append((*names, balance["group"], *sums))
            names = ("", "")
    yield from table(rows, right=3)
    for line in found["accounts"]:
        if len(line["ladder"]) > 1:
            used = ", ".join(f"{rung['gate']} {rung['used']}" for rung in line["ladder"])
            yield f"{line['rule']}, {line['scope']}, used by each filter: {used}"
    for row in found["lifetime"]:
        name = "all datasets, one person" if row["dataset"] == "*" else row["dataset"]
        yield f"lifetime, {name}: ε {row['epsilon']}, δ {row['delta']}"


def _scope(dataset: str, client: str) -> str:
    scope = "all datasets" if dataset == "*" else dataset
    return f"{scope}, {client}" if client else scope


def preview(found: Body) -> Iterator[str]:
    """Show a decision that would be taken."""
    note = f" ({found['note']})" if "note" in found else ""
    yield f"decision: {found['decision']['outcome']}{note}"
    for rule in found["decision"]["rules"]:
        yield _rule(rule)
    yield f"requests like this that the limits admit: {found['fits']}"


def previews(found: Body) -> Iterator[str]:
    """Show what several requests would get, one after another."""
    for place, one in enumerate(found["items"], start=1):
        rules = ", ".join(flag["rule"] for flag in one["flags"])
        by = f" ({rules})" if rules else ""
        yield f"{place}: {one['outcome']}{by}, {cost(one['charge'])}"
    yield f"{found['granted']} of {len(found['items'])} would be granted"


def decision(found: Body) -> Iterator[str]:
    """Show a decision, the charge of each mechanism, and each rule with its comparisons; then
    every exhausted account.
    """
    yield f"event {found['sequence']} ({found['type']}), {found['time']}, {found['client']}"
    policy = found.get("policy")
    under = "without a policy" if policy is None else f"by the policy of event {policy}"
    yield f"decision: {found['outcome']}, {under}"
    for one in found["mechanisms"]:
        what = f"{one['count']} x {one['kind']}" if one["count"] > 1 else one["kind"]
        yield f"  {what}: {cost(one['charge'])} ({one['verdict']})"
    for rule in found["rules"]:
        yield _rule(rule)
        for side in rule.get("comparisons", ()):
            yield f"         {_integers(side)}"
    yield from _exhausted(found.get("exhausted"))


def _exhausted(found: Body | None) -> Iterator[str]:
    if not found:
        return
    yield f"exhausted accounts: {found['accounts']}"
    cut = False
    for one in found["listed"]:
        data = ", ".join("all together" if name == "*" else name for name in one["datasets"])
        parts = _shortened(data), _cells(one)
        cut |= any(part.endswith("…") for part in parts)
        yield f"  {one['rule']}, {': '.join(parts)}"
    if "address" in found:
        yield f"  (all of them are at {found['address']})"
    elif cut:
        yield "  (long lists of names are cut: --json has all)"


def _cells(one: Body) -> str:
    """Return the groups of people that an exhausted account is exhausted for."""
    if one.get("part"):
        return "some groups, which the event had no room to name"
    if "subjects" not in one:
        return "all groups asked for"
    terms = one["subjects"]
    named = ([f"{name}: {_values(term[name])}" for name in sorted(term)] for term in terms)
    return _shortened(" or ".join(map("; ".join, named)))


def _values(values: Any) -> str:
    if isinstance(values, dict):
        return f"{values['from']} to {values['to']}"
    return ", ".join(values)


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


def _rule(rule: Body) -> str:
    mark = rule["action"] if rule["fired"] else "ok"
    return f"  {mark:>5}  {rule['rule']}: {rule['text']}"


def _integers(side: Mapping[str, Any]) -> str:
    """Write one comparison as it was made: used + charge against the capacity, in units."""
    digits = _DIGITS.get(side["currency"], _OTHERS)
    used, charge, capacity = (_units(side[name], digits) for name in ("used", "charge", "capacity"))
    holds = "<=" if side["holds"] else ">"
    return f"{side['currency']}: {used} + {charge} {holds} {capacity} (in 1e-{digits})"


def _units(amount: str, digits: int) -> str:
    """Return an exact decimal in units."""
    return amount if amount == "infinite" else str(int(Decimal(amount).scaleb(digits)))
