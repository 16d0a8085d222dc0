"""Events in words, and the ledger as it is browsed."""

from __future__ import annotations

import random
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from report_desk import Desk
from support import laplace

from accountant.budget.reading import TYPES
from accountant.console.facts import sentences
from accountant.console.facts.browsing import PER_PAGE, browse, seen, steps_of
from accountant.console.facts.sentences import sentence
from accountant.ledger.events import Event, rfc3339
from accountant.ledger.merkle import Tree, inclusion_proof, leaf_hash, node_hash
from accountant.ledger.tiles import unpack_entries
from accountant.publishing.publisher import Publisher
from accountant.reporting.texts import Texts
from accountant.store.vault import Vault

GOLDEN = Path(__file__).parent.parent / "golden" / "evidence"


def _golden() -> Iterator[Event]:
    """Every event of the golden bundles, which have almost every type."""
    for bundle in sorted(GOLDEN.glob("*.tar")):
        with tarfile.open(bundle) as archive:
            for member in archive:
                if "entries" in member.name and (file := archive.extractfile(member)):
                    yield from map(Event.from_bytes, unpack_entries(file.read()))


def test_every_type_of_event_has_words_of_its_own() -> None:
    """No type is told by its name, and each event of the golden ledgers is told as a sentence."""
    assert set(sentences._TELLING) == TYPES
    told = {event.type: sentence(event, rfc3339(event.time)) for event in _golden()}
    assert set(told) | {"charge.revalued.v1", "engine.adopted.v1"} == TYPES
    for kind, one in told.items():
        assert kind not in one.text
        assert one.text.endswith((".", "?", "”)."))
        assert "{" not in one.text
        assert one.word


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            lambda d: d.grant(laplace("0.25"), purpose="a <b>"),
            "was granted 0.250 on d, for “a <b>”.",
        ),
        (lambda d: d.grant(laplace(7)), "asked for 7.000 on d: refused by a."),
        (
            lambda d: d.record(laplace(7, count=2)),
            "2 invocations that had run without a grant: 14",
        ),
    ],
)
def test_a_decision_says_who_asked_for_what_and_which_rule_refused(
    desk: Desk, asked: object, words: str
) -> None:
    """Amounts are rounded up; what ran over a limit is called an overrun."""
    desk.hospital()
    event = asked(desk)  # type: ignore[operator]
    opened = Texts(lambda first, last: desk.ledgers.texts("clinic", first, last)).opened(event)
    one = sentence(opened, rfc3339(event.time))
    assert words in one.text
    assert one.decision
    assert (one.tone == "over") == (one.word in ("Refused", "Overrun"))


def test_pages_go_back_to_the_first_event_without_a_gap(desk: Desk) -> None:
    """Each page begins where the one before ended, the latest event first, and a filter shows what
    it names and nothing else.
    """
    desk.hospital()
    desk.all([("ask_grant", f"c{i % 2}", _request(i)) for i in range(2 * PER_PAGE + 7)])
    size = desk.ledgers.head("clinic").size
    found, before = list[int](), None
    while before != 0:
        page = browse(desk.ledgers, "clinic", before, "all", "")
        found += [one.sequence for one in page.events]
        before = page.first
        assert page.size == size
    assert found == list(range(size - 1, -1, -1))
    mine = browse(desk.ledgers, "clinic", None, "trouble", "c1")
    assert {one.word for one in mine.events} == {"Refused"}
    assert all(one.text.startswith("c1 ") for one in mine.events)


def _request(number: int) -> dict[str, object]:
    return {"dataset": "d", "mechanisms": [laplace("0.3")], "purpose": f"p{number}"}


def test_the_way_to_the_root_can_be_walked_by_its_sides() -> None:
    """Joined on the sides that are named, the hashes give the root of each tree."""
    rnd = random.Random(4)  # noqa: S311 no secret
    for size in (1, 2, 3, 5, 8, 13, 33):
        leaves = [leaf_hash(bytes([i])) for i in range(size)]
        tree, nodes = Tree().grown(leaves)
        kept = {(0, i): leaf for i, leaf in enumerate(leaves)}
        kept |= {(node.level, node.number): node.hash for node in nodes}
        index = rnd.randrange(size)

        def read(level: int, first: int, count: int, kept: dict = kept) -> list[bytes]:  # type: ignore[type-arg]
            return [kept[level, first + i] for i in range(count)]

        node = leaves[index]
        for step in steps_of(index, size, inclusion_proof(read, index, size)):
            other = bytes.fromhex(step.hash)
            node = node_hash(other, node) if step.side == "older" else node_hash(node, other)
        assert node == tree.root


def test_an_event_is_shown_as_it_was_signed(desk: Desk, tmp_path: Path) -> None:
    """Its bytes are those that are stored, its proof ends at the signed root, and a changed event
    is named.
    """
    desk.hospital()
    publisher = Publisher(desk.service, Vault(tmp_path), "example.org")
    signed = publisher.sign("clinic")
    receipt = publisher.log("clinic").receipt(2, signed)
    [row] = desk.ledgers.read("clinic", 2, 1)
    one = seen(row, Texts(), receipt, signed.head.root, signed.size)
    assert one.body.encode() == row.body
    assert (one.root, one.size, one.kept) == (signed.head.root.hex(), signed.size, True)
    assert one.leaf == sha256(b"\0" + row.body).hexdigest()
    forged = row._replace(body=row.body.replace(b"admin", b"other"))
    assert not seen(forged, Texts(), None, b"", 0).kept
