"""An example of every call, in an order that works: a hospital from its first call to its accounts.

The documentation shows these requests and answers, and a test sends them to a running service and
compares what comes back, so that the documentation says what is so. Times, hashes and signatures
are the only values that differ from run to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from typing import Any, Final

from pydantic import TypeAdapter

from accountant import __version__
from accountant.api.decisions import amounts
from accountant.budget.commands import Role
from accountant.ledger.events import canonical
from accountant.ledger.merkle import leaf_hash
from accountant.privacy.filters import FILTERS, RENYI, Limit
from accountant.privacy.mechanisms import Mechanism, Relation, price
from accountant.privacy.units import FIXED, NOTHING, Currency, show

CLIENTS: Final[Mapping[Role, str]] = {
    "admin": "steward",
    "pipeline": "visits",
    "officer": "privacy-office",
    "auditor": "audit",
}
"""The name of the key of each role, which is the client's name in events."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """One request and what it is answered. ``call`` is the operation's id, ``by`` the key's role;
    ``answer`` is JSON, or text for an answer of text; None stands for one that is shown by its
    media type only.
    """

    call: str
    title: str
    request: str
    by: Role | None
    status: int
    answer: Any
    body: Document | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


_HOSPITAL: Final = "/v1/populations/hospital"
_GATE: Final = "renyi"
_LIMIT: Final = Limit(Fraction(3), Fraction(1, 10**6), Fraction(1, 10**7))
_TAU: Final = RENYI.currency(_LIMIT)
"""What the policy below counts: tau_9."""
_POLICY: Final = """\
policy: hospital
rules:
  - id: lifetime            # each dataset, each group of patients
    datasets: "health-*"
    limit: {epsilon: 3, delta: 1e-6}
  - {id: nearly, of: lifetime, at: 80%, action: flag}
  - {id: reasons, require: [purpose], action: block}
"""
_ADOPTED: Final[Document] = {
    "digest": sha256(_POLICY.encode()).hexdigest(),
    "policy": "hospital",
    "rules": [
        {
            "id": "lifetime",
            "limit": {"epsilon": "3", "delta": "0.000001", "own_delta": "0.0000001"},
            "datasets": "health-*",
            "gate": _GATE,
            "action": "block",
            "carry": "used",
        },
        {"id": "nearly", "of": "lifetime", "at": "80%", "action": "flag"},
        {"id": "reasons", "require": ["purpose"], "datasets": "*", "action": "block"},
    ],
}
_PEOPLE: Final[Document] = {
    "privacy_unit": "patient",
    "neighbouring": "add_or_remove_one",
    "membership": "public",
    "dimensions": {
        "born": ["before-1960", "1960-1989", "since-1990"],
        "joined": ["2024", "2025", "2026"],
    },
}
_POPULATION: Final[Document] = {"population": "hospital", **_PEOPLE, "cells": 9}
_VISITS: Final[Document] = {
    "namespace": "postgres://warehouse",
    "name": "public.visits",
    "owner": "data office",
}

_COUNT: Final[Document] = {"kind": "laplace", "sensitivity": "1", "scale": "4"}
_CLAIMED: Final[Document] = _COUNT | {"claimed": {"epsilon": "0.25"}}
_COUNTS: Final[Document] = _CLAIMED | {"count": 2}
_TABLE: Final[Document] = {
    "kind": "gaussian",
    "sensitivity": {"l2": "1"},
    "scale": "20",
    "delta": "1e-8",
}
_CHOICE: Final[Document] = {"kind": "exponential", "sensitivity": "1", "scale": "10"}
_LOUD: Final[Document] = {"kind": "laplace", "sensitivity": "1", "scale": "0.25"}
_ALARM: Final[Document] = {
    "kind": "sparse_vector",
    "sensitivity": "1",
    "threshold_scale": "10",
    "comparison_scale": "80",
    "max_positives": 4,
}
_LATEST: Final[Document] = {"joined": ["2026"]}
_YOUNG: Final[Document] = {"born": ["since-1990"], "joined": {"from": "2025", "to": "2026"}}


def _time(sequence: int, hour: int = 9) -> str:
    return f"2026-01-05T{hour:02}:{sequence:02}:00.000000Z"


def _cost(mechanism: Document) -> dict[str, str]:
    """What a mechanism costs here, in every currency that is kept; a cost costs itself."""
    if "kind" not in mechanism:
        return mechanism
    model: Mechanism = TypeAdapter(Mechanism).validate_python(mechanism)
    return amounts(price(model, Relation.ADD_OR_REMOVE_ONE, (_TAU.order or 0,)).charge)


def _without_orders(cost: dict[str, str]) -> dict[str, str]:
    """Single mechanisms are listed without Renyi orders; the total has them."""
    return {currency: amount for currency, amount in cost.items() if currency in FIXED}


def _sum(currency: str, mechanisms: Sequence[Document]) -> str:
    total = sum((Decimal(_cost(m)[currency]) for m in mechanisms), start=Decimal(0))
    return format(total.normalize(), "f")


def _compared(currency: str, used: str, charge: str, capacity: str, holds: bool = True) -> Document:
    return {
        "currency": currency,
        "used": used,
        "charge": charge,
        "capacity": capacity,
        "holds": holds,
    }


def _decision(
    mechanism: Document, past: Sequence[Document], group: Document, fired: bool = False
) -> Document:
    """The decision that the policy above leads to, where ``past`` is used in ``group``; ``fired``:
    it is over the limit.
    """
    cost = _cost(mechanism)
    before, after = _sum("epsilon", past), _sum("epsilon", [*past, mechanism])

    def comparisons(share: Fraction) -> list[Document]:
        most, tau = RENYI.capacity(_LIMIT, share), _sum(_TAU, past)
        return [
            _compared(
                "epsilon", before, cost["epsilon"], show(most.epsilon, Currency.EPSILON), not fired
            ),
            _compared("delta", "0", cost["delta"], show(most.own_delta, Currency.DELTA)),
            _compared(str(_TAU), tau, cost[_TAU], show(most.second or 0, _TAU), not fired),
        ]

    scope = "dataset health-visits"
    common = {
        "fired": fired,
        "scope": scope,
        "dataset": "health-visits",
        "client": "",
        "group": group,
        "limit": {"epsilon": "3", "delta": "0.000001"},
        "gate": _GATE,
        "spent_before": before,
        "spent_after": after,
    }
    limit = common | {
        "rule": "lifetime",
        "action": "block",
        "code": "budget-exceeded",
        "text": _sides(mechanism, past, group, "the limit 3", fired),
        "comparisons": comparisons(Fraction(1)),
    }
    threshold = common | {
        "rule": "nearly",
        "action": "flag",
        "code": "threshold-passed",
        "text": _sides(mechanism, past, group, "80% of the limit 3 of rule lifetime", fired),
        "comparisons": comparisons(Fraction(4, 5)),
    }
    reasons = {
        "rule": "reasons",
        "action": "block",
        "fired": False,
        "code": "reason-required",
        "text": "nothing is missing (required: purpose)",
    }
    rules = [limit, threshold, reasons] if fired else [reasons, limit, threshold]
    return {"outcome": "block" if fired else "allow", "rules": rules}


def _sides(
    mechanism: Document, past: Sequence[Document], group: Document, most: str, fired: bool
) -> str:
    """Both sides of a limit's comparison in words."""
    before, after = _sum("epsilon", past), _sum("epsilon", [*past, mechanism])
    where = ", ".join(f"{name} {value}" for name, value in group.items())
    place = f"(dataset health-visits{'; ' if where else ''}{where})"
    verb = "is more than" if fired else "is within"
    asked = _cost(mechanism)["epsilon"]
    return f"epsilon {before} used + {asked} asked = {after} {verb} {most} {place}"


def _admitted(sequence: int, mechanism: Document) -> Document:
    return {
        "charge": _cost(mechanism),
        "flags": [],
        "decision": f"d{sequence}",
        "sequence": sequence,
        "time": _time(sequence),
    }


def _reserved(sequence: int, mechanism: Document) -> Document:
    grant = {"id": f"g{sequence}", "state": "reserved", "expires": _time(sequence, hour=10)}
    return grant | _admitted(sequence, mechanism)


def _settled(grant: str, state: str, sequence: int, charged: Document) -> Document:
    return {
        "id": grant,
        "state": state,
        "charged": charged,
        "sequence": sequence,
        "time": _time(sequence),
    }


def _problem(code: str, status: int, detail: str, **facts: Any) -> Document:
    return {
        "type": f"urn:accountant:problem:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
    } | facts


def _balance(group: str, spent: str, remaining: str, share: float) -> Document:
    return {
        "group": group,
        "spent": spent,
        "reserved": "0",
        "remaining": remaining,
        "share": share,
        "spent_delta": "0",
        "held_delta": "0",
        "own_delta": "0",
        "over": False,
        "void": False,
        "sum_of_epsilons": spent,
    }


def _asked(mechanism: Document, purpose: str, **more: Any) -> Document:
    return {"dataset": "health-visits", "purpose": purpose, "mechanisms": [mechanism]} | more


_NOTHING: Final = amounts(NOTHING)
_WIDEST: Final = {"born": "since-1990", "joined": "2026"}
_PAST: Final = (_COUNT, _CHOICE)
"""What has been run when the table, the loud one and the session are asked for."""
_OVER: Final = _decision(_LOUD, _PAST, _WIDEST, fired=True)
_GROUPS: Final = ("before-1960", "1960-1989")
_SPENT: Final = [{"group": name, "epsilon": "0.325", "delta": "0"} for name in _GROUPS] + [
    {"group": "since-1990", "epsilon": "0.575", "delta": "0"}
]
_COUNTED: Final[Document] = {
    "by": CLIENTS["pipeline"],
    "command": {"grant": "g9", "negatives": 30, "positives": 1, "type": "count_answers"},
    "key": "load-2026-01-a",
    "ledger": "hospital",
    "negatives": 30,
    "positives": 1,
    "sequence": 10,
    "time": _time(10),
    "type": "sparse_vector.answered.v1",
}
_SESSION_COST: Final = _cost(_ALARM) | {"epsilon": "0.125"}

_SIGNATURE: Final = (
    "HdRsyn3hcTZBTK4HEatcJSSaMqdIil+pkcTG1k7D7WiT1ehllh+wwDkxP2js0XUd7h9raGO6T3vc/oVSIkRDiSPEjQk="
)
_CHECKPOINT: Final = f"""\
localhost/hospital
13
xFe5KOqlKMEr+ScNoefd/WK8a6ahibvxrNLHWqxYzHo=

— localhost/hospital {_SIGNATURE}
"""
_RECEIPT: Final = (
    """\
c2sp.org/tlog-proof@v1
index 10
LXi+xKsSekGwK9wbR97esQ3ZzkvNHBwvrSiA259d72w=
bqf139jsrkR6SIN3upbhwftgpolewHc8osnx8zGL/Os=
8RLuo2lfr5yhsN33McyYpob5uaTBbvKAsehqjWWZLTE=
IicanbpEGmUu8HeERoZvRfLo35l5YcJUyHaYLDoMLRM=

"""
    + _CHECKPOINT
)

STORY: Final = (
    Example(
        call="register_population",
        title="Patients, by period of birth and year of joining",
        request=f"PUT {_HOSPITAL}",
        by="admin",
        body=_PEOPLE,
        status=200,
        answer=_POPULATION | {"sequence": 0},
    ),
    Example(
        call="register_dataset",
        title="A table of visits",
        request=f"PUT {_HOSPITAL}/datasets/health-visits",
        by="admin",
        body=_VISITS,
        status=200,
        answer=_VISITS | {"id": "health-visits", "parents": []},
    ),
    Example(
        call="adopt_policy",
        title="At most epsilon 3 for each dataset and group, with reasons",
        request=f"PUT {_HOSPITAL}/policy",
        by="admin",
        headers={"Content-Type": "application/yaml"},
        body=_POLICY,
        status=200,
        answer=_ADOPTED | {"adopted": True, "opens_epoch": ["lifetime"]},
    ),
    Example(
        call="show_population",
        title="What is registered",
        request=f"GET {_HOSPITAL}",
        by="officer",
        status=200,
        answer=_POPULATION
        | {
            "sequence": 2,
            "datasets": [{"id": "health-visits", **_VISITS, "parents": []}],
            "policy": _ADOPTED,
        },
    ),
    Example(
        call="preview",
        title="What would one count cost?",
        request=f"POST {_HOSPITAL}/preview",
        by="pipeline",
        body=_asked(_COUNT, "weekly visit counts"),
        status=200,
        answer={
            "decision": _decision(_COUNT, (), {}),
            "charge": _cost(_COUNT),
            "fits": 12,
            "sequence": 2,
        },
    ),
    Example(
        call="ask_grant",
        title="Two counts about the youngest patients who joined lately",
        request=f"POST {_HOSPITAL}/grants",
        by="pipeline",
        headers={"Idempotency-Key": "visits-2026-w01"},
        body=_asked(_COUNTS, "weekly visit counts", subjects=_YOUNG),
        status=201,
        answer=_reserved(3, _COUNTS),
    ),
    Example(
        call="show_grant",
        title="A grant that is open",
        request=f"GET {_HOSPITAL}/grants/g3",
        by="pipeline",
        status=200,
        answer={
            "id": "g3",
            "state": "reserved",
            "client": CLIENTS["pipeline"],
            "dataset": "health-visits",
            "request": _asked(_COUNTS, "weekly visit counts", subjects=_YOUNG, type="ask_grant"),
            "opened": _time(3),
            "expires": _time(3, hour=10),
            "reserved": _cost(_COUNTS),
            "charged": None,
            "sequence": 3,
        },
    ),
    Example(
        call="list_grants",
        title="What is open",
        request=f"GET {_HOSPITAL}/grants?state=open&client=me",
        by="pipeline",
        status=200,
        answer={
            "grants": [
                {
                    "id": "g3",
                    "state": "reserved",
                    "client": CLIENTS["pipeline"],
                    "dataset": "health-visits",
                    "opened": _time(3),
                    "expires": _time(3, hour=10),
                    "reserved": _cost(_COUNTS),
                    "sequence": 3,
                }
            ],
            "last": 3,
        },
    ),
    Example(
        call="commit_grant",
        title="Only one of the two counts was run; the other comes back",
        request=f"POST {_HOSPITAL}/grants/g3/commit",
        by="pipeline",
        headers={"Idempotency-Key": "visits-2026-w01-commit"},
        body={"mechanisms": [_CLAIMED]},
        status=200,
        answer=_settled("g3", "committed", 4, _cost(_COUNT)),
    ),
    Example(
        call="record_invocations",
        title="A choice that was made this morning without asking",
        request=f"POST {_HOSPITAL}/invocations",
        by="pipeline",
        headers={"Idempotency-Key": "busiest-2026-01"},
        body=_asked(_CHOICE, "busiest ward", subjects=_LATEST, ran_at="2026-01-05T08:00:00Z"),
        status=201,
        answer={"overrun": False} | _admitted(5, _CHOICE),
    ),
    Example(
        call="ask_grant",
        title="A table with Gaussian noise, about everyone",
        request=f"POST {_HOSPITAL}/grants",
        by="pipeline",
        headers={"Idempotency-Key": "wards-2026-01"},
        body=_asked(_TABLE, "visits by ward"),
        status=201,
        answer=_reserved(6, _TABLE),
    ),
    Example(
        call="release_grant",
        title="The query was never sent",
        request=f"POST {_HOSPITAL}/grants/g6/release",
        by="pipeline",
        body={"reason": "the warehouse was down; no query was sent"},
        status=200,
        answer=_settled("g6", "released", 7, _NOTHING),
    ),
    Example(
        call="ask_grant",
        title="Too much: refused, with both sides of each comparison and what would fit",
        request=f"POST {_HOSPITAL}/grants",
        by="pipeline",
        headers={"Idempotency-Key": "table-2026-01"},
        body=_asked(_LOUD, "a table with little noise"),
        status=403,
        answer=_problem(
            "budget-exceeded",
            403,
            f"refused by rule lifetime: {_OVER['rules'][0]['text']}; it would fit now with scale "
            "0.393 or more",
            would_fit={"scale": "0.393"},
            decision={"id": "d8"} | _OVER,
            charge=_cost(_LOUD),
            sequence=8,
        ),
    ),
    Example(
        call="open_sparse_vector",
        title="Watch for days with unusual load, four alarms at most",
        request=f"POST {_HOSPITAL}/sparse-vector",
        by="pipeline",
        headers={"Idempotency-Key": "load-2026-01"},
        body={"dataset": "health-visits", "purpose": "unusual load", "mechanism": _ALARM},
        status=201,
        answer=_reserved(9, _ALARM),
    ),
    Example(
        call="count_answers",
        title="Thirty days below the threshold, one above",
        request=f"POST {_HOSPITAL}/sparse-vector/g9/answers",
        by="pipeline",
        headers={"Idempotency-Key": "load-2026-01-a"},
        body={"positives": 1, "negatives": 30},
        status=200,
        answer={
            "id": "g9",
            "state": "reserved",
            "positives": 1,
            "negatives": 30,
            "sequence": 10,
            "time": _time(10),
        },
    ),
    Example(
        call="close_sparse_vector",
        title="Three alarms were not used; their epsilon comes back",
        request=f"POST {_HOSPITAL}/sparse-vector/g9/close",
        by="pipeline",
        body={},
        status=200,
        answer=_settled("g9", "committed", 11, _SESSION_COST),
    ),
    Example(
        call="show_grant",
        title="A session that is closed",
        request=f"GET {_HOSPITAL}/grants/g9",
        by="pipeline",
        status=200,
        answer={
            "id": "g9",
            "state": "committed",
            "client": CLIENTS["pipeline"],
            "dataset": "health-visits",
            "request": {
                "dataset": "health-visits",
                "purpose": "unusual load",
                "mechanism": _ALARM,
                "type": "open_sparse_vector",
            },
            "opened": _time(9),
            "expires": _time(9, hour=10),
            "reserved": _cost(_ALARM),
            "charged": _SESSION_COST,
            "sequence": 9,
            "positives": 1,
            "negatives": 30,
        },
    ),
    Example(
        call="show_accounts",
        title="What is spent and what is left, by period of birth",
        request=f"GET {_HOSPITAL}/accounts?dataset=health-visits&by=born",
        by="officer",
        status=200,
        answer={
            "population": "hospital",
            "sequence": 11,
            "time": _time(11),
            "accounts": [
                {
                    "rule": "lifetime",
                    "scope": "dataset health-visits",
                    "dataset": "health-visits",
                    "client": "",
                    "action": "block",
                    "gate": _GATE,
                    "limit": {"epsilon": "3", "delta": "0.000001", "own_delta": "0.0000001"},
                    "window": None,
                    "epoch": 1,
                    "counted_from": _time(2),
                    "carried": False,
                    "total": _balance("everyone", "0.575", "2.425", 575 / 3000),
                    "worst_group": _WIDEST,
                    "lifetime": {"epsilon": "0.575", "delta": "0"},
                    "ladder": [{"gate": gate, "used": "0.575"} for gate in FILTERS],
                    "groups": [
                        *(_balance(name, "0.325", "2.675", 325 / 3000) for name in _GROUPS),
                        _balance("since-1990", "0.575", "2.425", 575 / 3000),
                    ],
                }
            ],
            "lifetime": [
                {"dataset": name, "epsilon": "0.575", "delta": "0", "groups": _SPENT}
                for name in ("health-visits", "*")
            ],
        },
    ),
    Example(
        call="show_decision",
        title="Why was it refused?",
        request=f"GET {_HOSPITAL}/decisions/d8",
        by="pipeline",
        status=200,
        answer={
            "id": "d8",
            "type": "grant.refused.v1",
            "sequence": 8,
            "time": _time(8),
            "client": CLIENTS["pipeline"],
            "request": _asked(_LOUD, "a table with little noise", type="ask_grant"),
            "charge": _cost(_LOUD),
            "mechanisms": [
                {
                    "kind": "laplace",
                    "count": 1,
                    "verdict": "unclaimed",
                    "charge": _without_orders(_cost(_LOUD)),
                }
            ],
        }
        | _OVER,
    ),
    Example(
        call="show_report",
        title="The compliance report as a page",
        request=f"GET {_HOSPITAL}/report?format=html",
        by="auditor",
        status=200,
        answer=None,
    ),
    Example(
        call="list_events",
        title="The ledger after event 9",
        request=f"GET {_HOSPITAL}/events?after=9&limit=1",
        by="auditor",
        status=200,
        answer={
            "events": [
                {
                    "event": _COUNTED,
                    "leaf": leaf_hash(canonical(_COUNTED)).hex(),
                }
            ],
            "last": 10,
        },
    ),
    Example(
        call="show_event",
        title="Event 10",
        request=f"GET {_HOSPITAL}/events/10",
        by="auditor",
        status=200,
        answer=_COUNTED,
    ),
    Example(
        call="show_receipt",
        title="Proof that event 10 stands in the ledger",
        request=f"GET {_HOSPITAL}/receipts/10",
        by="pipeline",
        status=200,
        answer=_RECEIPT,
    ),
    Example(
        call="show_checkpoint",
        title="The ledger as it was last published",
        request=f"GET {_HOSPITAL}/log/checkpoint",
        by="auditor",
        status=200,
        answer=_CHECKPOINT,
    ),
    Example(
        call="show_tile",
        title="The hashes of all events",
        request=f"GET {_HOSPITAL}/log/tile/0/000.p/13",
        by="auditor",
        status=200,
        answer=None,
    ),
    Example(
        call="erase_texts",
        title="A reason that named somebody is erased",
        request=f"POST {_HOSPITAL}/events/7/erase",
        by="officer",
        body={"fields": ["reason"], "reason": "it named an employee"},
        status=200,
        answer={"event": 7, "erased": ["reason"], "sequence": 13},
    ),
    Example(
        call="batch",
        title="Two grants, both or neither",
        request=f"POST {_HOSPITAL}/batch",
        by="pipeline",
        headers={"Idempotency-Key": "january-2026"},
        body={
            "items": [
                {"type": "ask_grant"} | _asked(_COUNT, "visits in all"),
                {"type": "ask_grant"} | _asked(_CHOICE, "busiest ward", subjects=_LATEST),
            ]
        },
        status=201,
        answer={
            "sequence": 14,
            "items": [
                _reserved(15, _COUNT),
                _reserved(16, _CHOICE),
            ],
        },
    ),
    Example(
        call="healthz",
        title="Alive",
        request="GET /healthz",
        by=None,
        status=200,
        answer={"status": "ok", "version": __version__},
    ),
    Example(
        call="readyz",
        title="Ready",
        request="GET /readyz",
        by=None,
        status=200,
        answer={"status": "ready"},
    ),
)
"""In order: each builds on those before it. Sequences, and so the ids, follow from that."""
