"""What ``export`` writes, to the byte, and that ``verify`` notices whatever is changed in it."""

from __future__ import annotations

import base64
import io
import os
import random
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import orjson
import pytest
from effort import examples
from forger import members_of, packed
from here import accountant
from house import ORIGIN, House, audit, eventful, many, reasons, resident
from hypothesis import given
from hypothesis import strategies as st
from support import Clock

from accountant.ledger import bundle
from accountant.ledger.tiles import pack_entries, unpack_entries

SEED = 20261121


@pytest.fixture(scope="module")
def home(shared: Callable[..., House]) -> House:
    """A ledger with events of all types."""
    return eventful(shared(clock=Clock()))


@pytest.fixture(scope="module")
def data(home: House) -> bytes:
    """Its bundle."""
    return home.bundle()


def test_the_content_is_as_documented(home: House, data: bytes) -> None:
    """Members in their order, with what docs/evidence.md says that they hold."""
    members = members_of(data)
    names, held = [name for name, _ in members], dict(members)
    manifest = orjson.loads(held["manifest.json"])
    size = home.head().size
    policies = sorted(name for name in names if name.startswith("policies/"))
    assert names == [
        *("manifest.json", "keys", "checkpoint", "totals.json"),
        "checkpoints/000",
        *policies,
        *(f"tile/0/000.p/{size}", f"tile/entries/000.p/{size}", "texts/000"),
    ]
    assert len(policies) == 2
    for name in policies:
        assert name == f"policies/{sha256(held[name]).hexdigest()}.json"
    assert list(unpack_entries(held[f"tile/entries/000.p/{size}"])) == home.stored()
    leaves = [sha256(b"\x00" + body).digest() for body in home.stored()]
    assert held[f"tile/0/000.p/{size}"] == b"".join(leaves)
    notes = list(unpack_entries(held["checkpoints/000"]))
    assert notes == [signed.full for signed in home.service.ledgers.signed("fair")]
    assert (len(notes), notes[-1]) == (4, held["checkpoint"])
    assert held["keys"].decode().split("\n") == [*audit(data).keys, ""]
    files = names[1 : names.index(f"tile/0/000.p/{size}")]
    assert manifest == {
        "engine": 1,
        "entries": {"count": size, "first": 0},
        "files": [
            {"path": n, "sha256": sha256(held[n]).hexdigest(), "size": len(held[n])} for n in files
        ],
        "format": "accountant-bundle/1",
        "ledger": "fair",
        "origin": f"{ORIGIN}/fair",
        "texts": True,
        "tree": {"root": base64.b64encode(home.head().root).decode(), "size": size},
    }
    sequences = [orjson.loads(line)["sequence"] for line in held["texts/000"].splitlines()]
    assert sequences == [6, 8, 12, 23, 25, 26]


def test_it_is_a_plain_archive(data: bytes) -> None:
    """Any tar program reads it, and every header has the documented fields."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        entries = archive.getmembers()
        for entry in entries:
            assert (entry.mode, entry.uid, entry.gid, entry.mtime) == (0o644, 0, 0, 0)
            assert (entry.uname, entry.gname, entry.type) == ("", "", tarfile.REGTYPE)
        read = [(e.name, archive.extractfile(e).read()) for e in entries]  # type: ignore[union-attr]
    assert read == members_of(data)
    assert packed(read) == data
    assert data[257:265] == b"ustar\x0000"
    assert data[-1024:] == bytes(1024)
    assert data[-1025] != 0 or data[-1536:-1024] != bytes(512)


def test_the_same_ledger_gives_the_same_bytes(home: House, data: bytes, tmp_path: Path) -> None:
    """Again, after a restart, and from the command line in another process with another hash seed,
    the bundle is the same to the byte; and its verification exits with 0.
    """
    assert home.bundle() == data
    again = home.again()
    assert again.bundle() == data
    again.close()
    environment = os.environ | {"PYTHONHASHSEED": "1", "ACCOUNTANT_HOME": str(home.home)}
    file = tmp_path / "bundle.tar"
    run = [sys.executable, "-m", "accountant", "export", "--population", "fair", str(file)]
    subprocess.run(run, env=environment, check=True, capture_output=True)
    assert file.read_bytes() == data
    assert accountant("verify", str(file)).code == 0
    file.write_bytes(data[:-600] + b"x" + data[-599:])
    assert accountant("verify", str(file)).code == 1


def is_found(data: bytes) -> bool:
    """True if the verification has something to say, without failing itself."""
    verdict = audit(data)
    return verdict.count >= 1 and not any("the check itself" in said for said in reasons(verdict))


def test_every_changed_byte_is_found(data: bytes) -> None:
    """Some hundred bytes in all parts of a small bundle, changed in one bit or in all."""
    dice = random.Random(SEED)  # noqa: S311
    written = [place for place, byte in enumerate(data) if byte]
    for place in dice.sample(written, examples(120)) + dice.sample(range(len(data)), examples(30)):
        mask = dice.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])
        assert is_found(data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :])


@given(st.data())
def test_any_replaced_stretch_is_found(data: bytes, draw: st.DataObject) -> None:
    """Some bytes replaced by others, of the same or another length, anywhere."""
    first = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(first, min(len(data), first + 2_000)))
    other = draw.draw(st.binary(max_size=1_500))
    changed = data[:first] + other + data[end:]
    if changed != data:
        assert is_found(changed)


def test_a_name_that_is_no_text_is_found(data: bytes) -> None:
    """A byte of the name of a sealed text that leaves no UTF-8 is a finding, not a failed check."""
    for name in (b'"reason":{"sealed"', b'"purpose":{"sealed"'):
        place = data.index(name) + 6
        assert is_found(data[:place] + b"\xee" + data[place + 1 :])


def test_every_truncation_is_found(data: bytes) -> None:
    """A bundle that ends at any block, or anywhere else, before its end."""
    dice = random.Random(SEED)  # noqa: S311
    for end in {*range(0, len(data), 512), *dice.sample(range(len(data)), 60), len(data) - 1}:
        assert is_found(data[:end])


def test_anything_appended_is_found(data: bytes) -> None:
    """Bytes after the end, zeros too, and members before it."""
    for more in (b"\0", b"x", bytes(512), bytes(1024), data):
        assert is_found(data + more)
    members = members_of(data)
    for name in (
        "evil",
        "tile/0/001",
        "texts/001",
        "keys2",
        "policies/x.json",
        "checkpoints/001",
    ):
        assert is_found(packed([*members, (name, b"")]))
        assert is_found(packed([members[0], (name, b"x"), *members[1:]]))


def test_members_are_there_once_in_their_order(data: bytes) -> None:
    """Any member left out, doubled, emptied or moved is found."""
    members = members_of(data)
    for at, (name, content) in enumerate(members):
        assert is_found(packed(members[:at] + members[at + 1 :]))
        assert is_found(packed([*members[: at + 1], *members[at:]]))
        assert is_found(packed([*members, (name, content)]))
        assert is_found(packed([*members[:at], (name, b""), *members[at + 1 :]]))
        for other in range(at):
            swapped = list(members)
            swapped[at], swapped[other] = members[other], members[at]
            assert is_found(packed(swapped))


def claims(members: list[tuple[str, bytes]], **changed: object) -> bytes:
    """The bundle with other claims in its manifest."""
    manifest = orjson.loads(members[0][1]) | changed
    return packed([("manifest.json", bundle_json(manifest)), *members[1:]])


def bundle_json(document: object) -> bytes:
    """Canonical JSON, of whatever."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def test_a_manifest_claims_nothing_else(data: bytes) -> None:
    """Other claims about engine, ledger, origin, texts, tree or entries are found."""
    members = members_of(data)
    manifest = orjson.loads(members[0][1])
    tree, entries, files = manifest["tree"], manifest["entries"], manifest["files"]
    size = tree["size"]
    assert claims(members) == data
    for changed in (
        {"engine": 0},
        {"engine": 2},
        {"engine": "1"},
        {"ledger": "other"},
        {"origin": "example.org/other"},
        {"texts": False},
        {"format": "accountant-bundle/2"},
        {"more": 1},
        {"tree": tree | {"size": size - 1}},
        {"tree": tree | {"size": True}},
        {"tree": tree | {"root": tree["root"][::-1]}},
        {"entries": entries | {"count": size - 1}},
        {"entries": entries | {"count": 0}},
        {"entries": entries | {"first": 256}},
        {"entries": entries | {"first": -256}},
        {"entries": {}},
        {"files": files[:-1]},
        {"files": files[::-1]},
        {"files": [*files, files[-1]]},
        {"files": [*files, {"path": "evil", "sha256": "", "size": 0}]},
        {"files": [*files, {"path": ["list"], "sha256": "", "size": 0}]},
        {"files": [file | {"size": 1} for file in files]},
        {"files": [{"path": f["path"], "sha256": f["sha256"]} for f in files]},
        {"files": [1]},
    ):
        assert is_found(claims(members, **changed))


def test_a_checkpoint_cannot_be_left_out(data: bytes) -> None:
    """A checkpoint that is dropped from its pack leaves another one than the manifest's, and the
    pack one without any.
    """
    members = members_of(data)
    manifest = orjson.loads(members[0][1])
    notes = list(unpack_entries(dict(members)["checkpoints/000"]))
    for number in range(4):
        changed = {"checkpoints/000": pack_entries(notes[:number] + notes[number + 1 :])}
        assert is_found(packed(list((dict(members) | changed).items())))
    files = [file for file in manifest["files"] if file["path"] != "checkpoints/000"]
    assert is_found(claims([m for m in members if m[0] != "checkpoints/000"], files=files))


def test_a_ledger_may_grow_while_it_is_exported(house: Callable[..., House]) -> None:
    """A bundle ends at its checkpoint, its totals included, whatever was appended since."""
    made = resident(house(clock=Clock()))
    made.grant()
    before = made.bundle()
    made.grant("0.002")
    assert made.bundle(sign=False) == before
    assert reasons(audit(before)) == []


def test_no_claim_takes_memory_or_time(data: bytes) -> None:
    """A manifest that claims a tree of 2**40 entries, headers that claim huge members, deep and
    long JSON: a finding each, in a moment.
    """
    members = members_of(data)
    manifest = orjson.loads(members[0][1])
    tree, entries = manifest["tree"], manifest["entries"]
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for size in (2**32, 2**40 - 256, 2**40, 2**52, 2**53 - 1):
        assert is_found(claims(members, tree=tree | {"size": size}))
        whole = entries | {"count": size}
        assert is_found(claims(members, tree=tree | {"size": size}, entries=whole))
    for deep in (b"[" * 100_000, b'{"a":' * 100_000, b"[" * 10**6 + b"]" * 10**6, b"9" * 10**6):
        assert is_found(packed([("manifest.json", deep), *members[1:]]))
    texts = dict(members)["texts/000"]
    for line in (b"[" * 10**6, b'{"a":' * 900, b'{"salt":' + b"1" * 10**6 + b"}", b"\n" * 10**5):
        assert is_found(packed([*members[:-1], ("texts/000", texts + line + b"\n")]))
    for size in (b"77777777777", b"00000000-01", b"0o000000001", b"\xff" * 11):
        assert is_found(data[:124] + size + data[135:])
    assert time.process_time() - start < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kilobytes


def test_what_a_finding_quotes_is_cut(data: bytes) -> None:
    """However long the text that is wrong, a finding keeps a thousand characters of it."""
    [finding] = audit(claims(members_of(data), format="x" * 10**6)).findings
    assert len(finding.reason) == 1_000


def test_findings_without_number_are_counted_not_kept(house: Callable[..., House]) -> None:
    """A ledger with a wrong byte in every event, each with a long text in it, has all findings
    counted, and what is kept of each is short.
    """
    made = many(resident(house(clock=Clock())), 700)
    members = members_of(made.bundle())
    wrong = [
        (name, content.replace(b'"kind":"laplace"', b'"kind":"laplac!"'))
        if name.startswith("tile/entries/")
        else (name, content)
        for name, content in members
    ]
    verdict = audit(packed(wrong))
    assert verdict.count >= 700
    assert max(len(finding.reason) for finding in verdict.findings) <= 1_000


@given(st.binary(max_size=3_000))
def test_any_bytes_are_no_bundle(data: bytes) -> None:
    """Whatever is given to ``verify`` as a bundle or an earlier checkpoint: findings."""
    assert is_found(data)
    assert is_found(data + bytes(-len(data) % 512) + bundle.END)
