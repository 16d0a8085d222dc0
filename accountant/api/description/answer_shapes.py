"""The shapes of answers, which are made from events and have no models of their own."""

from __future__ import annotations

from typing import Any, Final

from accountant.privacy.units import FIXED

Schema = dict[str, Any]

_WHOLE_DECISION: Final = {
    "outcome": ("text", "allow, flag or block: the strictest action among the rules that fired"),
    "rules": ("[RuleFinding]", "every rule that was evaluated, those that fired first"),
}
_STAMP: Final = {
    "sequence": ("int", "the event that answers this request"),
    "time": ("time", "when the service stamped that event"),
}
_JUDGED: Final = {
    "charge": ("Charge", "what all mechanisms cost together, per cell"),
    "flags": ("[Flag]", "the rules that fired, the strictest first; empty for most requests"),
    "decision": ("text", "the id of the decision, which can be read in full under /decisions/"),
    **_STAMP,
}
_OPEN: Final = {
    "id": ("text", "its id"),
    "state": ("text", "reserved; expired: its time has passed, and it is about to be charged"),
    "client": ("text", "the name of the key that asked"),
    "dataset": ("text", "the dataset's id"),
    "opened": ("time", "when it was reserved"),
    "expires": ("time", "when it expires"),
    "reserved": ("Charge", "what is set aside"),
    "sequence": ("int", "the event that reserved it"),
    "positives?": ("int", "sessions: positive answers counted"),
    "negatives?": ("int", "sessions: negative answers counted"),
}
_PEOPLE: Final = {
    "population": ("text", "its name"),
    "privacy_unit": ("text", "who or what is protected"),
    "neighbouring": ("text", "add_or_remove_one or replace_one"),
    "membership": ("text", "public or private"),
    "dimensions": ("{[text]}", "each dimension with its values in order"),
    "cells": ("int", "how many cells the dimensions make"),
    "sequence": ("int", "the last event that is counted in"),
}
_POLICY: Final = {
    "digest": ("text", "SHA-256 of the policy file's text, in hex"),
    "policy": ("text", "its name"),
    "rules": ("[Rule]", "its rules with every default written out"),
    "publication?": ("Publication", "its witnesses, if it names any"),
}

SHAPES: Final[dict[str, tuple[str, dict[str, tuple[str, str]]]]] = {
    "Charge": (
        "A privacy loss in every currency that is kept, and, as `tau_<order>`, the Renyi "
        "divergence at each order that a rule in force counts at.",
        {str(c): ("loss", f"sum of {c.replace('_', ' ')}") for c in FIXED}
        | {"^tau_[0-9]+$": ("loss", "sum of Renyi divergences at that order")},
    ),
    "PricedMechanism": (
        "One mechanism's price.",
        {
            "kind": ("text", "the mechanism's kind"),
            "count": ("int", "invocations"),
            "verdict": (
                "text",
                "how the claim compares with what follows from the stated parameters: consistent, "
                "conservative, understated, unverifiable or unclaimed",
            ),
            "charge": ("Charge", "what is booked for all invocations"),
        },
    ),
    "Comparison": (
        "One inequality: used + charge <= capacity.",
        {
            "currency": ("text", "what is compared"),
            "used": ("loss", "already spent or reserved, at the tightest cell"),
            "charge": ("loss", "what this request would add"),
            "capacity": ("loss", "the most that the rule admits"),
            "holds": ("bool", "whether it fits"),
        },
    ),
    "RuleFinding": (
        "One rule's word. Rules that the policy does not state are called built-in:….",
        {
            "rule": ("text", "the rule's id"),
            "action": ("text", "what it does when it fires: block or flag"),
            "fired": ("bool", "whether it objects"),
            "code": ("text", "the problem code that it stands for"),
            "text": ("text", "the comparison in words"),
            "scope?": ("text", "limit rules: which account, in words"),
            "dataset?": ("text", "limit rules: the account's dataset, or * for all together"),
            "client?": ("text", "limit rules: whose sub-limit it is, or empty"),
            "group?": ("{text}", "limit rules: the tightest cell; empty if all are alike"),
            "limit?": ("Limit", "limit rules: the promise"),
            "gate?": ("text", "limit rules: how losses are added up"),
            "spent_before?": ("loss", "limit rules: epsilon before this request"),
            "spent_after?": ("loss", "limit rules: epsilon if it were admitted"),
            "comparisons?": (
                "[Comparison]",
                "both sides; epsilon or the gate's own currency has to hold, and delta has to",
            ),
        },
    ),
    "Flag": (
        "A rule that fired.",
        {
            "rule": ("text", "the rule's id"),
            "code": ("text", "the problem code that it stands for"),
        },
    ),
    "WouldFit": (
        "What would be granted now in place of a request that a limit refuses; what is not there "
        "was not found. Claims are left out of account.",
        {
            "count?": ("int", "the largest count of the one mechanism"),
            "scale?": ("loss", "its smallest scale, in three digits"),
            "times?": (
                "loss",
                "several mechanisms or scales: the least factor for all their noise",
            ),
            "delta?": (
                "loss",
                "Gaussian noise without a delta, where limits count its epsilon only: a delta to "
                "state, with the scale if that alone is not enough",
            ),
        },
    ),
    "Limit": (
        "A promise (epsilon, delta).",
        {
            "epsilon": ("loss", "at most this epsilon"),
            "delta": ("loss", "except with about this probability"),
            "own_delta?": ("loss", "the part of delta kept for the mechanisms' own deltas"),
        },
    ),
    "Sums": (
        "Plain sums, true whatever the gate.",
        {"epsilon": ("loss", "sum of epsilons"), "delta": ("loss", "sum of deltas")},
    ),
    "Decision": (
        "A decision and its id.",
        {"id?": ("text", "d and a sequence"), **_WHOLE_DECISION},
    ),
    "DecisionInFull": (
        "A decision with the request that led to it.",
        {
            "id": ("text", "its id"),
            "type": ("text", "the type of the event that holds it"),
            **_STAMP,
            "client": ("text", "the name of the key that asked"),
            "request": (
                "object",
                "the request, defaults left out; a text that was erased is (erased)",
            ),
            "used_up_by?": (
                "[Contributors]",
                "for each limit that fired, what is charged in its account; not for pipelines",
            ),
            "charge": ("Charge", "what all mechanisms cost together, per cell"),
            "mechanisms": ("[PricedMechanism]", "what each mechanism costs, in the order asked"),
            **_WHOLE_DECISION,
        },
    ),
    "Contributors": (
        "What used a limit up before a decision.",
        {
            "rule": ("text", "the limit rule's id"),
            "events": ("[Contribution]", "the largest charges, largest first, as they stand now"),
            "left_out": ("int", "how many smaller ones are not listed"),
        },
    ),
    "Contribution": (
        "One charge.",
        {
            "sequence": ("int", "the event that booked it"),
            "client": ("text", "who asked"),
            "dataset": ("text", "on which dataset"),
            "purpose": ("text?", "what for; (erased) if it was erased"),
            "state": ("text", "recorded or revalued, or what became of the grant"),
            "epsilon": ("loss", "what is charged for it"),
            "delta": ("loss", "its own delta"),
        },
    ),
    "Population": ("A population.", _PEOPLE),
    "PopulationInForce": (
        "A population with its datasets and policy.",
        _PEOPLE
        | {
            "datasets": ("[Dataset]", "the datasets"),
            "policy": ("PolicyInForce?", "the policy in force, if one is adopted"),
        },
    ),
    "PolicyInForce": ("A policy as it was adopted.", _POLICY),
    "AdoptedPolicy": (
        "What adopting a policy has changed.",
        _POLICY
        | {
            "adopted": ("bool", "false if this very policy was in force already"),
            "opens_epoch": ("[text]", "limit rules that begin a new epoch"),
        },
    ),
    "Dataset": (
        "A dataset.",
        {
            "id": ("text", "its short id; grants and rules use it"),
            "namespace": ("text", "OpenLineage namespace"),
            "name": ("text", "OpenLineage name"),
            "owner?": ("text?", "who answers for it"),
            "parents?": ("[text]", "what it was made from"),
        },
    ),
    "Reservation": (
        "Budget that is set aside until the grant is settled or expires.",
        {
            "id": ("text", "the grant's id"),
            "state": ("text", "reserved"),
            "expires": ("time", "from then on it is charged in full"),
            **_JUDGED,
        },
    ),
    "Record": (
        "What has already run, as booked.",
        {"overrun": ("bool", "a rule would have refused it; it is charged all the same")} | _JUDGED,
    ),
    "BatchAnswer": (
        "The answers to the items of a batch.",
        {
            "sequence": ("int", "the event that opens the batch; the items' events follow it"),
            "items": (
                "[Reservation|Record|Settlement]",
                "what each item would have been answered alone, in the order listed",
            ),
        },
    ),
    "Preview": (
        "The decision that the request would get now.",
        {
            "decision": ("Decision", "the rules that were evaluated"),
            "charge": ("Charge", "what all mechanisms cost together, per cell"),
            "fits": ("int", "how many requests like this the limits admit"),
            "sequence": ("int", "the last event that is counted in"),
        },
    ),
    "Grant": (
        "A grant as it stands.",
        {
            "id": ("text", "its id"),
            "state": ("text", "reserved, committed, released or expired"),
            "client": ("text", "the name of the key that asked"),
            "dataset": ("text", "the dataset's id"),
            "request": (
                "object",
                "the request, defaults left out; a text that was erased is (erased)",
            ),
            "opened": ("time", "when it was reserved"),
            "expires": ("time", "when it expires, or would have"),
            "reserved": ("Charge", "what was set aside"),
            "charged": ("Charge?", "what is booked for good; null while it is open"),
            "sequence": ("int", "the event that reserved it"),
            "positives?": ("int", "sessions: positive answers counted"),
            "negatives?": ("int", "sessions: negative answers counted"),
        },
    ),
    "OpenGrant": ("A grant that is not settled yet.", _OPEN),
    "OpenGrants": (
        "A page of open grants.",
        {
            "grants": ("[OpenGrant]", "in the order in which they were reserved"),
            "last": ("int", "send it as `after` for the next page"),
        },
    ),
    "Settlement": (
        "How a grant ended. A commit after the expiry changes nothing and is only noted.",
        {
            "id": ("text", "the grant's id"),
            "state": ("text", "committed, released or expired"),
            "charged?": ("Charge", "what is booked for good"),
            "note?": ("text", "why nothing changed"),
            **_STAMP,
        },
    ),
    "Counted": (
        "A session's answers so far.",
        {
            "id": ("text", "the session's grant id"),
            "state": ("text", "reserved"),
            "positives": ("int", "positive answers in all"),
            "negatives": ("int", "negative answers in all"),
            **_STAMP,
        },
    ),
    "Balance": (
        "One group's place under one limit.",
        {
            "group": ("text", "a value of the dimension, or everyone"),
            "spent": ("loss", "epsilon spent for good, rounded up"),
            "reserved": ("loss", "epsilon that open grants hold"),
            "remaining": ("loss", "epsilon left, rounded down"),
            "share": ("number?", "spent and reserved over the limit, for pictures; null: infinite"),
            "spent_delta": ("loss", "the delta that belongs to spent"),
            "held_delta": ("loss", "the delta that belongs to spent and reserved together"),
            "own_delta": ("loss", "sum of the mechanisms' own deltas"),
            "over": ("bool", "more is spent or reserved than the limit allows"),
            "void": ("bool", "more is spent: the promise is void for this epoch"),
            "sum_of_epsilons": ("loss", "plain sum, true also where the promise is void"),
        },
    ),
    "Account": (
        "One limit rule on one scope.",
        {
            "rule": ("text", "the rule's id"),
            "scope": ("text", "what it is about, in words"),
            "dataset": ("text", "the dataset's id, or * for the total over all"),
            "client": ("text", "the client of a sub-limit, or empty"),
            "action": ("text", "block or flag"),
            "gate": ("text", "how losses are added up"),
            "limit": ("Limit", "the promise"),
            "window": (
                "text?",
                "30d, 12h or month, which it is counted over and bounds nothing longer than; "
                "null: since `counted_from`",
            ),
            "epoch": ("int", "how often the limit was changed, from 1"),
            "counted_from": ("time", "when this epoch began"),
            "carried": ("bool", "what was used before the epoch still counts in it"),
            "total": ("Balance", "the most charged group, in each currency"),
            "worst_group": (
                "{text}",
                "what the most charged cells share; empty if all are alike",
            ),
            "lifetime": ("Sums", "sums of everything ever booked, whatever the epoch"),
            "ladder": ("[Rung]", "the same charges under every gate, for comparison"),
            "groups": ("[Balance]", "one a value of the dimension in `by`"),
        },
    ),
    "Rung": (
        "What one gate would show of the same charges.",
        {
            "gate": ("text", "how losses are added up"),
            "used": ("loss", "epsilon that it would show as spent and reserved, rounded up"),
        },
    ),
    "Lifetime": (
        "Sums of everything ever booked.",
        {
            "dataset": ("text", "the dataset's id, or * for the total over all"),
            "epsilon": ("loss", "sum of epsilons"),
            "delta": ("loss", "sum of deltas"),
            "groups?": ("[LifetimeGroup]", "one a value of the dimension in `by`"),
        },
    ),
    "LifetimeGroup": (
        "Sums of everything ever booked for one group.",
        {
            "group": ("text", "a value of the dimension"),
            "epsilon": ("loss", "sum of epsilons"),
            "delta": ("loss", "sum of deltas"),
        },
    ),
    "Accounts": (
        "What is spent and what is left.",
        {
            "population": ("text", "its name"),
            "sequence": ("int", "the last event that is counted in"),
            "time": ("time", "the last event's stamp"),
            "accounts": ("[Account]", "one a limit rule and scope"),
            "lifetime": ("[Lifetime]", "one a dataset, and the total over all"),
        },
    ),
    "Event": (
        "An event. What else it has depends on its type; its `command` is the request it answers.",
        {
            "ledger": ("text", "the population's name"),
            "sequence": ("int", "its place, from 0"),
            "type": ("text", "what happened, in the past tense, with a version"),
            "time": ("time", "the service's stamp"),
            "by": ("text", "the name of the key that asked"),
            "command": ("object", "the request as it was understood, defaults left out"),
            "…": ("", ""),
        },
    ),
    "LoggedEvent": (
        "An event and its hash in the ledger's tree.",
        {
            "event": ("Event", "the canonical document"),
            "leaf": ("text", "RFC 6962 leaf hash of the event's canonical bytes, in hex"),
        },
    ),
    "Events": (
        "A page of the ledger.",
        {
            "events": ("[LoggedEvent]", "in order"),
            "last": ("int", "send it as `after` for the next page"),
        },
    ),
    "Erased": (
        "What is erased.",
        {
            "event": ("int", "the event whose texts are gone"),
            "erased": ("[text]", "purpose, justification or reason; of an item: items.3.purpose"),
            "sequence": ("int", "the event that says so"),
        },
    ),
    "Health": (
        "Fit to serve.",
        {"status": ("text", "ok or ready"), "version?": ("text", "of the program")},
    ),
}
"""Answers, by name: what each is, and its fields with type and meaning (see ``_type``). A field
with a question mark may be absent; one that begins with ^ is a pattern of names; an ellipsis stands
for fields that are not listed. The document does not forbid further fields: an answer may grow."""

_PLAIN: Final[dict[str, Schema]] = {
    "text": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "number": {"type": "number"},
    "time": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
    "loss": {"$ref": "#/components/schemas/Loss"},
}
LOSS: Final[Schema] = {
    "type": "string",
    "pattern": r"^([0-9]+(\.[0-9]+)?|infinite)$",
    "description": 'A decimal string such as "0.25", or "infinite".',
}
PROBLEM: Final[Schema] = {
    "type": "object",
    "description": "What is wrong and what to do (RFC 9457). Further fields carry the facts.",
    "properties": {
        "type": {
            "type": "string",
            "pattern": "^urn:accountant:problem:[a-z-]+$",
            "description": "its code is what follows the last colon; programs compare this",
        },
        "title": {"type": "string", "description": "the code in words"},
        "status": {"type": "integer", "description": "the HTTP status"},
        "detail": {"type": "string", "description": "what is wrong here, and what to do"},
        "errors": {
            "type": "array",
            "description": "invalid-request: each field with its reason",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "reason": {"type": "string"}},
                "required": ["field", "reason"],
            },
        },
        "decision": {
            "$ref": "#/components/schemas/Decision",
            "description": "refusals: every rule that was evaluated",
        },
        "charge": {
            "$ref": "#/components/schemas/Charge",
            "description": "refusals: what it would have cost",
        },
        "would_fit": {
            "$ref": "#/components/schemas/WouldFit",
            "description": "refusals by a limit: what would fit now; it is of the moment, and may "
            "differ when the same request is answered again",
        },
        "sequence": {"type": "integer", "description": "the event that this is about"},
        "item": {"type": "integer", "description": "batches: the place of the item, from 0 on"},
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": True,
}


def shape(description: str, fields: dict[str, tuple[str, str]]) -> Schema:
    """The schema of an answer."""
    typed = {
        name.removesuffix("?"): _type(kind) | {"description": meaning}
        for name, (kind, meaning) in fields.items()
        if name != "…"
    }
    patterns = {name: each for name, each in typed.items() if name.startswith("^")}
    schema = {
        "type": "object",
        "description": description,
        "properties": {name: each for name, each in typed.items() if name not in patterns},
        "required": [name for name in fields if name in typed and name not in patterns],
    }
    schema |= {"patternProperties": patterns} if patterns else {}
    return schema | ({"additionalProperties": True} if "…" in fields else {})


def _type(kind: str) -> Schema:
    """``text``, ``int`` … as they are; [x] a list, {x} a map by name, x|y either, x? may be null,
    else a component.
    """
    if kind.endswith("?"):
        return {"anyOf": [_type(kind[:-1]), {"type": "null"}]}
    if "|" in kind and kind[0] not in "[{":
        return {"anyOf": [_type(one) for one in kind.split("|")]}
    if kind.startswith("["):
        return {"type": "array", "items": _type(kind[1:-1])}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": _type(kind[1:-1])}
    return dict(_PLAIN.get(kind) or {"$ref": f"#/components/schemas/{kind}"})
