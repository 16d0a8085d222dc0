"""Recoveries: another log under another name, whatever the moment at which they were cut off."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from forked import ran
from here import Said, accountant
from house import ORIGIN, House, audit, backup, reasons, recovered, resident
from support import ask, confirming, laplace, make

from accountant.budget.commands import Envelope
from accountant.budget.errors import Conflict, Forbidden, Problem
from accountant.budget.facts import grant_in
from accountant.budget.state import State
from accountant.cli.doctor import examine
from accountant.ledger.events import canonical
from accountant.ledger.notes import COSIGNATURE, Signer, parse
from accountant.publishing import recovery
from accountant.publishing.recovery import carried
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError

HERE = Path(__file__).parent


def test_a_healthy_ledger_is_not_recovered(house: Callable[..., House]) -> None:
    """Where nothing was lost, there is nothing to recover, and nothing changes."""
    made = resident(house())
    for prepare in (made.sign, made.grant, lambda: made.publisher.publish("fair")):
        prepare()
        before = made.head()
        with pytest.raises(Conflict, match="nothing to recover"):
            recovered(made)
        assert made.head() == before


def test_a_recovered_ledger_is_another_log(house: Callable[..., House]) -> None:
    """After a recovery the service works; the log has another name and key, quotes the head that
    was lost, and its bundle has no finding, but for whoever kept what was lost.
    """
    made = resident(house())
    old = made.sign()
    [key] = audit(made.bundle()).keys
    kept_grant = made.ask(make("ask_grant", **ask(laplace("0.01"))), key="kept")
    copy = backup(made)
    lost = made.ask(make("ask_grant", **ask(laplace("0.02"))), key="lost")
    signed = made.sign()
    again = made.put_back(copy)
    first = recovered(again)
    assert parse(first.note).text.startswith(f"{ORIGIN}/fair/2\n".encode())
    after = again.again()
    after.grant()
    data = after.bundle()
    verdict = audit(data)
    assert reasons(verdict) == []
    assert verdict.origin == f"{ORIGIN}/fair/2"
    assert verdict.keys[0] == key
    assert len(verdict.keys) == 2
    assert reasons(audit(data, key=verdict.keys[1], earlier=[old.note])) == []
    assert "never adopted the key" in reasons(audit(data, key=key))[0]
    assert audit(data, earlier=[signed.note]).count == 1
    [event] = [
        event
        for event in map(after.service.event, ["fair"] * verdict.size, range(verdict.size))
        if event.type == "ledger.recovered.v1"
    ]
    assert event.body["command"]["lost"] == [signed.note.decode()]
    assert event.body["lost"][0]["size"] == signed.size
    # A key of an event that is there is a retry; one of a lost event is new.
    asked = Envelope("pipe", make("ask_grant", **ask(laplace("0.01"))), "kept")
    answer = after.service.execute("fair", asked)
    assert answer.repeated
    assert answer.events[0] == kept_grant
    fresh = after.ask(make("ask_grant", **ask(laplace("0.03"))), key="lost")
    assert fresh.sequence > lost.sequence
    with pytest.raises(Conflict):
        recovered(after)
    again.close()
    after.close()


def test_open_grants_are_charged(house: Callable[..., House]) -> None:
    """Nobody knows what became of the grants that were open in the copy: they are charged in full,
    and cannot be settled any more.
    """
    made = resident(house())
    made.sign()
    grant = made.grant("0.5")
    copy = backup(made)
    made.do("release_grant", grant=grant_in(grant), reason="never ran")
    made.sign()
    again = made.put_back(copy)
    recovered(again)
    after = again.again()
    assert after.used()[0][0] == 500_000_000
    state = after.service.state("fair")
    assert not state.open
    with pytest.raises(Conflict):
        after.do("release_grant", grant=grant_in(grant), reason="never ran")
    assert after.commit(grant).type == "grant.noted.v1"
    with pytest.raises(Conflict):
        after.commit(grant)
    assert after.used()[0][0] == 500_000_000
    assert reasons(audit(after.bundle())) == []
    again.close()
    after.close()


def test_a_lost_key_is_recovered_from(house: Callable[..., House]) -> None:
    """Where only the signing key is lost, a recovery goes on under another, and nothing of what was
    spent changes.
    """
    made = resident(house())
    made.commit(made.grant("0.5"))
    made.sign()
    before = made.used()
    for path in (made.home / "vault/fair").glob("*.key"):
        path.unlink()
    recovered(made, "the key was on a stick")
    after = made.again()
    after.grant()
    assert after.used()[0][0] == before[0][0] + 1_000_000
    assert reasons(audit(after.bundle())) == []
    after.close()


def test_a_key_that_is_lost_cannot_be_rotated(house: Callable[..., House]) -> None:
    """The old key vouches for the new one, so without it there is no rotation: nothing is adopted,
    and the remedy is said. A ledger that took another key nonetheless is recovered.
    """
    made = resident(house())
    made.sign()
    for path in (made.home / "vault/fair").glob("*.key"):
        path.unlink()
    before = made.service.state("fair").sequence
    with pytest.raises(StoreError, match="accountant recover"):
        made.publisher.rotate("fair", "operator:o")
    assert made.service.state("fair").sequence == before
    name = f"{ORIGIN}/fair"
    made.do(
        "adopt_signing_key", "operator:o", key=str(made.vault.new_signer("fair", name).verifier)
    )
    [found] = [one for one in examine(made.settings) if one.check == "ledger fair" and one.do]
    assert (found.status, "accountant recover" in found.text) == ("wrong", True)
    recovered(made, "the key was on a stick")
    assert reasons(audit(made.again().bundle())) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from house import House, recovered
from accountant.publishing import recovery
from accountant.store import vault
house = House(Path(sys.argv[1]))
step = sys.argv[2]
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
if step == "retire":
    vault.Vault.retire = die
elif step == "halfway":
    rename = Path.rename
    def once(self, target):
        rename(self, target)
        die()
    Path.rename = once
elif step == "sign":
    recovery.Publisher.sign = die
elif step == "key":
    vault.Vault.new_signer = die
else:
    vault.Vault.keep = die
recovered(house, "x")
"""


@pytest.mark.parametrize("step", ["retire", "halfway", "sign", "key", "keep"])
def test_a_recovery_that_was_killed(house: Callable[..., House], step: str) -> None:
    """A recovery that is killed between its steps can be run again, or was far enough that the
    service goes on; either way nothing that was spent is forgotten.
    """
    made = resident(house())
    made.grant("0.25")
    copy = backup(made)
    made.commit(made.grant("0.5"))
    assert made.publisher.publish("fair") is not None
    made.put_back(copy).close()
    run = ran(KILLED, made.home, step)
    assert run.code == -signal.SIGKILL, run.err
    again = made.again()
    with suppress(Conflict):  # nothing is left to do
        recovered(again)
    after = again.again()
    after.grant("0.125")
    assert after.used()[0][0] >= 750_000_000 + 125_000_000
    assert reasons(audit(after.bundle())) == []
    again.close()
    after.close()


def test_every_recovery_opens_another_log(house: Callable[..., House]) -> None:
    """A second recovery goes on under a third name; all that was lost each time stays spent, and
    the bundle with its three logs has no finding.
    """
    made = resident(house())
    made.sign()
    for number in (2, 3):
        copy = backup(made)
        made.commit(made.grant("7"))
        assert made.publisher.publish("fair") is not None
        made = made.put_back(copy)
        recovered(made)
        made.service.ledgers.close()
        made = made.again()
        made.grant("0.001")
        signed = made.publisher.publish("fair")
        assert made.publisher.published("fair") == signed
        assert audit(made.bundle()).origin == f"{ORIGIN}/fair/{number}"
    assert reasons(audit(made.bundle())) == []
    assert made.used()[0][0] == 14_002_000_000
    made.close()


def test_one_person_recovers_nothing(house: Callable[..., House]) -> None:
    """What was carried over stays, and the ledger takes nothing else; nor does a confirmation of
    another recovery, long made, put the heads of a second loss aside.
    """
    made = resident(house())
    made.sign()
    copy = backup(made)
    made.commit(made.grant("7"))
    made.sign()
    lost = made.put_back(copy)
    ledgers, vault = lost.service.ledgers, lost.vault
    event = recovery.propose(ledgers, vault, "fair", by="operator:o", reason="x")
    assert event.body["effect"]["owed"]["d"] == "7"
    assert recovery.propose(ledgers, vault, "fair", by="operator:p", reason="y") == event
    asked = Envelope("operator:second", confirming(event))
    for by in ("operator:o", "O"):
        with pytest.raises(Forbidden):
            recovery.confirm(ledgers, vault, ORIGIN, "fair", Envelope(by, asked.command))
    with pytest.raises(Conflict, match="accountant recover"):
        Service(ledgers).confirm("fair", asked)
    with pytest.raises(Problem, match="does not continue"):
        lost.grant("0.001")
    recovery.confirm(ledgers, vault, ORIGIN, "fair", asked)
    ledgers.close()
    after = lost.again()
    assert after.used()[0][0] == 7_000_000_000
    copy = backup(after)
    after.commit(after.grant("1"))
    after.sign()
    again = after.put_back(copy)
    with pytest.raises(Conflict, match="was made"):
        recovery.confirm(again.service.ledgers, again.vault, ORIGIN, "fair", asked)
    recovered(again)
    assert reasons(audit(again.again().bundle())) == []


def test_any_number_of_accounts_is_carried_over() -> None:
    """However many accounts there are, with names and sums as long as they get, each is carried
    over once, in events that are not too large.
    """
    currencies = ["delta", "epsilon", "epsilon_squared", "mu_squared", "rho"]
    currencies += [f"tau_{order}" for order in range(1_000, 1_010)]
    used = dict.fromkeys(currencies, str(2**62)) | {"infinite": dict.fromkeys(currencies, 2**40)}
    names = [f"{n:064d}" for n in range(251)]
    accounts = [
        {"rule": "r" * 64, "epoch": 7, "dataset": name, "client": "c" * 64, "used": used}
        for name in names
    ]
    commands = carried(State("fair"), canonical({"checkpoint": "", "accounts": accounts}))
    assert [account.dataset for command in commands for account in command.accounts] == names
    assert max(len(canonical(command.to_json())) for command in commands) < 64_000
    assert carried(State("fair"), canonical({"checkpoint": "", "accounts": []})) == []
    for damaged in (b"", b"[]", b"{}", b'{"accounts":[{}]}', b"[" * 2_000, b'{"accounts":[1]}'):
        with pytest.raises(StoreError, match="damaged"):
            carried(State("fair"), damaged)


def test_many_long_cosignatures_are_no_obstacle(house: Callable[..., House]) -> None:
    """A lost head whose cosignatures are longer than an event quotes can be recovered from."""
    made = resident(house())
    copy = backup(made)
    made.sign()
    signers = [Signer.new(f"witness.example/{n:02d}/{'w' * 230}", COSIGNATURE) for n in range(12)]
    made.grant()
    signed = made.publisher.publish("fair")
    assert signed is not None
    text = parse(signed.note).text
    lines = "".join(signer.line(text, 7) for signer in signers)
    made.vault.keep("fair", "published", signed.note + lines.encode())
    made.grant()
    made.sign()
    again = made.put_back(copy)
    recovered(again)
    after = again.again()
    assert reasons(audit(after.bundle())) == []
    again.close()
    after.close()


def test_recover_from_the_command_line(house: Callable[..., House]) -> None:
    """`accountant recover` proposes, and changes nothing else; confirmed by another person it
    prints the new epoch's checkpoint. It exits with 2 for one person, and where nothing is lost.
    """
    made = resident(house())
    copy = backup(made)
    made.grant()
    made.sign()
    made.put_back(copy).close()
    place = {"ACCOUNTANT_HOME": str(made.home), "ACCOUNTANT_ORIGIN": ORIGIN}

    def run(*more: str, by: str = "ann") -> Said:
        return accountant("recover", "-p", "fair", *more, **place, LOGNAME=by)

    said = run("--reason", "disk")
    assert said.code == 0, said.err
    assert run("--reason", "disk").out == said.out  # it waits already
    shown = re.search(r"accountant recover --confirm (\d+) -p fair --digest (\w+)", said.out)
    assert shown, said.out
    confirm = ["--confirm", shown[1], "--digest", shown[2]]
    alone = run(*confirm)
    assert alone.code == 2
    assert "operator:ann proposed this" in alone.err
    assert accountant("confirm", shown[1], "-p", "fair", *confirm[2:], **place).code == 2
    made_anew = run(*confirm, by="ben")
    assert made_anew.code == 0, made_anew.err
    assert made_anew.out.startswith(f"{ORIGIN}/fair/2\n")
    for again in (["--reason", "disk"], confirm):
        late = run(*again, by="ben")
        assert late.code == 2
        assert "nothing to recover" in late.err
