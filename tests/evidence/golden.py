"""Makes the bundles that have to verify for ever: ``python tests/evidence/golden.py FOLDER``.

Each was made once and never again, for keys and salts are drawn: one that is there is left alone.
A type of event that is new gets a bundle of its own, and nothing changes one of a release. The
first has events of nearly all types; the second batches, and groups of so many values that they
stand in the ledger as positions; the third a batch whose refusal has no room for all its items;
the fourth reports that were filed; the fifth a change with a reason why it was confirmed, and the
results of verifications; the sixth datasets that were registered after others made from them had
been used.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from house import ROOMS, House, adopt, eventful, fresh_key, recovered, resident
from support import START, Clock, ask, laplace, make

from accountant.auditing.verify import verify
from accountant.budget.batches import PART, REFUSED
from accountant.budget.commands import Command, Envelope, batch_of
from accountant.budget.facts import grant_in
from accountant.budget.outcome import RESERVED
from accountant.budget.proposals import digest_of
from accountant.ledger.events import Event
from accountant.reporting.statement import accounts_json


def made(home: Path) -> bytes:
    """A bundle with events of every type that a service writes today, a recovery among them."""
    house = House(home, Clock(START))
    eventful(house)
    looser = adopt(house, ROOMS.replace("100", "300"))
    house.do("decline_change", "officer", proposal=looser.sequence, reason="not this year")
    house.sign()
    copy = home / "copy.db"
    house.copy_database(copy)
    house.grant("0.5", purpose="lost with the disk")
    house.publisher.publish("fair")
    again = house.put_back(copy)
    recovered(again, "a disk died, and Monday's backup was put back")
    after = again.again()
    after.commit(after.grant("0.125", purpose="after the recovery"))
    data = after.bundle()
    for each in (house, again, after):
        each.close()
    return data


def batched(home: Path) -> bytes:
    """A bundle with batches that were admitted and refused, and with wide groups."""
    clock = Clock(START)
    wide = [f"clinic {number}" for number in range(400)]
    house = resident(House(home, clock), {"sex": ["f", "m"], "clinic": wide[:-1]})
    clock.jump(365 * 86_400)
    house.accept_time("the machine was off for a year")
    house.do("extend_population", "admin", added={"clinic": wide[-1:]})
    house.grant("0.25", subjects={"clinic": wide[::2]}, purpose="every other clinic")
    several = _batch(
        house,
        make("ask_grant", **ask(laplace("0.5"), subjects={"clinic": wide[:100]}, purpose="one")),
        make("ask_grant", **ask(laplace("0.125"), purpose="two")),
    )
    grants = [grant_in(event) for event in several if event.type == RESERVED]
    _batch(
        house, make("ask_grant", **ask(laplace("0.5"))), make("ask_grant", **ask(laplace("999")))
    )
    _batch(
        house,
        make("commit_grant", grant=grants[0]),
        make("release_grant", grant=grants[1], reason="never ran, says Eve"),
        make("ask_grant", **ask(laplace("0.25"))),
    )
    digest = sha256(b"as it was published").hexdigest()
    house.do("republish_answer", grant=grants[0], dataset="d", answer=digest)
    _waits(house)
    _approvals(house)
    past = [make("record_invocations", **ask(laplace(e))) for e in ("0.5", "2000")]
    _batch(house, *past)
    data = house.bundle()
    house.close()
    return data


def parted(home: Path) -> bytes:
    """A bundle with a refused batch: a part, another, and the refusal with the item between."""
    house = resident(House(home, Clock(START)), {"sex": ["f", "m"]})
    noise = [{"kind": "laplace", "sensitivity": "1", "scale": "1." + "3" * 38}] * 180
    small = make("ask_grant", **ask(laplace("0.5"), purpose="this one fits"))
    large = make("ask_grant", dataset="d", mechanisms=noise, purpose="and these do not")
    found = _batch(house, small, large, large, large)
    if [event.type for event in found] != [PART, PART, REFUSED]:
        raise AssertionError(found)
    house.grant("0.25", purpose="after it")
    data = house.bundle()
    house.close()
    return data


def filed(home: Path) -> bytes:
    """A bundle with reports that were filed, each for a period that was over."""
    house = resident(House(home, Clock(START)), {"sex": ["f", "m"]})
    house.commit(house.grant("0.25", purpose="before the report"))
    house.clock.jump(40 * 86_400)
    house.accept_time("the machine was off for a month")
    for fields in ({"report": "officer"}, {"report": "statement", "dataset": "d"}):
        digest = sha256(repr(fields).encode()).hexdigest()
        period = {"first": "2026-09-01", "last": "2026-09-30", "format": "pdf", "size": 6}
        house.do("file_report", "officer", **fields, **period, digest=digest)
    data = house.bundle()
    house.close()
    return data


def stated(home: Path) -> bytes:
    """A bundle with what people said of the ledger: why they confirmed, and how they verified."""
    house = resident(House(home, Clock(START)), {"sex": ["f", "m"]})
    house.commit(house.grant("0.25", purpose="before it"))
    looser = adopt(house, ROOMS.replace("100", "300"))
    named = {"proposal": looser.sequence, "digest": digest_of(looser.to_bytes())}
    house.do("confirm_change", "officer", **named, reason="the register needs it, says Eve")
    for findings, reason in ((2, "event 3 differs, says Eve"), (0, None)):
        head = house.service.head("fair")
        said = {"size": head.size, "root": head.root.hex(), "findings": findings, "decided": True}
        house.do("state_verification", "auditor", **said, reason=reason)
    data = house.bundle()
    house.close()
    return data


def late(home: Path) -> bytes:
    """A bundle with ancestors that became known late: of a limit that counts both, of one that
    begins to count a sum of epsilons, and of data with a grant that is open.
    """
    house = resident(House(home, Clock(START)), {"sex": ["f", "m"]})
    only = "  - {id: raw, datasets: x, gate: zcdp, limit: {epsilon: 2, delta: 1e-6}}\n"
    adopt(house, ROOMS + only)
    _derive(house, "e", "n/x")
    house.commit(house.do("ask_grant", **ask(laplace("0.25"), dataset="e", subjects=WOMEN)))
    noise = ask(laplace("0.5", 2), dataset="e", purpose="runs on")
    opened = house.do("ask_grant", **noise)
    _derive(house, "x", "n/y")
    _derive(house, "y")
    house.do("commit_grant", grant=grant_in(opened), mechanisms=[laplace("0.5")])
    house.do("ask_grant", **ask(laplace("0.875"), dataset="x", purpose="does not fit"))
    house.do("ask_grant", **ask(laplace("0.125"), dataset=["d", "x"], purpose="fits"))
    _derive(house, "e", "n/x", "d")
    data = house.bundle()
    house.close()
    return data


WOMEN = {"sex": ["f"]}


def _derive(house: House, name: str, *parents: str) -> None:
    """Registers a dataset that was made from others."""
    fields = {"id": name, "namespace": "n", "name": name, "parents": list(parents)}
    house.do("register_dataset", "admin", **fields)


def _waits(house: House) -> None:
    """One request waits until another's budget comes back, one in vain, one not any more."""
    most = grant_in(house.do("ask_grant", **ask(laplace("98.5"), purpose="nearly all")))
    house.do("ask_grant", **ask(laplace("0.5", 6), wait="7d", at_least=2, purpose="two will do"))
    house.do("ask_grant", **ask(laplace("98"), wait=60, purpose="for a minute"))
    gone = grant_in(house.do("ask_grant", **ask(laplace("98"), wait="2h", purpose="never mind")))
    house.do("release_grant", grant=gone, reason="not needed any more")
    house.do("release_grant", grant=most, reason="it was not run")
    house.clock.forward(61)
    house.service.expire_due()


def _approvals(house: House) -> None:
    """A person approves one request, and declines another."""
    adopt(house, ROOMS + "  - {id: dear, action: approve, at_most: {epsilon: 1}}\n")
    for what in ("approve_grant", "decline_grant"):
        waiting = house.do("ask_grant", **ask(laplace("1.5"), purpose="a registry"))
        digest = digest_of(waiting.to_bytes())
        house.do(what, "officer", grant=grant_in(waiting), digest=digest, reason="once is enough")


def _batch(house: House, *items: Command) -> tuple[Event, ...]:
    asked = Envelope("pipe", batch_of(items), fresh_key(), items)
    return house.service.execute("fair", asked).events


def main() -> None:
    """Writes the bundles that are not there, and what their events amount to."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    bundles = made, batched, parted, filed, stated, late
    for name, make_it in ((f"bundle-{number}", one) for number, one in enumerate(bundles, 1)):
        if (folder / f"{name}.tar").exists():
            continue
        with tempfile.TemporaryDirectory() as home:
            data = make_it(Path(home))
        verdict = verify([io.BytesIO(data)])
        if verdict.count or verdict.state is None:
            raise SystemExit("\n".join(map(str, verdict.findings)))
        (folder / f"{name}.tar").write_bytes(data)
        totals = accounts_json(verdict.state, by="sex")
        (folder / f"{name}.json").write_text(json.dumps(totals, indent=1) + "\n")


if __name__ == "__main__":
    main()
