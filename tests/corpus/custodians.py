"""Operations about the ledger itself: keys, alarms, recoveries, corrections."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from author import TEXTS, Author, Json
from operations import SYSTEM, ask


def recover(author: Author) -> None:
    """Opens a new epoch of the log, from what was signed before; whatever is open is charged."""
    lost = [_checkpoint(author)] * author.rng.randint(0, 2)
    reason = author.sealed({"type": "recover", "reason": "put back", "lost": lost})
    if isinstance(author.submit("officer", reason), list):
        author.recoveries += 1


def _checkpoint(author: Author) -> str:
    """A signed note that says where a log ended (C2SP tlog-checkpoint); nobody verifies it here."""
    origin, size = f"example.org/log{author.recoveries}", author.sequence + author.rng.randint(1, 9)
    root, signature = (base64.b64encode(author.rng.randbytes(n)).decode() for n in (32, 68))
    return f"{origin}\n{size}\n{root}\n\n— {origin} {signature}\n"


def carry_over(author: Author) -> None:
    """Says what some accounts have used at least."""
    rng, accounts = author.rng, author.ledger.totals()["accounts"]
    if not accounts:
        return
    carried = []
    for account in rng.sample(accounts, min(len(accounts), rng.randint(1, 4))):
        rule, epoch, where, client = account["key"]
        keeps = account["keeps"] if rng.random() < 0.9 else account["keeps"][:2]
        most = {c: account.get("used", {}).get(c, [0])[0] for c in keeps}
        factor = rng.choice([0.5, 1, 1.1, 1.5])
        used: Json = {c: str(int(n * factor) + rng.randint(0, 5)) for c, n in most.items()}
        if rng.random() < 0.05:
            used["infinite"] = {keeps[-1]: 1}
        scope = {"epoch": epoch + (rng.random() < 0.1), "dataset": where, "client": client}
        carried.append({"rule": rule, "used": used} | scope)
    author.submit("officer", {"type": "carry_over", "accounts": carried})


def erase(author: Author) -> None:
    """Erases the texts of an event."""
    event = author.rng.randint(0, author.sequence)
    command = {"type": "erase_text", "event": event, "fields": ["purpose"], "reason": TEXTS[1]}
    author.submit("officer", author.sealed(command))


def alarm(author: Author) -> None:
    """A witness contradicts, or somebody has looked."""
    if author.rng.random() < 0.6:
        said = {"witness": "w", "status": 409, "detail": "another tree", "size": author.sequence}
        author.submit(SYSTEM, {"type": "stop_publication"} | said)
    else:
        looked = author.sealed({"type": "resume_publication", "reason": "a typing error"})
        author.submit("officer", looked)


def key_of(name: str, public: bytes, kind: int = 1) -> str:
    """A verifier key (C2SP signed-note): 1 signs, 4 cosigns."""
    material = bytes([kind]) + public
    told = sha256(name.encode() + b"\n" + material).digest()[:4].hex()
    return f"{name}+{told}+{base64.b64encode(material).decode()}"


def signing_key(author: Author) -> None:
    """Adopts a key; every tenth is of another log."""
    log = author.rng.choice([author.recoveries] * 4 + [*range(author.recoveries + 2)])
    name = f"example.org/log{log}"
    author.submit(
        "admin", {"type": "adopt_signing_key", "key": key_of(name, author.rng.randbytes(32))}
    )


def clock(author: Author) -> None:
    """Accepts the time that a clock shows."""
    shown = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=author.now)
    stamp = shown.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    command = {"type": "accept_time", "clock": stamp, "reason": "the clock is right"}
    author.submit("officer", author.sealed(command))


def engine(author: Author) -> None:
    """Goes over to another version of the bounds, where the program has one; what was reserved
    before is committed in part after it.
    """
    version = author.rng.choice([1, 2, 2, 2, 3])
    if version == 2 and author.profile.corrected:
        ask(author)
        ask(author)
    found = author.submit("admin", {"type": "adopt_engine", "version": version})
    reserved = [(name, grant) for name, grant in author.open.items() if not grant.session]
    for name, grant in reserved[-4:] if isinstance(found, list) else ():
        run = [m | {"count": 1} for m in grant.command["mechanisms"][-1:]]
        commit = {"type": "commit_grant", "grant": name, "mechanisms": run}
        author.submit(grant.by, commit)


def revalue(author: Author) -> None:
    """Books what an event should have cost; sometimes it cost no less."""
    wrong = [facts for facts in author.ran if '"laplace"' in json.dumps(facts["mechanisms"])]
    among = author.rng.choice([author.ran, wrong, wrong, wrong[:3]])
    if among:
        command = {"type": "revalue", "reason": "half was booked"} | author.rng.choice(among)
        author.submit("operator", author.sealed(command))


OPERATIONS: Final[dict[str, Callable[[Author], None]]] = {
    one.__name__: one
    for one in (recover, carry_over, erase, alarm, signing_key, clock, engine, revalue)
}
"""Every one of them, by name."""
