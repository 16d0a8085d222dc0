"""What is kept of reads of data, whichever database it is in."""

from __future__ import annotations

from accountant.store.ledgers import DataRead, Ledgers
from accountant.store.opening import open_ledgers

ROWS = [DataRead("d", f"r{n}", "a job", "me", n, n, "g1" if n % 2 else "") for n in range(100)]


def _note(ledgers: Ledgers, rows: list[DataRead], most: int) -> None:
    with ledgers.writing("a") as writing:
        writing.note_reads("a", rows, most)
        writing.commit()


def test_so_many_reads_are_kept_and_no_more(database: str) -> None:
    """Where there are too many the oldest go, first those that had a grant; of another ledger none
    is touched; one that is noted again takes the place of what was known of it.
    """
    ledgers = open_ledgers(database)
    try:
        with ledgers.writing("b") as writing:
            writing.note_reads("b", ROWS[:2], 60)
            writing.commit()
        _note(ledgers, ROWS, 60)
        kept = ledgers.ungranted("a")
        assert [one.run for one in kept] == [f"r{n}" for n in range(98, -1, -2)]
        assert ledgers.ungranted("a", since=90, most=3) == kept[:3]
        _note(ledgers, [ROWS[0]._replace(last=7)], 40)
        kept = ledgers.ungranted("a")
        assert 30 < len(kept) <= 40
        assert kept[0].run == "r98"
        assert ledgers.count_ungranted("a") == len(kept)
        assert [one.run for one in ledgers.ungranted("b")] == ["r0"]
        _note(ledgers, [kept[0]._replace(granted="g7")], 40)
        assert ledgers.reads_of("a", "r98") == [kept[0]._replace(granted="g7")]
    finally:
        ledgers.close()
