"""What the corpus covers, counted from its data alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, Final

Json = dict[str, Any]

_EXPECTED: Final = {
    "command": """
        register_population extend_population register_dataset adopt_policy ask_grant
        open_sparse_vector record_invocations commit_grant release_grant expire_grant count_answers
        close_sparse_vector adopt_signing_key stop_publication resume_publication carry_over recover
        erase_text adopt_engine revalue accept_time batch""",
    "event": """
        population.registered population.extended dataset.registered policy.adopted grant.reserved
        grant.refused grant.committed grant.released grant.expired grant.noted
        sparse_vector.answered sparse_vector.closed invocation.recorded charge.revalued batch.opened
        batch.refused batch.part signing_key.adopted publication.stopped publication.resumed
        ledger.carried_over ledger.recovered text.erased engine.adopted clock.accepted""",
    "problem": """
        already-revalued batch-size clock-differs commit-exceeds-reservation
        dataset-immutable dataset-known dimensions-append-only duplicate-value empty-range
        engine-order event-too-large grant-expired grant-settled idempotency-key-required
        idempotency-key-reused is-a-session key-used malformed-account malformed-checkpoint
        malformed-key malformed-policy mixed-batch not-a-session not-due not-stopped not-your-grant
        nothing-counted one-session origin-fixed origin-used policy-closes-limit
        population-immutable second-name-needed
        selection-too-complex session-exhausted session-has-answered unknown-dataset
        unknown-dimension unknown-event unknown-grant unknown-group unknown-population""",
    "fired": """
        no-policy no-limit budget-exceeded threshold-passed mechanism-denied reason-required
        purpose-denied claim-understated plan-understated sparse-vector-broken
        monotonic-needs-add-or-remove local-needs-replace-one relation-not-derivable local-sample
        sampling-relation private-membership unverifiable-claim""",
    "verdict": "consistent conservative understated unverifiable unclaimed",
    "mechanism": """
        laplace discrete_laplace gaussian discrete_gaussian exponential permute_and_flip
        randomized_response unary_encoding sparse_vector composed subsample_and_aggregate
        propose_test_release multiplicative_weights boosting reusable_holdout plan declared
        non_private tree_aggregation gaussian_mixture repeat_and_select""",
    "stated": """
        count neighbouring group_size poisson without_replacement truncated allocation claimed
        sampler delta rho mu renyi monotonic memoised""",
    "gate": "basic advanced zcdp renyi gdp",
    "rule": """
        limit of mechanisms require purposes limit-block limit-flag mechanisms-block mechanisms-flag
        require-block require-flag purposes-block purposes-flag across per glob own_delta
        carry-none publication orders workload window at_most""",
    "policy": "first-name second-name own-name opens-nothing opens-one opens-all loosens witnesses",
    "epoch": "carried anew whole after-reset later",
    "compared": """
        fits-epsilon fails-epsilon fits-epsilon_squared fails-epsilon_squared fits-rho fails-rho
        fits-tau fails-tau fits-mu_squared fails-mu_squared cell infinite""",
    "decision": """
        ask-allow ask-flag ask-block open-allow open-flag open-block record-allow record-flag
        overrun within charged-to-everyone join derived""",
    "batch": "spending invocations refused problem expires-first gives-back commits-part",
    "group": "none empty names range bits gaps union one-cell-box overlap",
    "people": """
        dimensions-0 dimensions-1 dimensions-2 dimensions-3 cells-1 cells-1000 in-parts
        add_or_remove_one-public add_or_remove_one-private replace_one-public
        replace_one-private zero_out-public""",
    "extended": "inherited new while-open",
    "settled": "committed committed-part released expired expired-noted expired-charged",
    "request": "repeated nothing clock-behind late",
    "account": "used infinite reserved lifetime across client old-epoch many-cells all-alike",
}
_KINDS: Final = ("limit", "of", "at_most", "mechanisms", "require", "purposes")
_FIELDS: Final = ("across", "per", "orders", "workload", "window")
WANTED: Final = {(kind, name) for kind, names in _EXPECTED.items() for name in names.split()}
"""Everything that the corpus has to cover, by kind. Two problems that the deciders know are not
among it: batch-open and batch-digest come of nothing but a damaged ledger.
"""


def covered(ledgers: Iterable[Json]) -> Counter[tuple[str, str]]:
    """How often each thing occurs in ``ledgers``; ("judged", "") counts judgements."""
    found: Counter[tuple[str, str]] = Counter()
    for ledger in ledgers:
        for step in ledger["steps"]:
            found.update(_step(step))
        found["extended", "while-open"] += _widened(ledger["steps"])
        found["ledger", ""] += 1
    return found


def _widened(steps: list[Json]) -> int:
    """Extensions while a grant is open on a group that does not name the dimension."""
    opened: dict[str, Any] = {}
    found = 0
    for step in steps:
        for event in step["found"] if isinstance(step["found"], list) else ():
            if event["type"] == "grant.reserved" and step["ask"]["command"].get("subjects"):
                opened[event["grant"]] = step["ask"]["command"]["subjects"]
            elif "charge" in event:
                opened.pop(event["grant"], None)
            for dimension in event.get("added", ()):
                found += any(dimension not in str(subjects) for subjects in opened.values())
    return found


def _step(step: Json) -> Iterator[tuple[str, str]]:
    asked, found = step["ask"], step["found"]
    command = asked["command"]
    items = asked.get("items", [])
    yield "command", command["type"]
    for each in items or [command]:
        yield from _command(each)
    if command.get("approved_by") == asked["by"]:
        yield "policy", "own-name"
    if isinstance(found, dict):
        yield from (("request", "repeated"),) if "repeated" in found else ()
        yield from (("problem", found["problem"]),) if "problem" in found else ()
        yield from (("batch", "problem"),) if "item" in found else ()
        return
    yield from (("request", "nothing"),) if not found else ()
    for event in found:
        yield from _event(event, command, items)
    if command["type"] == "batch":
        yield from _batch(found, items)
    if command["type"] == "adopt_policy" and found:
        yield from _policy(command, found[0])
    if command["type"] == "register_population" and "registered" in str(found):
        yield from _population(command, found)
    for row in (row for rows in step.get("compared", []) for row in rows):
        yield from _comparison(row)
    if "totals" in step:
        yield from _totals(step["totals"])


def _command(command: Json) -> Iterator[tuple[str, str]]:
    stated = [*command.get("mechanisms", []), command.get("mechanism")]
    for mechanism in filter(None, stated):
        yield from _mechanism(mechanism)
    if command["type"] in ("ask_grant", "record_invocations", "open_sparse_vector"):
        yield from _group(command.get("subjects"))
        yield from (("decision", "join"),) if isinstance(command["dataset"], list) else ()
    if command["type"] in ("extend_population", "register_population"):
        yield "extended", "new" if command.get("attested_new") else "inherited"


def _mechanism(mechanism: Json) -> Iterator[tuple[str, str]]:
    yield "mechanism", mechanism["kind"]
    for name in ("count", "neighbouring", "group_size", "claimed", "sampler", "delta", "rho",
                 "mu", "renyi", "monotonic", "memoised"):  # fmt: skip
        if name in mechanism:
            yield "stated", name
    yield from (("stated", name) for name in mechanism.get("sampling", {}))


def _group(subjects: Any) -> Iterator[tuple[str, str]]:
    if not subjects:
        yield "group", "none" if subjects is None else "empty"
        return
    terms = subjects if isinstance(subjects, list) else [subjects]
    for side in (side for term in terms for side in term.values()):
        for name in ("names",) if isinstance(side, list) else side.keys() - {"to"}:
            yield "group", "range" if name == "from" else name
    if isinstance(subjects, list):
        yield "group", "union"
        if any(all(isinstance(s, list) and len(s) == 1 for s in t.values()) for t in terms):
            yield "group", "one-cell-box"
        if len(terms) > len({str(term) for term in terms}):
            yield "group", "overlap"


def _event(event: Json, command: Json, items: list[Json]) -> Iterator[tuple[str, str]]:
    kind = event["type"]
    yield "event", kind
    if "late" in event:
        yield "request", "clock-behind"
    if "outcome" in event:
        yield "judged", ""
        yield from (("fired", code) for _, code in event["fired"])
        yield from (("verdict", verdict) for verdict in event["verdicts"])
        yield from (("decision", "derived"),) if "charged" in event else ()
        yield from _decided(event, command)
    if kind == "grant.expired" and command["type"] != "expire_grant":
        yield "settled", "expired-charged"
    if kind == "grant.committed" and any("mechanisms" in one for one in [command, *items]):
        yield "settled", "committed-part"
    if kind == "grant.noted":
        yield "request", "late"


def _decided(event: Json, command: Json) -> Iterator[tuple[str, str]]:
    if event["type"] == "invocation.recorded":
        yield "decision", f"record-{event['outcome']}"
        yield "decision", "overrun" if event["overrun"] else "within"
        if "charged_to" in event:
            yield "decision", "charged-to-everyone"
    else:
        kind = "open" if command["type"] == "open_sparse_vector" else "ask"
        yield "decision", f"{kind}-{event['outcome']}"


def _batch(found: list[Json], items: list[Json]) -> Iterator[tuple[str, str]]:
    kinds = [item["type"] for item in items]
    yield "batch", "invocations" if kinds[0] == "record_invocations" else "spending"
    if any(event["type"] == "batch.refused" for event in found):
        yield "batch", "refused"
        return
    yield from (("batch", "expires-first"),) if found[0]["type"] == "grant.expired" else ()
    yield from (("batch", "gives-back"),) if "release_grant" in kinds else ()
    if any(item["type"] == "commit_grant" and "mechanisms" in item for item in items):
        yield "batch", "commits-part"


def _policy(command: Json, event: Json) -> Iterator[tuple[str, str]]:
    limits = 0
    for rule in command["policy"]["rules"]:
        kind = next(kind for kind in _KINDS if kind in rule)
        yield "rule", kind
        yield "rule", f"{kind}-{rule['action']}"
        limits += kind == "limit"
        yield from (("gate", rule["gate"]),) if kind == "limit" else ()
        yield from (("rule", name) for name in _FIELDS if name in rule)
        yield from (("rule", "glob"),) if rule.get("datasets", "*") != "*" else ()
        yield from (("rule", "carry-none"),) if rule.get("carry") == "none" else ()
        yield from (("rule", "own_delta"),) if rule.get("limit", {}).get("own_delta") else ()
    yield from (("rule", "publication"),) if "publication" in command["policy"] else ()
    yield "policy", "second-name" if "approved_by" in command else "first-name"
    opened = len(event["opens_epoch"])
    yield "policy", f"opens-{'all' if opened == limits else 'one' if opened else 'nothing'}"
    yield from (("policy", "loosens"),) if event["loosens"] else ()
    yield from (("policy", "witnesses"),) if "witnesses" in event["loosens"] else ()


def _population(command: Json, found: list[Json]) -> Iterator[tuple[str, str]]:
    sizes = [len(values) for values in command.get("dimensions", {}).values()]
    yield "people", f"dimensions-{len(sizes)}"
    yield from (("people", "cells-1"),) if prod(sizes) == 1 else ()
    yield from (("people", "cells-1000"),) if prod(sizes) >= 1_000 else ()
    yield from (("people", "in-parts"),) if len(found) > 1 else ()
    yield "people", f"{command['neighbouring']}-{command['membership']}"


def _comparison(row: Json) -> Iterator[tuple[str, str]]:
    if "used" not in row:
        return
    third = [*row["used"], "epsilon"][2 if len(row["used"]) > 2 else -1]
    third = "tau" if third.startswith("tau_") else third
    yield "compared", f"{'fits' if row['fits'] else 'fails'}-{third}"
    yield from (("compared", "cell"),) if row["cell"] is not None else ()
    yield from (("compared", "infinite"),) if None in row["used"].values() else ()


def _totals(totals: Json) -> Iterator[tuple[str, str]]:
    for limit in totals["limits"].values():
        if "epoch" in limit:
            yield "epoch", "carried" if limit["carried"] else "anew"
            yield "epoch", "whole" if limit["whole"] else "after-reset"
            yield from (("epoch", "later"),) if limit["epoch"] > 1 else ()
    yield from (("settled", name.replace(" and ", "-")) for name in totals["settled"])
    for account in totals["accounts"]:
        yield from _account(account, totals["limits"])


def _account(account: Json, limits: Json) -> Iterator[tuple[str, str]]:
    rule, epoch, dataset, client = account["key"]
    yield from (("account", name) for name in ("used", "reserved") if name in account)
    yield from (("account", "infinite"),) if "used_infinite" in account else ()
    yield from (("account", "lifetime"),) if not rule else ()
    yield from (("account", "across"),) if rule and dataset == "*" else ()
    yield from (("account", "client"),) if client else ()
    if rule and epoch != limits.get(rule, {}).get("epoch"):
        yield "account", "old-epoch"
    for sums in account.get("used", {}).values():
        yield "account", "all-alike" if len(sums) == 1 else "many-cells"
