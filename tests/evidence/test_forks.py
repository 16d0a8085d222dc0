"""Databases that do not continue what was signed or published are neither written nor read."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest
from house import ROOMS, House, backup, many, resident
from support import ask, laplace

from accountant.budget.errors import Problem
from accountant.ledger.merkle import Tree, leaf_hash


def refused(house: House, *named: str) -> None:
    """Fails unless nothing is written or read, with a message that names all of these."""
    before = house.raw("SELECT ledger, sequence FROM event WHERE ledger = 'fair'")
    calls = [
        ("POST", "/grants", ask(laplace("0.001"))),
        ("POST", "/invocations", ask(laplace("0.001"))),
        ("PUT", "/datasets/e", {"namespace": "n", "name": "e"}),
        ("PUT", "/policy", "policy: p\nrules:\n" + ROOMS),
        ("POST", "/events/4/erase", {"reason": "x"}),
        *(
            ("GET", path, None)
            for path in (
                *("/accounts", "/events", "/events/0", "/report", "/decisions/d4", "/grants/g4"),
                *("/log/checkpoint", "/log/tile/0/000.p/1", "/log/tile/entries/000.p/1"),
                *("/receipts/0", "/receipts/4"),
            )
        ),
    ]
    for method, path, body in calls:
        answer = house.call(method, path, body, who="admin")
        assert answer.status_code == 503, (path, answer.text)
        assert answer.json()["type"].endswith("ledger-diverged")
        for text in named:
            assert text in answer.json()["detail"], path
    with pytest.raises(Problem, match="does not continue"):
        house.sign()
    with pytest.raises(Problem, match="does not continue"):
        house.publisher.rotate("fair", "operator:o")
    assert house.raw("SELECT ledger, sequence FROM event WHERE ledger = 'fair'") == before


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("more", [0, 1, 5], ids=["as it was", "grown by one", "grown past it"])
def test_a_database_put_back_is_refused(
    house: Callable[..., House], *, published: bool, more: int
) -> None:
    """An older copy under a newer vault, also one in which events were written meanwhile, is
    refused with both sizes and roots, for every call, at any start.
    """
    made = resident(house())
    made.sign()
    copy = backup(made)
    for _ in range(3):
        made.grant()
    if published:
        assert made.publisher.publish("fair") is not None
    signed, head = made.sign(), made.head()
    with closing(sqlite3.connect(copy)) as raw:
        assert raw.execute("SELECT count(*) FROM event WHERE ledger='fair'").fetchone() == (5,)
    if more:
        vault, away = made.home / "vault" / "fair", made.home / "away"
        away.mkdir()
        heads = [path for path in vault.iterdir() if path.suffix != ".key"]
        for path in heads:
            path.rename(away / path.name)
        other = made.put_back(copy)
        for _ in range(more):
            other.grant("0.002")
        other.service.ledgers.close()
        for path in heads:
            (away / path.name).rename(path)
        made = other
        made.open()
        again = made.again()
    else:
        again = made.put_back(copy)
    assert again.head().size == 5 + more
    root = "root " + again.head().root.hex() if more < 4 else "in the database the first 8 events"
    refused(again, f"of {signed.size} events", head.root.hex(), root, "accountant recover")
    third = again.again()
    refused(third, head.root.hex())
    third.close()
    again.close()


def test_a_rewritten_event_is_refused(house: Callable[..., House]) -> None:
    """An event that somebody with the file changes, with its leaf, the kept hashes and the head all
    made to fit, is refused when the service starts again, and while it runs.
    """
    made = many(resident(house()), 300)
    signed, head = made.sign(), made.head()
    bodies = made.stored()
    at = len(bodies) - 40
    bodies[at] = bodies[at].replace(b'"100000"', b'"100001"')
    assert bodies[at] != made.stored()[at]
    tree, nodes = Tree().grown(map(leaf_hash, bodies))
    statements = [
        f"UPDATE event SET body = x'{bodies[at].hex()}', leaf = x'{leaf_hash(bodies[at]).hex()}'"
        f" WHERE ledger = 'fair' AND sequence = {at}",
        f"UPDATE ledger_head SET peaks = x'{b''.join(tree.peaks).hex()}' WHERE ledger = 'fair'",
        *(
            f"UPDATE node SET hash = x'{node.hash.hex()}' WHERE number = {node.number}"
            for node in nodes
        ),
    ]
    made.raw(*statements, guarded=False)
    again = made.again()
    refused(again, head.root.hex(), tree.root.hex(), f"{signed.size} events")
    again.close()
    refused(made, head.root.hex(), tree.root.hex())


def test_an_empty_database_is_refused(house: Callable[..., House]) -> None:
    """If the database is gone and a fresh one in its place, nobody registers the population anew
    under a vault that knows better.
    """
    made = resident(house())
    signed, head = made.sign(), made.head()
    made.service.ledgers.close()
    for name in ("accountant.db", "accountant.db-wal", "accountant.db-shm"):
        (made.home / name).unlink(missing_ok=True)
    again = made.again()
    population = {"privacy_unit": "p", "neighbouring": "replace_one", "membership": "public"}
    for answer in (again.put("", population), again.get("/accounts")):
        assert answer.status_code == 503
        assert f"of {signed.size} events" in answer.json()["detail"]
        assert head.root.hex() in answer.json()["detail"]
    again.close()


def test_a_lost_vault_is_noticed_at_once(house: Callable[..., House]) -> None:
    """Without its vault a ledger that was signed is not written to: nobody could tell whether its
    database is the newest. No other key takes the place of the lost one but by a recovery.
    """
    made = resident(house())
    made.sign()
    shutil.rmtree(made.home / "vault")
    again = made.again()
    for attempt in (again.grant, again.sign):
        with pytest.raises(Problem, match="put the vault back"):
            attempt()
    assert not list((made.home / "vault").glob("**/*.key"))
    again.close()
