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
from support import Book, declared, gaussian, laplace


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


@dataclass
class Log:
    """A ledger that grows by events and checkpoints, and can be written as a bundle."""

    ledger: str = "hospital"
    origin: str = "example.org/hospital"
    entries: list[bytes] = field(default_factory=list)
    keys: list[Signer] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)

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

    def adopt(self, signer: Signer) -> int:
        """Adopts a key."""
        self.keys.append(signer)
        return self.event("signing_key.adopted", {"key": signer.text, "type": "adopt_signing_key"})

    def grant(self, epsilon: int, **more: Any) -> str:
        """Reserves a grant; its name."""
        name, cost = f"g{len(self.entries)}", charge(epsilon)
        command = {"dataset": "d", "type": "ask_grant"} | more
        self.event("grant.reserved", command, charges=[{"charge": cost}], grant=name, total=cost)
        return name

    def record(self, cost: dict[str, Any], **more: Any) -> int:
        """Records an invocation that ran."""
        command = {"dataset": "d", "type": "record_invocations"} | more
        return self.event("invocation.recorded", command, charges=[{"charge": cost}], total=cost)

    def settle(self, grant: str, epsilon: int, kind: str = "grant.committed") -> int:
        """Settles a grant at so much."""
        return self.event(kind, {"grant": grant}, grant=grant, charge=charge(epsilon))

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
    """A ledger of a few events, with a rotation."""
    log = Log()
    log.event("population.registered", {"dimensions": {"sex": ["f", "m"], "age": ["17", "22"]}})
    log.adopt(Signer(seed=1))
    log.event("policy.adopted", {"policy": {}})
    log.sign()
    spent = log.grant(500, subjects={"sex": ["f"]})
    log.grant(100)
    log.settle(spent, 300)
    log.adopt(Signer(seed=2))
    log.record(charge(7, 1))
    log.event("text.erased", {"event": 7, "fields": ["justification"]})
    log.sign(*log.keys)
    return log


def full() -> Log:
    """A ledger with every type of event that the verifier knows."""
    log = small()
    spent = log.grant(40, subjects=[{"sex": ["f"]}, {"age": {"from": "17", "to": "22"}}])
    log.event("population.extended", added={"sex": ["x"]})
    log.settle(spent, 30, "grant.expired")
    more = {"dataset": "d", "event": 7, "subjects": {"sex": ["x"]}}
    log.event("charge.revalued", more, more=charge(5))
    log.event("charge.revalued", more | {"everyone": True}, more=charge(0, 3))
    unplaced = {"charged_to": "everyone", "total": charge(0, 10)}
    log.event("invocation.recorded", {"dataset": "d", "subjects": {"sex": ["x"]}}, **unplaced)
    log.record(charge(0, 100), subjects={"sex": ["f"]})
    large = [{"charge": {"rho": str(2**61 + 1)}}] * 2
    log.event("grant.refused", charges=large, total={"rho": "0", "infinite": {"rho": 1}})
    used = {"dataset": "d", "rule": "", "used": charge(900)}
    log.event("ledger.carried_over", {"accounts": [used, used | {"rule": "a", "used": {}}]})
    log.event("ledger.recovered")
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
    log = Log()
    log.event("population.registered", {"dimensions": {}})
    log.adopt(Signer())
    for number in range(598):
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
STEPS = st.one_of(
    st.tuples(st.sampled_from(["grant", "record"]), st.sampled_from(SUBJECTS), st.integers(1, 20)),
    st.tuples(st.sampled_from(["commit", "release"]), st.booleans(), st.integers(0, 9)),
    st.tuples(st.just("extend"), st.sampled_from(["sex", "age"]), st.booleans()),
    st.tuples(st.just("recover"), st.integers(1, 9), st.integers(1, 9)),
)


def take(book: Book, people: dict[str, list[str]], held: list[str], *step: Any) -> None:
    """One step of a random ledger."""
    membership, what, first, second = step
    name = ("age", "sex")[second % 2]
    first = {name: people[name][-1:]} if first == SUBJECTS[5] else first
    if what == "grant":
        event = book.grant(laplace("0.1", second), subjects=first)
        held += [event.body["grant"]] if event.type == "grant.reserved.v1" else []
    elif what == "record":
        odd = gaussian("1") if second == 1 else declared("0.01", "0.001")
        book.record(laplace("0.1", second), odd, subjects=first)
    elif what == "release" and held:
        book.do("release_grant", grant=held.pop(second % len(held)), reason="never run")
    elif what == "commit" and held:
        ran = {"mechanisms": [laplace("0.1")]} if first else {}
        book.do("commit_grant", grant=held.pop(second % len(held)), **ran)
    elif what == "extend":
        people[first] = [*people[first], f"new {len(people[first])}"]
        book.register(people, membership=membership, attested_new=second)
    elif what == "recover":
        used = charge(first * 10**9, second * 10**12)
        account = {"rule": "", "epoch": 0, "dataset": "d", "client": "", "used": used}
        book.do("carry_over", ":accountant", accounts=[account, account | {"dataset": "*"}])
        book.do("recover", "operator:o", reason="lost", lost=[])
        held.clear()
