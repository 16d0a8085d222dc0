"""Where hashes and entries lie (tlog-tiles), and how entries are packed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accountant.ledger.tiles import WIDTH, Tile, pack_entries, tiles_of, unpack_entries

PATHS = [
    (Tile(0, 0), "tile/0/000"),
    (Tile(0, 0, 1), "tile/0/000.p/1"),
    (Tile(1, 999, 255), "tile/1/999.p/255"),
    (Tile(2, 1_000), "tile/2/x001/000"),
    (Tile(0, 1_234_067), "tile/0/x001/x234/067"),
    (Tile(None, 1_234_067, 8), "tile/entries/x001/x234/067.p/8"),
    (Tile(63, 0, 7), "tile/63/000.p/7"),
    (Tile(10, 10**9), "tile/10/x001/x000/x000/000"),
]

NO_PATHS = [
    *("", "tile", "tile/", "tile/0", "tile/0/", "tile/0/0", "tile/0/00", "tile/0/0000"),
    *("/tile/0/000", "tile/0/000/", "tile/0/000 ", "tile/0/000\n", "tile/00/000", "tile/64/000"),
    *("tile/-1/000", "tile/0/x000/001", "tile/0/001/002", "tile/0/x001", "tile/0/X001/000"),
    *("tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/300", "tile/0/000.p/01", "tile/0/000.p/"),
    *(
        "tile/0/000.p/-1",
        "tile/entry/000",
        "tile/entries",
        "tile/0/../000",
        "tile/0/٣٤٥",
        "TILE/0/000",
    ),
    *("tile/0/000.p/١", "tile/0/x٠٠١/000", "tile/data/000", "tile/0/000.p/1/2"),
]


@pytest.mark.parametrize(("tile", "path"), PATHS)
def test_places_are_spelled_as_in_the_layout(tile: Tile, path: str) -> None:
    """Each place has its one spelling, with groups of three digits."""
    assert tile.path == path
    assert Tile.from_path(path) == tile


@pytest.mark.parametrize("path", NO_PATHS)
def test_no_other_spelling_is_a_place(path: str) -> None:
    """What is not spelled as the layout spells it is no place."""
    with pytest.raises(ValueError, match=r"layout|spelled"):
        Tile.from_path(path)


@given(
    st.builds(
        Tile,
        st.one_of(st.none(), st.integers(0, 63)),
        st.integers(0, 10**20),
        st.integers(1, WIDTH),
    )
)
def test_paths_and_places_are_one_to_one(tile: Tile) -> None:
    """A place is found again under its path."""
    assert Tile.from_path(tile.path) == tile


@given(st.text(alphabet="tile/0123456789x.pentris٣ \n-", max_size=40))
@example("tile/0/" + "x999/" * 7 + "999")
@example("tile/0/" + "0" * 400)
def test_any_text_is_a_place_or_is_refused(path: str) -> None:
    """Whatever a client asks for, it is spelled right or a ValueError."""
    try:
        found = Tile.from_path(path)
    except ValueError:
        return
    assert found.path == path


@given(st.one_of(st.integers(0, 1_000), st.integers(65_000, 66_500), st.just(2**24 + 1)))
def test_the_tiles_of_a_tree_hold_each_hash_once(size: int) -> None:
    """The tiles of a tree cover every kept hash of every level, in order, without overlap; so do
    its entry bundles.
    """
    levels: dict[int | None, int] = {}
    order = []
    for tile in [*tiles_of(size), *tiles_of(size, entries=True)]:
        assert tile.first == levels.get(tile.level, 0)
        levels[tile.level] = tile.first + tile.width
        order.append(64 if tile.level is None else tile.level)
    expected = {level: size >> 8 * level for level in range(8) if size >> 8 * level}
    assert levels == expected | ({None: size} if size else {})
    assert order == sorted(order)


@given(st.lists(st.binary(max_size=400), max_size=300))
@example([b"", bytes(65_535)])
def test_packed_entries_come_out_again(entries: list[bytes]) -> None:
    """An entry bundle gives back its entries, empty ones and the longest included."""
    assert list(unpack_entries(pack_entries(entries))) == entries


@given(st.binary(max_size=600))
def test_any_bytes_are_a_bundle_or_are_refused(data: bytes) -> None:
    """Bytes that end within an entry are refused; all others are packed to the same bytes again."""
    try:
        entries = list(unpack_entries(data))
    except ValueError:
        return
    assert pack_entries(entries) == data


@pytest.mark.parametrize(
    "data", [b"\x00", b"\x00\x01", b"\x00\x01a\x00", b"\xff\xff" + bytes(65_534)]
)
def test_a_cut_off_bundle_is_refused(data: bytes) -> None:
    """A bundle that ends within an entry, or within a length, is no bundle."""
    with pytest.raises(ValueError, match="ends within"):
        list(unpack_entries(data))


def test_too_long_an_entry_cannot_be_packed() -> None:
    """A length is 16 bits: what is longer is an error, never a wrong length."""
    with pytest.raises(OverflowError):
        pack_entries([bytes(65_536)])
