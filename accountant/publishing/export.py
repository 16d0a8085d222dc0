"""Writing a ledger as evidence: a bundle for an auditor, or tiles for any C2SP client."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO

import orjson

from accountant.auditing.texts import ERASED
from accountant.auditing.totals import totals_of
from accountant.budget.apply import follow
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.state import State
from accountant.ledger import bundle
from accountant.ledger.events import Event, canonical
from accountant.ledger.tiles import WIDTH, Tile, pack_entries, tiles_of
from accountant.publishing.log import Log
from accountant.store.ledgers import Ledgers, Signed, StoreError, Text
from accountant.store.whole import whole

Progress = Callable[[int], None]  # Called with the number of entries that were just written


def covering(first: int, last: int | None, size: int) -> range:
    """Return the range of whole entry bundles with events ``first`` to ``last``. Raises Invalid."""
    end = size if last is None else last + 1
    if not 0 <= first < end <= size:
        raise Invalid(
            "no-such-events", f"the ledger has events 0 to {size - 1}, not {first} to {end - 1}"
        )
    return range(first // WIDTH * WIDTH, min(size, -(-end // WIDTH) * WIDTH))


def write_bundle(
    out: IO[bytes],
    ledgers: Ledgers,
    ledger: str,
    signed: Signed,
    state: State,
    entries: range,
    *,
    with_texts: bool = True,
    progress: Progress = lambda _: None,
) -> None:
    """Write the ledger up to ``signed`` as a bundle (docs/evidence.md). ``state`` is the state
    after its events (``Publisher.signed_state``), or a later one, which costs a replay. Raises
    Conflict if a text is erased meanwhile: the bundle could not show why it is missing.
    """
    log, head = Log(ledgers, ledger), signed.head
    files = _small_files(ledgers, ledger, signed, state)
    manifest = bundle.Manifest(
        engine=state.custody.engine_at(head.size - 1),
        entries=bundle.Entries(entries.start, len(entries)),
        files=[bundle.File(name, sha256(data).hexdigest(), len(data)) for name, data in files],
        format=bundle.FORMAT,
        ledger=ledger,
        origin=head.origin,
        texts=with_texts,
        tree=bundle.Head(base64.b64encode(head.root).decode(), head.size),
    )
    bundle.write_member(out, bundle.MANIFEST, manifest.to_bytes())
    for name, data in files:
        bundle.write_member(out, name, data)
    for tile in tiles_of(head.size):
        bundle.write_member(out, tile.path, log.tile(tile, head.size))
    for first in range(entries.start, entries.stop, WIDTH):
        tile = Tile.of(None, first // WIDTH, head.size)
        bundle.write_member(out, tile.path, log.tile(tile, head.size))
        last = first + tile.width - 1
        if with_texts and (texts := ledgers.texts(ledger, tile.first, last)):
            bundle.write_member(out, bundle.texts_member(tile.path), _lines(texts))
        progress(tile.width)
    if with_texts and any(row.body.endswith(ERASED) for row in ledgers.stream(ledger, head.size)):
        raise Conflict("text-erased", "a text was erased during the export: export again")
    out.write(bundle.END)


def _small_files(
    ledgers: Ledgers, ledger: str, signed: Signed, state: State
) -> list[tuple[str, bytes]]:
    """Return the members before the tiles. Raises StoreError if checkpoints are missing."""
    keys = [key.text + "\n" for key in state.custody.keys if key.sequence < signed.size]
    packs = []
    for first in range(0, signed.number + 1, WIDTH):
        end = min(first + WIDTH, signed.number + 1)
        page = ledgers.signed(ledger, first, end)
        if len(page) != end - first:
            raise StoreError(f"of the checkpoints {first} to {end - 1} not all are there")
        packs.append(pack_entries(one.full for one in page))
    # Read from its pack, so that both have the same cosignatures: more may come at any moment.
    last = bundle.checkpoints_of(packs[-1])[-1]
    policies = {}
    for sequence in state.custody.policies:
        if sequence < signed.size:
            [row] = ledgers.read(ledger, sequence, 1)
            data = canonical(Event.from_bytes(row.body).body["command"]["policy"])
            policies[bundle.policy_member(sha256(data).hexdigest())] = data
    if state.sequence != signed.size:  # it is the present state
        state = State(ledger)
        for row in islice(ledgers.stream(ledger), signed.size):
            follow(state, row.body)
    return [
        (bundle.KEYS, "".join(keys).encode()),
        (bundle.CHECKPOINT, last),
        (bundle.TOTALS, totals_of(state)),
        *((bundle.pack_member(number), pack) for number, pack in enumerate(packs)),
        *sorted(policies.items()),
    ]


def _lines(texts: Iterable[Text]) -> bytes:
    documents = (text._asdict() | {"salt": text.salt.hex()} for text in texts)
    return b"".join(orjson.dumps(one, option=orjson.OPT_SORT_KEYS) + b"\n" for one in documents)


def write_tiles(
    folder: Path, ledgers: Ledgers, ledger: str, signed: Signed, progress: Progress
) -> None:
    """Write the log as plain files, the checkpoint last. Full tiles that exist never change."""
    log, size = Log(ledgers, ledger), signed.size
    for tile in (*tiles_of(size), *tiles_of(size, entries=True)):
        path = folder / tile.path
        if tile.width < WIDTH or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            data = log.tile(tile, size)
            with whole(path, durable=False) as file:
                file.write(data)
        if tile.level is None:
            progress(tile.width)
    with whole(folder / "checkpoint", durable=False) as file:
        file.write(signed.full)
