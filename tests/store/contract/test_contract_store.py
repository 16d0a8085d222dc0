"""What ``Ledgers`` promises, whichever database it is on."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import Place, everything
from support import World, hundredth

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Tree, leaf_hash, tree_of
from accountant.store.ledgers import Ledgers, Moved, Signed, StoreError, Text
from accountant.store.opening import open_ledgers


@pytest.fixture
def ledgers(place: Place) -> Iterator[Ledgers]:
    """The ledgers of an empty database."""
    made = open_ledgers(place.url)
    yield made
    made.close()


def entries(first: int, count: int) -> list[Entry]:
    """Events that nobody decided: the store does not look into them."""
    return [Entry(n, "x.y.v1", 10**15 + n, b"event %d \x00\xff" % n) for n in range(first, count)]


def append(ledgers: Ledgers, ledger: str, first: int, end: int) -> Tree:
    """Appends in one transaction."""
    with ledgers.writing(ledger) as writing:
        tree = writing.append(ledger, entries(first, end))
        writing.commit()
        return tree


def test_what_is_appended_is_read_back_to_the_byte(ledgers: Ledgers) -> None:
    """Events, their hashes and those of full tiles are read as they were written, the head is the
    tree that RFC 6962 gives, and the tree can be made again from what is kept.
    """
    for first, end in ((0, 1), (1, 3), (3, 255), (255, 256), (256, 700)):
        tree = append(ledgers, "a", first, end)
        assert ledgers.head("a") == tree
    assert [s.body for s in ledgers.stream("a")] == [entry.body for entry in entries(0, 700)]
    leaves = [leaf_hash(entry.body) for entry in entries(0, 700)]
    assert [s.leaf for s in ledgers.stream("a")] == leaves == ledgers.hashes("a", 0, 0, 1_000)
    assert tree == Tree().grown(leaves)[0]
    assert (
        tree_of(lambda level, first, count: ledgers.hashes("a", level, first, count), 700) == tree
    )
    assert len(ledgers.hashes("a", 1, 0, 9)) == 2
    assert [s.sequence for s in ledgers.read("a", 698, 5)] == [698, 699]
    assert ledgers.head("b") == Tree()
    assert ledgers.read("b") == []


def test_ledgers_are_listed_by_their_bytes(ledgers: Ledgers) -> None:
    """The order of ledgers is that of their bytes, whatever the language of the server."""
    for name in ("b", "_service", "a-b", "ab", "B", "a"):
        append(ledgers, name, 0, 1)
    assert ledgers.names() == sorted(["b", "_service", "a-b", "ab", "B", "a"])


def test_appending_elsewhere_is_refused(ledgers: Ledgers) -> None:
    """The store appends only at the head: a gap or a rewrite is told as Moved, for the caller has
    read another head, and leaves no trace; entries that do not follow each other are a mistake.
    """
    before = append(ledgers, "a", 0, 3)
    for first in (0, 2, 4):
        with pytest.raises(Moved), ledgers.writing("a") as writing:
            writing.append("a", entries(first, first + 1))
    with pytest.raises(ValueError, match="follow"), ledgers.writing("a") as writing:
        writing.append("a", [*entries(3, 4), *entries(5, 6)])
    assert ledgers.head("a") == before
    assert len(ledgers.read("a")) == 3


def test_what_is_not_committed_never_was(ledgers: Ledgers) -> None:
    """Without a commit, or with an error on the way, nothing of a transaction is kept; and nobody
    else has seen it meanwhile.
    """
    before = append(ledgers, "a", 0, 3)
    with ledgers.writing("a") as writing:
        writing.append("a", entries(3, 300), [Text(3, "purpose", b"s", "why")])
        assert ledgers.head("a") == before
    with suppress(KeyError), ledgers.writing("a") as writing:
        writing.append("a", entries(3, 4))
        raise KeyError
    assert ledgers.head("a") == before
    assert (len(ledgers.read("a")), ledgers.texts("a", 0, 9)) == (3, [])
    assert ledgers.hashes("a", 1, 0, 9) == []


def test_a_transaction_that_failed_cannot_be_committed(ledgers: Ledgers, place: Place) -> None:
    """After an error that ended the transaction, a commit says so: neither database would."""
    append(ledgers, "a", 0, 1)
    with ledgers.writing("a") as writing:
        writing.append("a", entries(1, 2))
        writing.lock().connection.connection.driver_connection.rollback()
        with pytest.raises(StoreError, match="rolled back"):
            writing.commit()
    assert len(ledgers.read("a")) == 1


def test_nothing_is_written_after_the_commit(ledgers: Ledgers) -> None:
    """What came after the commit would be in no transaction; it is refused."""
    with ledgers.writing("a") as writing:
        writing.append("a", entries(0, 1))
        writing.commit()
        with pytest.raises(StoreError, match="ended"):
            writing.append("a", entries(1, 2))
        with pytest.raises(StoreError, match="ended"):
            writing.erase_texts("a", 0, ["purpose"])
    assert len(ledgers.read("a")) == 1


def test_who_comes_second_decides_again(place: Place, ledgers: Ledgers) -> None:
    """Of many who each append what they decided from the head that they locked, all succeed, one
    after another: no event is lost, doubled or out of place. On a new ledger, which has no head to
    lock, whoever comes second may be told that it Moved, and then succeeds too.
    """
    others = [open_ledgers(place.url) for _ in range(3)]
    failures: list[BaseException] = []

    def work(mine: Ledgers, ledger: str) -> None:
        done = 0
        while done < 10:
            try:
                with mine.writing(ledger) as writing:
                    at = writing.head(ledger).size
                    writing.append(ledger, entries(at, at + 1))
                    writing.commit()
                    done += 1
            except Moved:
                continue
            except BaseException as error:  # noqa: BLE001 shown below
                failures.append(error)
                return

    threads = [
        threading.Thread(target=work, args=(mine, ledger))
        for mine in (ledgers, *others)
        for ledger in ("a", "a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine in others:
        mine.close()
    assert failures == []
    for ledger, size in (("a", 80), ("b", 40)):
        bodies = [stored.body for stored in ledgers.stream(ledger)]
        assert bodies == [entry.body for entry in entries(0, size)]
        assert ledgers.head(ledger) == Tree().grown(map(leaf_hash, bodies))[0]


def test_a_lock_on_one_ledger_lets_everybody_read(place: Place, ledgers: Ledgers) -> None:
    """While somebody holds a ledger's head, all of it is read."""
    append(ledgers, "a", 0, 3)
    with place.hold("a"):
        assert (ledgers.head("a").size, len(ledgers.read("a"))) == (3, 3)
        assert ledgers.names() == ["a"]
        ledgers.check()


def test_checkpoints_are_kept_once(ledgers: Ledgers) -> None:
    """A checkpoint's number and a witness's line are taken once; they are read in order, each
    checkpoint with its cosignatures.
    """
    with ledgers.writing("a") as writing:
        for number in range(3):
            writing.keep_signed("a", Signed(number, number + 1, b"note %d\n" % number))
        writing.keep_cosignature("a", 1, "w2", "second\n")
        writing.keep_cosignature("a", 1, "W1", "first\n")
        writing.commit()
    for again in (0, 2):
        with pytest.raises(StoreError), ledgers.writing("a") as writing:
            writing.keep_signed("a", Signed(again, 9, b"another"))
    with pytest.raises(StoreError), ledgers.writing("a") as writing:
        writing.keep_cosignature("a", 1, "w2", "another\n")
    assert [s.note for s in ledgers.signed("a")] == [b"note 0\n", b"note 1\n", b"note 2\n"]
    assert ledgers.signed("a", 1, 2) == [
        Signed(1, 2, b"note 1\n", (("W1", "first\n"), ("w2", "second\n")))
    ]
    assert ledgers.last_signed("a") == Signed(2, 3, b"note 2\n")
    assert (ledgers.signed("b"), ledgers.last_signed("b")) == ([], None)


def test_texts_can_be_erased_and_nothing_else(ledgers: Ledgers, place: Place) -> None:
    """Texts are kept in their own words and erased one by one; the events stay, and who would keep
    a second text in a field writes nothing.
    """
    words = [
        Text(0, "justification", sha256(b"1").digest(), "für «alle» \U0001f9ee\n"),
        Text(0, "purpose", b"salt", "x" * 20_000),
        Text(1, "purpose", b"", ""),
    ]
    with ledgers.writing("a") as writing:
        writing.append("a", entries(0, 2), words)
        writing.commit()
    assert ledgers.texts("a", 0, 9) == words
    with ledgers.writing("a") as writing:
        writing.erase_texts("a", 0, ["purpose"])
        assert writing.texts("a", 0, 0) == words[:1]
        writing.commit()
    assert ledgers.finish_erasing()
    assert ledgers.texts("a", 0, 9) == [words[0], words[2]]
    with pytest.raises(StoreError), ledgers.writing("a") as writing:
        writing.append("a", entries(2, 3), words[:1])
    assert len(ledgers.read("a")) == 2


@given(
    times=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6),
    body=st.binary(min_size=1),
    text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60),
)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_column_holds_is_kept(
    ledgers: Ledgers, times: list[int], body: bytes, text: str
) -> None:
    """Any number, bytes and text of the columns comes back as it was, in however many rows; what
    is no number of the database is refused, and nothing is written.
    """
    name = f"l{len(ledgers.names())}"
    rows = [Entry(n, f"{text}.v1", time, body) for n, time in enumerate([*times, 0])]
    texts = [Text(n, "purpose", body, text) for n in range(len(times))]
    with ledgers.writing(name) as writing:
        writing.append(name, rows, texts)
        stored = (
            writing.lock()
            .connection.exec_driver_sql(
                f"SELECT sequence, type, time, body FROM event WHERE ledger = '{name}' ORDER BY 1"
            )
            .all()
        )
        assert [Entry(*row) for row in stored] == rows
        assert writing.texts(name, 0, len(times)) == texts
        writing.commit()
    too_large = Entry(len(rows), "x.y.v1", 2**63, body)
    wrong = pytest.raises((StoreError, OverflowError, struct.error))
    with wrong, ledgers.writing(name) as writing:
        writing.append(name, [too_large])
    assert len(ledgers.read(name)) == len(rows)


def test_no_password_in_an_error() -> None:
    """What goes wrong with a URL is told without its password."""
    for url in (
        "postgresql://u:sec/ret@127.0.0.1:1/x",
        "postgresql://u:secret@127.0.0.1:port/x",
        "postgresql://u:secret@127.0.0.1:1/x?connect_timeout=1",
        "postgresql://u:secret@127.0.0.1:1/x?sslmode=nonsense",
        "mysql://u:secret@127.0.0.1/x",
        "u:secret@/",
    ):
        with pytest.raises((ValueError, StoreError)) as failure:
            open_ledgers(url).names()
        chain: BaseException | None = failure.value
        assert "sec" not in str(chain).replace("seconds", "")
    assert "secret" not in repr(open_ledgers("postgresql://u:secret@127.0.0.1:1/x"))


def test_a_copy_of_the_data_is_the_same_ledger(world: Callable[..., World], place: Place) -> None:
    """A service on a database that was put back as it is goes on, with connections that broke."""
    made = world().hospital()
    hundredth(made.service, "p", "k")
    before = everything(place)
    place.backup()
    place.restore()
    assert everything(place) == before
    assert hundredth(made.service, "p", "k2").sequence == 5
