"""Logs and bundles built from docs/evidence.md alone, with the tree as RFC 6962 defines it and
signatures by ``cryptography``: neither the service nor a verifier has a part in them. They have
what ``accountant.verify_minimal`` looks at; hash tiles, policies and texts are left out. At the
end stand random ledgers, which the service makes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import strategies as st
from support import SECOND, Book, declared, gaussian, laplace, make

from accountant.budget.decide import SYSTEM


def sha256(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()


def canonical(value: Any) -> bytes:
    """Canonical JSON of values without floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def root_of(leaves: list[bytes]) -> bytes:
    """MTH over leaf hashes, recursively as RFC 6962, section 2.1, writes it."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"")
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + root_of(leaves[:split]) + root_of(leaves[split:]))


def leaf_of(entry: bytes) -> bytes:
    """The leaf hash of an entry."""
    return sha256(b"\x00" + entry)


def packed(items: list[bytes]) -> bytes:
    """Items, each after its length in two bytes: an entry bundle, or a pack of checkpoints."""
    return b"".join(struct.pack(">H", len(item)) + item for item in items)


@dataclass
class Signer:
    """An Ed25519 key with a name, from a seed."""

    name: str = "example.org/hospital"
    seed: int = 1

    def __post_init__(self) -> None:
        self.private = Ed25519PrivateKey.from_private_bytes(bytes([self.seed]) * 32)
        public = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.typed = b"\x01" + public
        self.id = sha256(self.name.encode() + b"\n" + self.typed)[:4]
        self.text = f"{self.name}+{self.id.hex()}+{base64.b64encode(self.typed).decode()}"

    def line(self, text: str) -> str:
        """The signature line under a note."""
        signature = base64.b64encode(self.id + self.private.sign(text.encode())).decode()
        return f"\N{EM DASH} {self.name} {signature}\n"


def checkpoint(origin: str, size: int, root: bytes, signers: Iterable[Signer]) -> str:
    """A checkpoint with the signatures of all the signers."""
    text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    return text + "\n" + "".join(signer.line(text) for signer in signers)


def charge(epsilon: int, delta: int = 0) -> dict[str, Any]:
    """A charge in epsilon and delta."""
    return {"delta": str(delta), "epsilon": str(epsilon)}


EPSILON, DELTA = 1_000 * 10**9, 5 * 10**14
"""What the rule of a ledger of our own allows: (1000, 0.5), under the basic gate."""
RULE = {"id": "a", "limit": {"delta": "0.5", "epsilon": "1000"}, "gate": "basic"}
EPOCH = {"number": 1, "start": "brought"}


@dataclass
class Log:
    """A ledger that grows by events and checkpoints, and can be written as a bundle. What its
    judged events quote is written down by whoever calls; without a word, what everyone has.
    """

    ledger: str = "hospital"
    origin: str = "example.org/hospital"
    entries: list[bytes] = field(default_factory=list)
    keys: list[Signer] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    everyone: list[int] = field(default_factory=lambda: [0, 0])
    policy: int = 0

    def event(self, kind: str, command: Any = None, **more: Any) -> int:
        """Appends an event of this kind and says its sequence."""
        sequence = len(self.entries)
        minutes, seconds = divmod(sequence, 60)
        body = {
            "by": "pipe",
            "command": command or {},
            "ledger": self.ledger,
            "sequence": sequence,
            "time": f"2026-11-{1 + minutes // 60:02d}T00:{minutes % 60:02d}:{seconds:02d}.000000Z",
            "type": f"{kind}.v1",
        } | more
        self.entries.append(canonical(body))
        return sequence

    def begin(self, **dimensions: list[str]) -> Log:
        """Registers a population, adopts a key and a policy of one rule."""
        self.event("population.registered", {"dimensions": dimensions})
        self.adopt(Signer(self.origin))
        command = {"policy": {"rules": [RULE]}}
        self.policy = self.confirmed("policy.adopted", command, epochs={"a": EPOCH}, loosens=[])
        return self

    def confirmed(self, kind: str, command: Any, owed: Any = None, **more: Any) -> int:
        """Appends a proposal by the pipeline, and the change that an officer confirms; ``owed`` is
        the epsilon that is told, by dataset.
        """
        effect = {} if owed is None else {"owed": owed}
        number = self.event(
            "change.proposed", command, effect=effect, expires="2027-01-01T00:00:00.000000Z"
        )
        digest = hashlib.sha256(self.entries[number]).hexdigest()
        confirms = {"proposal": number, "digest": digest, "proposer": "pipe"}
        return self.event(kind, command | {"confirms": confirms}, by="officer", **more)

    def adopt(self, signer: Signer) -> int:
        """Adopts a key."""
        self.keys.append(signer)
        return self.event("signing_key.adopted", {"key": signer.text, "type": "adopt_signing_key"})

    def judged(self, kind: str, command: Any, total: Any, *quoted: Any, **more: Any) -> int:
        """A judged event that quotes these sums, and the cell, if that is said, behind them."""
        *sums, cell = quoted if len(quoted) == 3 else (*(quoted or self.everyone), None)
        seen = {"used": list(map(str, sums))} | ({} if cell is None else {"cell": cell})
        seen |= more.pop("seen", {})
        more |= {"exhausted": [{}]} if kind == "grant.refused" else {}
        command = {"dataset": "d"} | command
        if kind != "grant.refused" and "subjects" not in command:
            self.everyone[0] += int(total["epsilon"])
            self.everyone[1] += int(total["delta"])
        return self.event(kind, command, policy=self.policy, rules={"a": seen}, total=total, **more)

    def grant(self, epsilon: int, *quoted: Any, **command: Any) -> str:
        """Reserves a grant; its name."""
        return f"g{self.judged('grant.reserved', command, charge(epsilon), *quoted)}"

    def record(self, cost: dict[str, Any], *quoted: Any, **command: Any) -> int:
        """Records an invocation that ran."""
        return self.judged("invocation.recorded", command, cost, *quoted)

    def settle(self, grant: str, epsilon: int, kind: str = "grant.committed") -> int:
        """Settles a grant at so much."""
        return self.event(kind, {"grant": grant}, charge=charge(epsilon))

    def leaves(self) -> list[bytes]:
        """All leaf hashes."""
        return [leaf_of(entry) for entry in self.entries]

    def sign(self, *signers: Signer) -> str:
        """Signs a checkpoint of everything so far, with the newest key unless others are given."""
        root = root_of(self.leaves())
        signers = signers or (self.keys[-1],)
        self.checkpoints.append(checkpoint(self.origin, len(self.entries), root, signers))
        return self.checkpoints[-1]

    def members(self) -> dict[str, bytes]:
        """The members of a bundle in order, as far as the minimal verifier looks at them."""
        size = len(self.entries)
        root = base64.b64encode(root_of(self.leaves())).decode()
        manifest = {
            "entries": {"count": size, "first": 0},
            "ledger": self.ledger,
            "origin": self.origin,
            "tree": {"root": root, "size": size},
        }
        found = {
            "manifest.json": canonical(manifest),
            "keys": "".join(f"{key.text}\n" for key in self.keys).encode(),
            "checkpoint": self.checkpoints[-1].encode(),
        }
        for at in range(0, len(self.checkpoints), 256):
            notes = [note.encode() for note in self.checkpoints[at : at + 256]]
            found[f"checkpoints/{at // 256:03d}"] = packed(notes)
        for at in range(0, size, 256):
            entries = self.entries[at : at + 256]
            width = "" if len(entries) == 256 else f".p/{len(entries)}"
            found[f"tile/entries/{at // 256:03d}{width}"] = packed(entries)
        return found

    def bundle(self) -> bytes:
        """A bundle as an archive."""
        return archive(self.members().items())


def archive(members: Iterable[tuple[str, bytes]]) -> bytes:
    """The ustar archive of these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def small() -> Log:
    """A ledger of a few events, with a rotation. Cells are (age, sex)."""
    log = Log().begin(sex=["f", "m"], age=["17", "22"])
    log.sign()
    spent = log.grant(500, 0, 0, [0, 0], subjects={"sex": ["f"]})
    two = [charge(60), charge(40)]
    log.judged("grant.reserved", {}, charge(100), 500, 0, [0, 0], charges=two)
    log.settle(spent, 300)
    log.adopt(Signer(seed=2))
    log.record(charge(7, 1), 400, 0, [0, 0])
    log.event("text.erased", {"event": 8, "fields": ["justification"]})
    log.sign(*log.keys)
    return log


def full() -> Log:
    """A ledger with every type of event that the verifier knows."""
    log = small()
    both = [{"sex": ["f"]}, {"age": {"from": "17", "to": "22"}}]
    spent = log.grant(40, 407, 1, [0, 0], subjects=both)
    log.event("population.extended", added={"sex": ["x"]})
    log.settle(spent, 30)
    log.grant(1, 437, 1, [0, 0], subjects={"sex": ["f"]}, ttl_seconds=1)
    log.settle("g13", 1, "grant.expired")
    more = {"by": "pipe", "dataset": "d", "event": 8, "subjects": {"sex": ["x"]}}
    log.event("charge.revalued", more, more=charge(5))
    log.event("charge.revalued", more | {"everyone": True}, more=charge(0, 3))
    unplaced = {"subjects": {"sex": ["x"]}}
    at_x = 442, 4, [0, 2]
    log.judged("invocation.recorded", unplaced, charge(0, 10), *at_x, charged_to="everyone")
    log.record(charge(0, 100), 438, 14, [1, 0], subjects={"sex": ["f"]})
    large, fired = [{"rho": str(2**61 + 1)}] * 2, [["a", "budget-exceeded"]]
    endless = {"rho": "0", "infinite": {"rho": 1}}  # and what it does not name has no bound
    seen = {"capacity": [str(EPSILON), str(DELTA)]}
    quoted = 442, 14, [1, 2]
    log.judged("grant.refused", {}, endless, *quoted, charges=large, fired=fired, seen=seen)
    used = {"client": "", "dataset": "d", "epoch": 0, "rule": "", "used": charge(900)}
    log.event("ledger.carried_over", {"accounts": [used, used | {"rule": "a", "used": {}}]})
    owed = {"d": "0.0000009", "*": "0.000000442"}
    log.confirmed("ledger.recovered", {"type": "recover"}, owed)
    log.adopt(Signer("example.org/other", 3))
    log.origin = "example.org/other"
    log.sign()
    return log


def event_at(at: int, /, **changes: Any) -> Log:
    """The small log with an event changed, signed anew by the log's own keys."""
    log = small()
    event = json.loads(log.entries[at]) | changes
    log.entries[at] = canonical({k: v for k, v in event.items() if v is not ...})
    return signed_anew((3, [0]), (9, [0, 1]), log=log)


def signed_anew(*checkpoints: tuple[int, list[int]], log: Log | None = None) -> Log:
    """The small ledger with other checkpoints: size, and which of its keys sign."""
    log = log or small()
    log.checkpoints = [
        checkpoint(log.origin, size, root_of(log.leaves()[:size]), [log.keys[n] for n in keys])
        for size, keys in checkpoints
    ]
    return log


def long() -> Log:
    """A ledger of 600 events with some checkpoints."""
    log = Log().begin()
    for number in range(597):
        log.record(charge(1, 1))
        if number % 100 == 99:
            log.sign()
    log.sign()
    return log


def replaced(value: Any, data: st.DataObject, new: Any) -> Any:
    """The JSON value with what is at some place inside replaced."""
    inside = value if isinstance(value, dict) else dict(enumerate(value))
    at = data.draw(st.sampled_from(list(inside)))
    deeper = isinstance(inside[at], dict | list) and inside[at] and data.draw(st.booleans())
    inside = inside | {at: replaced(inside[at], data, new) if deeper else new}
    return inside if isinstance(value, dict) else list(inside.values())


SUBJECTS: list[Any] = [
    {},
    {"sex": ["f"]},
    {"sex": ["f", "m"]},
    {"age": {"from": "22", "to": "22"}},
    {"sex": ["m"], "age": ["22"]},
    "the last value of a dimension",
    [{"sex": ["f"]}, {"age": ["22"]}],
    [{"sex": ["f"]}, {}],
]
POLICIES = [
    "  - {id: a, limit: {epsilon: 1000}}\n  - {id: cap, at_most: {epsilon: 1.5}, action: flag}\n",
    "  - {id: a, limit: {epsilon: 3, delta: 1e-3}, gate: zcdp}\n  - {id: n, of: a, at: 40%}\n",
    "  - {id: a, limit: {epsilon: 2, delta: 1e-3}, gate: gdp}\n  - {id: n, of: a, at: 20%}\n",
    "  - {id: a, limit: {epsilon: 4, delta: 1e-3}, gate: gdp}\n"
    "  - {id: b, across: datasets, limit: {epsilon: 5, delta: 1e-5}, gate: renyi, action: flag}\n",
    "  - {id: a, limit: {epsilon: 9, delta: 1e-3, own_delta: 1e-4}, gate: advanced}\n"
    "  - {id: c, per: client, limit: {epsilon: 1, delta: 1e-3}, gate: advanced, action: flag}\n",
    "  - {id: a, limit: {epsilon: 4, delta: 1e-4}, gate: renyi, carry: none}\n"
    "  - {id: w, window: 1h, limit: {epsilon: 1, delta: 1e-3}, gate: renyi, action: flag}\n",
]
STEPS = st.one_of(
    st.tuples(st.sampled_from(["grant", "record"]), st.sampled_from(SUBJECTS), st.integers(1, 20)),
    st.tuples(st.sampled_from(["grant", "record"]), st.sampled_from(SUBJECTS), st.integers(1, 3)),
    st.tuples(st.sampled_from(["commit", "release"]), st.booleans(), st.integers(0, 9)),
    st.tuples(st.just("extend"), st.sampled_from(["sex", "age"]), st.booleans()),
    st.tuples(st.just("recover"), st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.just("adopt"), st.sampled_from(POLICIES), st.integers(0, 1)),
    st.tuples(st.just("batch"), st.sampled_from(SUBJECTS[:5]), st.integers(0, 99)),
    st.tuples(st.just("wait"), st.integers(1, 3), st.integers(0, 1)),
)


def take(  # noqa: C901 (a case each)
    book: Book, people: dict[str, list[str]], membership: str, *step: Any
) -> None:
    """One step of a random ledger."""
    what, first, second = step
    name = ("age", "sex")[second % 2]
    first = {name: people[name][-1:]} if first == SUBJECTS[5] else first
    held = sorted(book.state.open)
    if what == "grant":
        book.grant(laplace("0.1", second), gaussian("0.1"), subjects=first)
    elif what == "record":
        odd = gaussian("1") if second == 1 else declared("0.01", "0.00001")
        book.record(laplace("0.1", second), odd, subjects=first)
    elif what == "release" and held:
        book.do("release_grant", grant=held[second % len(held)], reason="never run")
    elif what == "commit" and held:
        ran = {"mechanisms": [laplace("0.1")]} if first else {}
        book.do("commit_grant", grant=held[second % len(held)], **ran)
    elif what == "extend":
        people[first] = [*people[first], f"new {len(people[first])}"]
        book.register(people, membership=membership, attested_new=second)
    elif what == "recover":
        used = charge(first * 10**8, second * 10**12)
        account = {"rule": "", "epoch": 0, "dataset": "d", "client": "", "used": used}
        ours = {"rule": "a", "epoch": book.state.last_epoch["a"]}
        accounts = [account, account | {"dataset": "*"}, account | ours]
        book.do("carry_over", ":accountant", accounts=accounts[: 2 + second % 2])
        if second % 3:
            book.do("recover", "operator:o", reason="lost", lost=[])
    elif what == "adopt":
        book.policy(first, confirmed_by="officer", closes=True)
    elif what == "batch":
        ask = {"dataset": "d", "subjects": first}
        items = [make("commit_grant", grant=held[0], mechanisms=[laplace("0.1")])] if held else []
        items += [make("release_grant", grant=one, reason="never run") for one in held[1:2]]
        items += [make("ask_grant", mechanisms=[laplace("0.1", second % 7 + 1)], **ask)]
        items += [make("ask_grant", mechanisms=[gaussian(f"0.{second + 1}")], **ask)]
        book.batch(*items[second % len(items) :])
    elif what == "wait":
        book.now += first * 1_500 * SECOND
        for grant in [g for g in held if book.state.open[g].due(book.now)]:
            book.do("expire_grant", SYSTEM, grant=grant)
