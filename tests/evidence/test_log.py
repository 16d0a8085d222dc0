"""The log as a client of nobody here reads it: from the checkpoint, tiles and receipts alone."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundles import leaf_of, root_of, sha256
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from house import House, audit, many, resident
from support import ask, client_of, laplace

from accountant.publishing.export import write_tiles

Fetch = Callable[[str], bytes]


def place(number: int, width: int) -> str:
    """How the tile layout spells a number: groups of three digits, then how wide a part."""
    groups = [f"{number // 1000**i % 1000:03d}" for i in range(2, -1, -1)]
    while len(groups) > 1 and groups[0] == "000":
        groups.pop(0)
    name = "/".join([*("x" + group for group in groups[:-1]), groups[-1]])
    return name + (f".p/{width}" if width < 256 else "")


def opened(note: bytes, key: str) -> tuple[str, int, bytes]:
    """Origin, size and root of a checkpoint that ``key`` has signed."""
    text, lines = note.decode().split("\n\n")
    name, _, material = key.split("+", 2)
    signatures = [line.split(" ") for line in lines.splitlines()]
    [blob] = [base64.b64decode(b64) for dash, signer, b64 in signatures if signer == name]
    public = base64.b64decode(material)
    assert blob[:4] == sha256(name.encode() + b"\n" + public)[:4]
    Ed25519PublicKey.from_public_bytes(public[1:]).verify(blob[4:], text.encode() + b"\n")
    origin, size, root = text.split("\n")
    return origin, int(size), base64.b64decode(root)


def read(fetch: Fetch, key: str) -> list[bytes]:
    """All entries of a log, each checked against its leaf hash, and all against the root."""
    origin, size, root = opened(fetch("checkpoint"), key)
    assert origin == key.split("+", maxsplit=1)[0]
    entries: list[bytes] = []
    for first in range(0, size, 256):
        width = min(256, size - first)
        where = place(first // 256, width)
        data, hashes = fetch(f"tile/entries/{where}"), fetch(f"tile/0/{where}")
        while data:
            length = int.from_bytes(data[:2], "big")
            entries.append(data[2 : 2 + length])
            data = data[2 + length :]
        assert hashes == b"".join(map(leaf_of, entries[first:]))
    assert len(entries) == size
    leaves, level = [leaf_of(entry) for entry in entries], 0
    assert root_of(leaves) == root
    while len(leaves) >= 256:
        leaves = [root_of(leaves[at : at + 256]) for at in range(0, len(leaves) // 256 * 256, 256)]
        level += 1
        tiles = [leaves[at : at + 256] for at in range(0, len(leaves), 256)]
        for number, tile in enumerate(tiles):
            assert fetch(f"tile/{level}/{place(number, len(tile))}") == b"".join(tile)
    return entries


def over_http(client: Any, **headers: str) -> Fetch:
    """Reads from the service."""

    def fetch(path: str) -> bytes:
        answer = client.get(f"/v1/populations/fair/log/{path}", headers=headers)
        assert answer.status_code == 200, (path, answer.text)
        cache = answer.headers["cache-control"]
        full = path.startswith("tile/") and ".p/" not in path
        assert ("immutable" in cache) is full, path
        return bytes(answer.content)

    return fetch


@pytest.mark.parametrize("count", [0, 251, 252, 700])
def test_anybody_reads_the_log(house: Callable[..., House], tmp_path: Path, count: int) -> None:
    """From the service, and from a folder of plain files that grows with it, a client that knows
    the layout and the key reads every entry; around a full tile too.
    """
    made = many(resident(house()), count) if count else resident(house())
    folder = tmp_path / "tiles"
    for _ in range(2):
        assert made.publisher.publish("fair") is not None
        key = audit(made.bundle()).keys[-1]
        signed = made.sign()
        assert read(over_http(made.http), key) == made.stored()
        write_tiles(folder, made.service.ledgers, "fair", signed, lambda _: None)
        assert read(lambda path: (folder / path).read_bytes(), key) == made.stored()
        assert not [path for path in folder.rglob(".*") if path.is_file()]
        made.grant()


def test_nothing_beyond_the_checkpoint_is_served(house: Callable[..., House]) -> None:
    """What is not published yet has no tile; nor have places that are none."""
    made = many(resident(house()), 300)
    assert made.publisher.publish("fair") is not None
    size = made.head().size
    made.grant()
    wrong = [
        *(f"0/001.p/{size - 255}", f"entries/001.p/{size - 255}", "0/001", "1/000", "1/000.p/2"),
        *("2/000.p/1", "0/000.p/0", "0/0", "0/x000/000", "0/000.p/256", "-1/000"),
        *("63/000.p/1", "0/x999/x999/x999/x999/x999/x999/999", "entries/999.p/1"),
    ]
    for path in wrong:
        assert made.get(f"/log/tile/{path}").status_code == 404, path
    for path in ("0/000", f"0/001.p/{size - 256}", "0/001.p/1", "1/000.p/1", "entries/000"):
        assert made.get(f"/log/tile/{path}").status_code == 200, path


def test_who_may_read_the_log(house: Callable[..., House]) -> None:
    """Unless the log is public, only those who oversee read it; whatever the setting, a pipeline
    gets receipts of its own events only, and nobody without a key gets any.
    """
    made = resident(house())
    mine = made.post("/invocations", ask(laplace("0.001"))).json()["sequence"]
    made.publisher.publish("fair")
    private = replace(made.settings, public_log=False)
    client = client_of(made.service, private, made.publisher)
    prefix = "/v1/populations/fair"
    for path in ("/log/checkpoint", "/log/tile/0/000.p/1", "/log/tile/entries/000.p/1"):
        assert made.http.get(prefix + path).status_code == 200
        assert client.get(prefix + path).status_code == 401
        for who, status in (("pipeline", 403), ("auditor", 200), ("officer", 200), ("admin", 200)):
            answer = client.get(prefix + path, headers=made.auth(who))
            assert answer.status_code == status, (who, path)
    assert made.http.get(f"{prefix}/receipts/0").status_code == 401
    assert made.get("/receipts/0", who="pipeline").status_code == 403
    assert made.get(f"/receipts/{mine}", who="pipeline").status_code == 200
    assert made.get("/receipts/9999999").status_code == 404
    client.close()


def test_receipts_prove_their_events(house: Callable[..., House]) -> None:
    """A receipt has the lines of tlog-proof; its hashes lead from the event's bytes to the root of
    the checkpoint, as RFC 9162 walks them.
    """
    made = many(resident(house()), 297)
    signed = made.publisher.publish("fair")
    assert signed is not None
    key = audit(made.bundle()).keys[-1]
    bodies = made.stored()
    for sequence in (0, 1, 255, 256, 257, signed.size - 1):
        receipt = made.get(f"/receipts/{sequence}").content
        head, _, note = receipt.partition(b"\n\n")
        magic, index, *hashes = head.decode().split("\n")
        assert (magic, index) == ("c2sp.org/tlog-proof@v1", f"index {sequence}")
        _, size, root = opened(note, key)
        found, position, last = leaf_of(bodies[sequence]), sequence, size - 1
        for step in map(base64.b64decode, hashes):
            if position % 2 or position == last:
                found = sha256(b"\x01" + step + found)
                while position and position % 2 == 0:
                    position, last = position // 2, last // 2
            else:
                found = sha256(b"\x01" + found + step)
            position, last = position // 2, last // 2
        assert (last, found) == (0, root)
        assert made.get(f"/events/{sequence}").content == bodies[sequence]
