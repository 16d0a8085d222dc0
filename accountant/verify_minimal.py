"""Checks an evidence bundle of accountant with nothing but the Python standard library.

Written from docs/evidence.md alone, which says what it checks and what ``accountant verify`` does.
It shares no code with the service.
"""

import argparse
import json
import re
import sys
import tarfile
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections import defaultdict, deque
from hashlib import sha256, sha512
from itertools import accumulate, product
from math import prod
from operator import add, sub
from typing import Any, BinaryIO

MOST_FINDINGS, MOST_BYTES, MOST_CELLS, MOST_UNITS = 1000, 2**26, 10**6, 2**62
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
NAMES, NOTHING = ("epsilon", "delta", "infinite epsilon", "infinite delta"), (0, 0, 0, 0)
SPENT = ("grant.reserved.v1", "invocation.recorded.v1", "charge.revalued.v1")
SETTLED = ("grant.committed.v1", "grant.released.v1", "grant.expired.v1", "sparse_vector.closed.v1")


def need(holds: object, reason: str) -> None:
    """Fails for this reason unless something holds."""
    if not holds:
        raise ValueError(reason)


def grow(subtrees: list[tuple[int, bytes]], entry: bytes) -> None:
    """Adds an entry to a tree (RFC 6962, section 2.1), as sizes and hashes of full subtrees."""
    size, node = 1, sha256(b"\0" + entry).digest()
    while subtrees and subtrees[-1][0] == size:
        size, node = 2 * size, sha256(b"\1" + subtrees.pop()[1] + node).digest()
    subtrees.append((size, node))


def root_of(subtrees: list[tuple[int, bytes]]) -> str:
    """The tree's hash in base64: the full subtrees, joined from the right."""
    *others, root = [node for _, node in subtrees] or [sha256().digest()]
    while others:
        root = sha256(b"\1" + others.pop() + root).digest()
    return b64encode(root).decode()


def positions(bits: str = "", gaps: str = "") -> list[int]:
    """A set of positions: as bits, lowest first, or how many it leaves out before each (LEB128)."""
    ones = f"{int.from_bytes(urlsafe_b64decode(bits + '=='), 'little'):b}"[::-1]
    parts = re.findall(rb"[\x80-\xff]*[\0-\x7f]", urlsafe_b64decode(gaps + "=="))
    steps = [1 + sum((byte & 127) << 7 * i for i, byte in enumerate(part)) for part in parts]
    return [at for at, bit in enumerate(ones) if bit == "1"] + [at - 1 for at in accumulate(steps)]


def plus(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    """The sum of two points in extended coordinates (RFC 8032, section 5.1.4)."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * D * p[3] * q[3] % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def point(data: bytes) -> tuple[int, ...]:
    """The point that 32 bytes encode in its one exact spelling (RFC 8032, section 5.1.3)."""
    sign, y = divmod(int.from_bytes(data, "little"), 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    need(len(data) == 32 and y < P and x * x % P == square and (x or not sign), "no Ed25519 key")
    x = x if x % 2 == sign else P - x
    return x, y, 1, x * y % P


def verifies(key: bytes, text: bytes, signature: bytes) -> bool:
    """Whether a signature is good: S < L, and S B - k A encodes as R (RFC 8032, section 5.1.7)."""
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    k = int.from_bytes(sha512(r + key + text).digest(), "little") % ORDER
    (x, y, _, t), base, total = point(key), point(b"\x58" + b"\x66" * 31), point(b"\1" + bytes(31))
    for bit in range(252, -1, -1):
        total = plus(total, total)
        total = plus(total, base) if s >> bit & 1 else total
        total = plus(total, (P - x, y, 1, P - t)) if k >> bit & 1 else total
    x, y = (n * pow(total[2], -1, P) % P for n in total[:2])
    return len(signature) == 64 and s < ORDER and (y + x % 2 * 2**255).to_bytes(32, "little") == r


def signed(note: str, key: str) -> bool:
    """Whether a note (C2SP signed-note) has signatures, all of them good, by a verifier key."""
    text, _, lines = note.rpartition("\n\n")
    name, identity, encoded = key.split("+", 2)  # each signature begins with the four bytes in hex
    own, public = f"— {name} ", b64decode(encoded, validate=True)
    digest = sha256(f"{name}\n".encode() + public).hexdigest()
    need(identity == digest[:8] and public[:1] == b"\1", "not an Ed25519 verifier key")
    mine = [line.removeprefix(own) for line in lines.split("\n")[:-1] if line.startswith(own)]
    data = [b64decode(each, validate=True) for each in mine]
    need([b64encode(each).decode() for each in data] == mine, "base64 with stray bits")
    found = [each[4:] for each in data if each[:4].hex() == identity]
    return found != [] and all(verifies(public[1:], f"{text}\n".encode(), each) for each in found)


def amounts(charge: dict[str, Any], names: tuple[str, ...] = NAMES[:2]) -> tuple[int, ...]:
    """The units of these currencies in a charge, and after them how often each is infinite."""
    stated = [each.get(name, 0) for each in (charge, charge.get("infinite", {})) for name in names]
    need(all(str(n) == str(abs(int(n))) for n in stated), f"not all are amounts: {stated!r:.99}")
    return tuple(map(int, stated))


def check_total(charges: list[dict[str, Any]], total: dict[str, Any]) -> None:
    """The total is the sum of the charges in their currencies; past 2^62 units it is infinite."""
    for name in set[str]().union(*charges) - {"infinite"}:
        units, infinite = map(sum, zip(*(amounts(each, (name,)) for each in charges), strict=True))
        due = (units, infinite) if units <= MOST_UNITS else (0, infinite + 1)
        need(amounts(total, (name,)) == due, f"the total in {name} is not the sum of the charges")


class Audit:
    """What was read of a bundle so far, what it adds up to, and all that is wrong with it."""

    def __init__(self) -> None:
        self.findings, self.manifest, self.size = list[dict[str, Any]](), dict[str, Any](), 0
        self.keys, self.log, self.needed = list[str](), list[str](), list[str]()
        self.checkpoints, self.last, self.name, self.time = deque[bytes](), (0, ""), "", ""
        self.dimensions, self.subtrees = dict[str, list[str]](), list[tuple[int, bytes]]()
        self.open, self.totals, self.files = dict[str, Any](), dict[str, Any](), dict[str, str]()
        self.cells: Any = defaultdict(lambda: defaultdict(lambda: NOTHING))  # () is for everyone
        self.booked: Any = defaultdict(lambda: NOTHING)

    def attempt(self, where: str | int, step: Any, *given: Any) -> None:
        """Takes a step; if it fails, that is a finding, and the rest goes on."""
        try:
            step(*given)
        except Exception as error:  # noqa: BLE001 nothing that is read may end in a traceback
            reason = str(error) if type(error) is ValueError else repr(error)
            self.findings[MOST_FINDINGS - 1 :] = [{"where": where, "reason": reason[:200]}]

    def read(self, file: BinaryIO, pin: str | None) -> None:
        """Takes the members of the archive in turn, but for hash tiles, policies and texts."""
        with tarfile.open(fileobj=file, mode="r|") as archive:
            while member := archive.next():
                name, reader = member.name, archive.extractfile(member)
                content = reader.read(MOST_BYTES) if reader else b""
                if name == "manifest.json":
                    self.manifest = dict(json.loads(content))
                    whole = {"count": self.manifest["tree"]["size"], "first": 0}
                    need(self.manifest["entries"] == whole, "a part: only accountant verify can")
                elif name.startswith("checkpoints/"):
                    self.attempt(name, self.pack, content, self.checkpoints.append)
                elif name.startswith("tile/entries/"):
                    self.attempt(name, self.pack, content, self.entry)
                elif name in ("keys", "checkpoint"):
                    self.files[name] = content.decode()
        self.attempt("checkpoint", self.finish, pin)

    def pack(self, content: bytes, take: Any) -> None:
        """Takes what is packed as an entry bundle (C2SP tlog-tiles): each after its length."""
        while content:
            end = 2 + int.from_bytes(content[:2], "big")
            need(end <= len(content), "ends too early")
            take(content[2:end])
            content = content[end:]

    def entry(self, entry: bytes) -> None:
        """Takes the next entry, and each checkpoint that ends with it."""
        self.attempt(self.size, self.event, entry)
        grow(self.subtrees, entry)
        self.size += 1
        while self.checkpoints and self.checkpoints[0].split(b"\n")[1:2] == [b"%d" % self.size]:
            self.attempt(f"checkpoint at {self.size}", self.checkpoint, self.checkpoints.popleft())

    def checkpoint(self, note: bytes) -> None:
        """It has the root so far, and the signatures of the key in force and of what led to it."""
        text = f"{self.name}\n{self.size}\n{root_of(self.subtrees)}\n\n"
        needed, self.needed, self.last = self.needed, self.needed[-1:], (self.size, note.decode())
        need(self.last[1].startswith(text), "not the root of the tree, or of another log")
        need(needed and all(signed(self.last[1], key) for key in needed), f"not by all of {needed}")

    def event(self, entry: bytes) -> None:
        """Takes the next event; a key that it adopts has to sign, too, from now on."""
        event = json.loads(entry)
        kind, command = event["type"], event.get("command", {})
        if kind == "signing_key.adopted.v1":
            if self.name != (name := command["key"].split("+")[0]):
                self.name, self.log, self.needed = name, [], []  # another name is another log
            for keys in (self.keys, self.log, self.needed):
                keys.append(command["key"])
        self.count(event, kind, command)
        check_total([each["charge"] for each in event.get("charges", [])], event.get("total", {}))
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        need(text.encode() == entry, "not canonical JSON (RFC 8785)")
        place = event["ledger"], repr(event["sequence"])
        need(place == (self.manifest["ledger"], str(self.size)), "not the next of this ledger")
        before, self.time = self.time, event["time"]
        need(self.time >= before and len(self.time) == 27, "earlier than the event before it")

    def count(self, event: dict[str, Any], kind: str, command: dict[str, Any]) -> None:
        """Adds what an event charges, as the table in docs/evidence.md says."""
        if kind in ("population.registered.v1", "population.extended.v1"):
            added = event["added"] if self.dimensions else command.get("dimensions", {})
            self.extend(added, attested_new=command.get("attested_new") is True)
        elif kind in SPENT:
            everyone = command.get("everyone") is True or event.get("charged_to") == "everyone"
            total = amounts(event["more" if kind == "charge.revalued.v1" else "total"])
            charge = command["dataset"], {} if everyone else command.get("subjects"), total
            self.charge(*charge)
            if kind == "grant.reserved.v1":
                self.open[event["grant"]] = charge
        elif kind in SETTLED:
            dataset, subjects, held = self.open.pop(event["grant"])
            self.charge(dataset, subjects, map(sub, amounts(event["charge"]), held))
        elif kind == "ledger.carried_over.v1":
            for each in [a for a in command["accounts"] if not a["rule"] and a["dataset"] != "*"]:
                self.carry(self.cells[each["dataset"]], amounts(each["used"]))
        elif kind == "ledger.recovered.v1":
            self.open.clear()

    def charge(self, dataset: str, subjects: Any, units: Any) -> None:
        """Adds to the cells of a subject group, or to everyone."""
        terms, more = subjects if type(subjects) is list else [subjects or {}], tuple(units)
        for cell in {()} if {} in terms else set().union(*map(self.cells_of, terms)):
            self.cells[dataset][cell] = tuple(map(add, self.cells[dataset][cell], more))
        self.booked[dataset] = tuple(map(add, self.booked[dataset], map(abs, more)))
        need(max(self.booked[dataset]) <= MOST_UNITS, "sums past 2^62: the totals are not right")

    def cells_of(self, term: dict[str, Any]) -> Any:
        """The cells that have one of the values of each dimension that a term names."""
        sides = dict(self.dimensions)
        for name, asked in term.items():
            values, place = sides[name], sides[name].index  # which fails for an unknown value
            if type(asked) is not dict:
                sides[name] = [values[place(value)] for value in asked]
            elif "from" in asked:
                sides[name] = values[place(asked["from"]) : place(asked["to"]) + 1]
            else:
                sides[name] = [values[at] for at in positions(**asked)]
        return product(*sides.values())

    def extend(self, added: dict[str, list[str]], *, attested_new: bool) -> None:
        """New cells inherit the most beside them; if attested new, only what open grants hold."""
        after = {n: self.dimensions.get(n, []) + added.get(n, []) for n in self.dimensions or added}
        need(prod(map(len, after.values())) <= MOST_CELLS, "too many cells")
        held = self.open.values() if attested_new else ()
        for dataset, subjects, units in held:
            self.charge(dataset, subjects, map(sub, NOTHING, units))
        for cells in [] if attested_new else self.cells.values():
            for axis, name in enumerate(self.dimensions):
                for cell, value in product(cells.keys() - {()}, added.get(name, [])):
                    new = (*cell[:axis], value, *cell[axis + 1 :])
                    cells[new] = tuple(map(max, cells[new], cells[cell]))
        self.dimensions = after
        for charge in held:
            self.charge(*charge)

    def carry(self, cells: Any, used: tuple[int, ...]) -> None:
        """No cell has less than what was used before, nor any that comes later."""
        before, cells[()] = cells[()], tuple(map(max, cells[()], used))
        for cell in cells.keys() - {()}:
            cells[cell] = tuple(map(sub, map(max, used, map(add, before, cells[cell])), cells[()]))

    def finish(self, pin: str | None) -> None:
        """Each dataset's most charged cell; and the last checkpoint is of all that was read."""
        for dataset, cells in self.cells.items():
            everyone, others = cells.pop((), NOTHING), zip(NOTHING, *cells.values(), strict=True)
            most = [units + max(other) for units, other in zip(everyone, others, strict=True)]
            self.totals[str(dataset)] = dict(zip(NAMES, map(str, most), strict=True))
        said = {"origin": self.name, "tree": {"root": root_of(self.subtrees), "size": self.size}}
        need(self.manifest | said == self.manifest, "the manifest is not of these entries")
        last = () if self.checkpoints else (self.size, self.files["checkpoint"])
        need(self.last == last, "checkpoints shrink, or the last one is not of all entries")
        need(self.files["keys"].split("\n") == [*self.keys, ""], "keys that no event adopts")
        need(pin is None or pin in self.log, "the key that was given is not one of this log")


def verify(file: BinaryIO, pin: str | None = None) -> dict[str, Any]:
    """Checks a whole bundle, which is read once."""
    audit = Audit()
    audit.attempt("archive", audit.read, file, pin)
    found = {"ledger": audit.manifest.get("ledger"), "root": root_of(audit.subtrees)}
    return found | {"events": audit.size, "findings": audit.findings, "totals": audit.totals}


def main() -> int:
    """The command: 0 if all is as it should be, 1 if anything is not, 2 on misuse."""
    asks = argparse.ArgumentParser(description="Checks an evidence bundle of accountant.")
    asks.add_argument("bundle", type=argparse.FileType("rb"))
    asks.add_argument("--key", help="a verifier key that you know: else anybody may have signed")
    asks.add_argument("--json", action="store_true", help="print what was found as JSON")
    report = verify((asked := asks.parse_args()).bundle, asked.key)
    told = [f"{each['where']}: {each['reason']}" for each in report["findings"]] or ["no findings"]
    told += [f"{name}: {report[name]}" for name in ("ledger", "events", "root", "totals")]
    text = json.dumps(report, indent=1) if asked.json else "\n".join(ascii(x)[1:-1] for x in told)
    sys.stdout.write(f"{text}\n")
    return 1 if report["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
