"""Problem codes: every code that a call can answer or a decision can name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Code:
    """A problem code. ``status`` None: it only occurs inside decisions."""

    status: int | None
    topic: str
    meaning: str


PROBLEMS: Final[dict[str, Code]] = {
    "unauthenticated": Code(401, "every", "No API key was sent, or it is not valid any more."),
    "role-not-allowed": Code(403, "every", "The key's role may not make this call."),
    "unknown-population": Code(404, "ledger", "No population has this name."),
    "unknown-parameter": Code(422, "every", "The call has no query parameter of that name."),
    "no-such-page": Code(404, "nowhere", "No call has this path."),
    "method-not-allowed": Code(405, "nowhere", "The path exists, the method does not."),
    "invalid-request": Code(422, "every", "A field or parameter is wrong; `errors` names each."),
    "http-error": Code(400, "nowhere", "The request is not proper HTTP for this service."),
    "header-too-large": Code(431, "nowhere", "More than 64 KiB, or 128 fields, before the body."),
    "request-timeout": Code(408, "nowhere", "A request that has begun did not come in time."),
    "misplaced-key": Code(
        400, "nowhere", "An API key stands in the URL or is an Idempotency-Key: revoke it."
    ),
    "too-many-wrong-keys": Code(429, "nowhere", "Too many wrong keys came from this address."),
    "internal-error": Code(500, "every", "A fault of the service. Retry with the same key."),
    "storage-failed": Code(503, "every", "The database did not answer. Retry with the same key."),
    "vault-failed": Code(
        503, "every", "The signing keys, or the heads kept beside them, cannot be used."
    ),
    "ledger-diverged": Code(
        503, "every", "The database went back or another way: nothing is written until looked at."
    ),
    "too-many-waiting": Code(
        503, "every", "Too many requests wait for this ledger. Retry with the same key."
    ),
    "service-stopping": Code(503, "every", "The service is stopping. Retry with the same key."),
    "clock-jumped": Code(
        503, "asking", "The service's clock is in doubt: nothing is granted until it was looked at."
    ),
    "malformed-json": Code(
        400, "json", "Not JSON, or a key given twice, NaN, or an absurd number."
    ),
    "encoded-body": Code(415, "body", "Send the body without Content-Encoding."),
    "body-too-large": Code(413, "body", "Split the request."),
    "event-too-large": Code(422, "body", "It would not fit into one event; split the request."),
    "idempotency-key-required": Code(400, "key", "This call can spend: send an Idempotency-Key."),
    "malformed-idempotency-key": Code(400, "key", "1 to 200 visible ASCII characters."),
    "idempotency-key-reused": Code(422, "key", "The key was used for another request."),
    "population-immutable": Code(
        409, "population", "Unit, relation and membership never change; register another."
    ),
    "dimensions-append-only": Code(409, "population", "Values can only be appended."),
    "duplicate-value": Code(422, "population", "A dimension lists a value twice."),
    "too-many-cells": Code(422, "population", "The dimensions make over a million cells."),
    "dataset-immutable": Code(409, "dataset", "The id stands for other data already."),
    "dataset-known": Code(409, "dataset", "The same data are registered under another id."),
    "malformed-policy": Code(422, "policy", "The file cannot be adopted; each line is named."),
    "second-name-needed": Code(403, "policy", "Loosening needs another person's key as well."),
    "unknown-dataset": Code(422, "data", "No dataset has this id; register it first."),
    "unknown-dimension": Code(422, "data", "The population has no such dimension."),
    "unknown-group": Code(422, "asking", "The dimension has no such value."),
    "empty-range": Code(422, "asking", "The range ends before it begins, in declared order."),
    "no-expiry": Code(422, "refusal", "The grant would expire later than any date can say."),
    "selection-too-complex": Code(422, "asking", "Ask for simpler groups."),
    "no-policy": Code(403, "refusal", "Nothing says yet how much may be spent."),
    "no-limit": Code(403, "refusal", "No limit of the policy covers this dataset."),
    "budget-exceeded": Code(403, "refusal", "A limit would be passed."),
    "request-too-costly": Code(403, "refusal", "The request alone costs more than it may."),
    "mechanism-denied": Code(403, "refusal", "The policy does not admit this kind."),
    "reason-required": Code(403, "refusal", "The policy asks for a purpose or justification."),
    "purpose-denied": Code(403, "refusal", "The purpose is not on the policy's list."),
    "claim-understated": Code(403, "refusal", "The parameters cost more than is claimed."),
    "plan-understated": Code(403, "refusal", "The plan costs more than it states."),
    "forced-response": Code(403, "refusal", "Tails always answers YES, so a NO proves the truth."),
    "sparse-vector-broken": Code(403, "refusal", "A variant known not to be private."),
    "monotonic-needs-add-or-remove": Code(
        403, "refusal", "Monotonic answers cost half under add_or_remove_one only."
    ),
    "local-needs-replace-one": Code(403, "refusal", "Local kinds need a replace_one population."),
    "relation-not-derivable": Code(
        403, "refusal", "A replace_one cost says nothing about add_or_remove_one."
    ),
    "local-sample": Code(
        403, "refusal", "Reports that people randomise themselves are not amplified by sampling."
    ),
    "sampling-relation": Code(
        403, "refusal", "This way of sampling amplifies under the other relation only."
    ),
    "private-membership": Code(
        403, "refusal", "With private membership this mechanism can only charge everyone."
    ),
    "unverifiable-claim": Code(None, "decision", "Flags what rests on the client's word alone."),
    "threshold-passed": Code(None, "decision", "Flags that a share of a limit is passed."),
    "unknown-grant": Code(404, "grant", "No grant has this id."),
    "not-your-grant": Code(
        403, "own", "Another client's: a grant is settled by the key that asked."
    ),
    "grant-settled": Code(409, "settling", "It is committed or released already."),
    "grant-expired": Code(409, "settling", "It has expired and is charged in full."),
    "commit-exceeds-reservation": Code(
        422, "settling", "More than was reserved; record the rest with invocations."
    ),
    "is-a-session": Code(409, "settling", "A sparse vector session is closed, not committed."),
    "session-has-answered": Code(409, "settling", "It has run, so it cannot be released."),
    "one-session": Code(422, "session", "A session has count 1."),
    "not-a-session": Code(409, "session", "This grant is committed, not closed."),
    "nothing-counted": Code(422, "session", "Count at least one answer."),
    "session-exhausted": Code(409, "session", "More positives than the session may give."),
    "batch-size": Code(422, "batch", "It has no items, or more than a thousand; split it."),
    "mixed-batch": Code(422, "batch", "What may be refused and what already ran do not mix."),
    "batch-too-large": Code(422, "batch", "The items would not fit into one refusal; split it."),
    "unknown-event": Code(404, "event", "The ledger does not have this event."),
    "no-such-text": Code(404, "text", "The event has no such text, or it was erased already."),
    "nothing-published": Code(404, "log", "No checkpoint of the ledger is published yet."),
    "no-such-tile": Code(404, "tile", "The published log has no such tile, or not yet."),
    "unknown-decision": Code(404, "judged", "That event holds no decision."),
    "not-ready": Code(503, "health", "The service cannot decide; the text says why."),
}
"""Every code that a call can answer or a decision can name, with where it occurs."""
