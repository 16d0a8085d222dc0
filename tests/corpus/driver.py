"""The program as the corpus sees it: requests go in, neutral facts come out.

The only file of the corpus that knows the program's interfaces; it holds no rules of its own.
README.md says what the facts mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.epochs import adopted_by
from accountant.budget.accounts.sums import Sums
from accountant.budget.apply import apply
from accountant.budget.batches import as_single
from accountant.budget.commands import (
    AdoptPolicy,
    Command,
    ConfirmChange,
    Envelope,
    batch_of,
    command_from_json,
)
from accountant.budget.decide import Repeated, decide
from accountant.budget.decide.adopting import loosens
from accountant.budget.errors import Problem
from accountant.budget.explain import JUDGED, Explained, explain
from accountant.budget.grants import Grant
from accountant.budget.outcome import PROPOSED, Outcome
from accountant.budget.policy import Policy
from accountant.budget.policy_file import parse_policy
from accountant.budget.population.selection import Selection
from accountant.budget.proposals import after
from accountant.budget.rules.threshold import ThresholdRule
from accountant.budget.state import AccountKey, State
from accountant.ledger.events import Event, EventTooLarge
from accountant.privacy import engine
from accountant.privacy.filters import Capacity
from accountant.privacy.losses import Loss, pure
from accountant.privacy.mechanisms import pricing
from accountant.privacy.mechanisms.base import norm
from accountant.privacy.units import Charge, Currency

Json = dict[str, Any]
_SAME: Final = (
    "batch", "item", "first", "parts", "charged_to", "total", "charge", "more", "engines",
    "positives", "negatives", "charged", "lost", "alarm",
)  # fmt: skip
"""Fields that an event states as the corpus does."""
_ENDINGS: Final = ("grant.committed", "grant.released", "sparse_vector.closed")


class Ledger:
    """A ledger in memory, decided and folded event by event."""

    def __init__(self, name: str = "corpus") -> None:
        self.state = State(name)
        self.stored: list[bytes] = []

    def ask(self, request: Json) -> tuple[Any, list[list[Json]]]:
        """What the request comes to, and the comparisons behind each judgement of it."""
        try:
            outcome = self._decided(request)
        except EventTooLarge:
            return {"problem": "event-too-large"}, []
        except Problem as problem:
            item = problem.numbers.get("item")
            return {"problem": problem.code} | ({} if item is None else {"item": item}), []
        if isinstance(outcome, Repeated):
            return {"repeated": outcome.sequence}, []
        facts, judged = [], []
        for one in outcome:
            event = one.event()
            held = self.state.open.get(event.body["command"].get("grant", ""))
            apply(self.state, one)
            self.stored.append(one.entry.body)
            explained = self._explained(event) if event.type in JUDGED else None
            facts.append(_fact(self.state, event, request["now"], explained, held))
            if explained is not None:
                judged.append(_comparisons(self.state, explained))
        return facts, judged

    def _decided(self, request: Json) -> list[Outcome] | Repeated:
        """Decide a request. The corpus names a second person in the request itself; this program
        takes two. So what is only proposed is confirmed at once, without an event for the proposal,
        where another person is named, and for a first policy, an extension that is attested, a
        recovery and a clock, of which the corpus knows one person. Raises Problem where nobody is.
        """
        asked, now = _asked(request), request["now"]
        alone = request["command"].get("approved_by") in (None, asked.by)
        if alone and isinstance(asked.command, AdoptPolicy) and self.state.population:
            policy = Policy.stored(asked.command.policy)
            other = self.state.adopted is None or self.state.adopted.policy != policy
            if other and loosens(self.state, policy):  # which was looked at first
                raise Problem("second-name-needed", "")
        outcome = decide(self.state, asked, now)
        if isinstance(outcome, Repeated) or not outcome or outcome[-1].entry.type != PROPOSED:
            return outcome
        event = outcome[-1].event()
        if alone and event.body["effect"].keys().isdisjoint(
            ("first", "attested", "recovers", "accepts")
        ):
            raise Problem("second-name-needed", "")
        self.state.proposals = after({}, event)
        digest = sha256(outcome[-1].entry.body).hexdigest()
        command = ConfirmChange(proposal=event.sequence, digest=digest)
        shown = {"clock": request["command"].get("clock")}
        command = command.model_copy(update=shown)
        return decide(self.state, Envelope("second", command), now)

    def _explained(self, event: Event) -> Explained:
        adopted = self.state.adopted
        if adopted is not None:  # as whoever has the ledger alone reads it
            adopted = adopted_by(Event.from_bytes(self.stored[adopted.sequence]))
        engine = self.state.custody.engine_at(event.sequence)
        return explain(event, adopted, self.state.people(), engine, self.state.datasets)

    def totals(self) -> Json:
        """All that the ledger holds now."""
        state = self.state
        reserved = state.reserved()
        accounts = [
            _account(key, state.accounts[key], reserved.get(key)) for key in sorted(state.accounts)
        ]
        people, custody = state.population, state.custody
        return {
            "sequence": state.sequence,
            "time": state.time,
            "dimensions": {name: len(values) for name, values in people.dimensions}
            if people
            else None,
            "datasets": sorted(state.datasets),
            "limits": _limits(state),
            "accounts": [account for account in accounts if account is not None],
            "open": [_grant(state, grant) for _, grant in sorted(state.open.items())],
            "settled": Counter(
                g.status + " and noted" * g.late_note for g in state.grants.settled()
            ),
            "custody": {
                "engine": custody.engine,
                "stopped": custody.stopped,
                "recovered": custody.recovered,
                "keys": len(custody.keys),
                "accepted": custody.accepted.clock if custody.accepted else None,
            },
        }


def _asked(request: Json) -> Envelope:
    items = tuple(command_from_json(item) for item in request.get("items", ()))
    return Envelope(request["by"], _command(request, items), request["key"], items)


def _command(request: Json, items: tuple[Command, ...]) -> Command:
    stated = {name: v for name, v in request["command"].items() if name != "approved_by"}
    if stated["type"] == "batch":
        return batch_of(items)
    if stated["type"] == "adopt_policy":
        if "policy" not in stated:  # the file is malformed
            stated = stated | {"policy": policy_of(request["text"])}
        stated = stated | {"source_digest": sha256(request["text"].encode()).hexdigest()}
    return command_from_json(stated)


def policy_of(text: str) -> Json:
    """The policy of a file. Raises Problem."""
    return parse_policy(text)[0].to_json()


def _fact(
    state: State, event: Event, now: int, explained: Explained | None, held: Grant | None
) -> Json:
    body, command = event.body, as_single(event).body["command"]
    name = event.type.rpartition(".v")[0]
    fact: Json = {"type": name, "sequence": event.sequence}
    fact |= {"late": event.time - now} if event.time != now else {}
    fact |= {field: body[field] for field in _SAME if field in body}
    if "grant" in command:
        fact["grant"] = command["grant"]
    if name == "grant.reserved":
        fact["grant"] = f"g{event.sequence}"
        fact["lasts"] = command.get("ttl_seconds", 3_600) * 1_000_000
    if name == "grant.released" and held is not None:
        fact["charge"] = Charge().on(held.total.axis).to_json()
    if name in _ENDINGS and held is not None:
        fact["returned"] = (held.total - Charge.from_json(fact["charge"])).to_json()
    if "epochs" in body:
        epochs = body["epochs"]
        fact["opens_epoch"] = sorted(r for r, epoch in epochs.items() if epoch["start"] != "kept")
        fact["loosens"] = sorted(_loosened(reason) for reason in body["loosens"])
        begun = adopted_by(event).epochs.items()  # as whoever has the ledger alone reads it
        fact["capacities"] = {
            rule: {name: str(most) for name, most in _capacity(epoch.capacity).items()}
            for rule, epoch in begun
        }
    if "added" in body:
        fact["added"] = {name: len(values) for name, values in body["added"].items()}
    if explained is not None:
        decision, priced = explained.decision, explained.request.priced
        if name == "invocation.recorded":
            fact["overrun"] = body.get("overrun", False)
        cells = explained.request.selection
        sizes = (prod(map(len, box)) for box in cells.boxes)
        fact["cells"] = state.people().cells if cells.everyone else sum(sizes)
        fact["outcome"] = decision.outcome
        fired = {(found.rule, found.code) for found in decision.findings if found.fired}
        assert fired == {(rule, code) for rule, code in body.get("fired", ())}
        fact["fired"] = [list(pair) for pair in sorted(fired)]
        fact["verdicts"] = [one.verdict.value for one in priced]
        assert ("charges" in body) == (len(priced) > 1)
        if len(priced) > 1:
            fact["charges"] = body["charges"]
    return fact


def _loosened(reason: str) -> str:
    return "witnesses" if reason.startswith("fewer or other") else reason.split(maxsplit=1)[0]


def _comparisons(state: State, explained: Explained) -> list[Json]:
    rules = [found.to_json() for found in explained.decision.findings]
    limits = [r for r in rules if r["code"] in ("budget-exceeded", "threshold-passed")]
    return sorted((_comparison(state, rule) for rule in limits), key=lambda row: str(row["rule"]))


def _comparison(state: State, rule: Json) -> Json:
    people = dict(state.people().dimensions)
    group = rule["group"]
    return {
        "rule": rule["rule"],
        "fits": not rule["fired"],
        "scope": [rule["dataset"], rule["client"]],
        "spent": _units(rule["spent_before"], Currency.EPSILON),
        "used": {c["currency"]: _units(c["used"], c["currency"]) for c in rule["comparisons"]},
        "cell": [people[name].index(group[name]) for name in people] if group else None,
    }


def _units(amount: str, currency: str) -> int | None:
    return None if amount == "infinite" else int(Decimal(amount) * Currency(currency).per_one)


def _limits(state: State) -> Json:
    adopted, found = state.adopted, Json()
    if adopted is None:
        return found
    for rule in adopted.policy.limits:
        epoch, gate = adopted.epochs[rule.id], rule.filter
        found[rule.id] = {
            "gate": gate.name,
            "capacity": _capacity(epoch.capacity),
            "epoch": epoch.number,
            "since": epoch.since,
            "carried": epoch.carried,
            "whole": epoch.whole,
            "orders": [str(line.order) for line in gate.lines(epoch.limit)],
            "keeps": list(map(str, epoch.axis)),
        }
    for watch in adopted.policy.rules:
        if isinstance(watch, ThresholdRule):
            capacity = watch.capacity(adopted.epochs[watch.of])
            found[watch.id] = {"of": watch.of, "capacity": _capacity(capacity)}
    return found


def _capacity(capacity: Capacity) -> Json:
    found = {"epsilon": capacity.epsilon, "delta": capacity.own_delta}
    return found | dict(zip(map(str, capacity.currencies), capacity.along, strict=True))


def _account(key: AccountKey, account: Account, reserved: Sums | None) -> Json | None:
    """What an account holds, without what is zero; None if that is all."""
    parts: Json = _sums("used", account.used, account)
    if reserved is not None:
        parts |= _sums("reserved", reserved, account)
    for name, units in (("bound", account.bound), ("held", account.held)):
        parts[name] = {str(c): n for c, n in zip(account.axis, units, strict=True) if n}
    parts = {name: sums for name, sums in parts.items() if sums}
    named = [*key[:4], *filter(None, key[4:])]
    return {"key": named, "keeps": list(map(str, account.axis))} | parts if parts else None


def _sums(name: str, sums: Sums, account: Account) -> Json:
    finite, infinite = sums.stacked().reshape(2, sums.rows, -1)
    found = [(str(c), _told(finite[i]), _told(infinite[i])) for i, c in enumerate(account.axis)]
    return {
        name: {currency: told for currency, told, _ in found if told != [0]},
        f"{name}_infinite": {currency: told for currency, _, told in found if told != [0]},
    }


def _told(cells: NDArray[np.int64]) -> list[Any]:
    """The largest and the sum of all cells and a digest of them; the largest alone if all are
    alike.
    """
    most = int(cells.max())
    total = (int((cells >> 32).sum()) << 32) + int((cells & 0xFFFFFFFF).sum())
    return [most] if total == most * cells.size else [most, total, _digest(cells)]


def _digest(numbers: NDArray[np.int64]) -> str:
    return sha256(np.ascontiguousarray(numbers, dtype="<i8").tobytes()).hexdigest()[:12]


def _grant(state: State, grant: Grant) -> list[Any]:
    cells = _cells(state, grant.selection)
    return [grant.id, grant.by, grant.on.text, grant.expires, grant.positives, grant.negatives,
            cells]  # fmt: skip


def _cells(state: State, selection: Selection) -> str:
    """Everyone, or a digest of the cells' flat positions."""
    if selection.everyone:
        return "everyone"
    counter = Sums(1, state.people().shape)
    counter.add(selection, [1], [0])
    return _digest(np.flatnonzero(counter.cells()[0]).astype(np.int64))


@contextmanager
def corrected_laplace() -> Iterator[None]:
    """Within it, version 1 of the bounds believed half of what Laplace noise costs, and version 2
    is today's.
    """

    def half(mechanism: Any, _: Any) -> Loss:
        width = norm(mechanism.sensitivity, "l1") or Fraction(0)
        return pure(width / Fraction(mechanism.scale) / 2)

    before = engine.CURRENT
    engine.CURRENT, engine.FORMER["laplace"] = 2, {1: half}  # type: ignore[misc]
    _forget_prices()
    try:
        yield
    finally:
        engine.CURRENT = before  # type: ignore[misc]
        del engine.FORMER["laplace"]
        _forget_prices()


def _forget_prices() -> None:
    """Prices are remembered for as long as a process lives, in which no bound changes but here."""
    pricing._price_sampled.cache_clear()
    pricing._price_compound.cache_clear()
