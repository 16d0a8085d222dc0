"""The ledger as it is browsed: events as sentences, and one event with its bytes and its proof.

Reads what it shows, and nothing else, so that a page takes as long on any ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from accountant.console.facts.sentences import Sentence, sentence
from accountant.ledger.checkpoints import Receipt
from accountant.ledger.events import Event, rfc3339
from accountant.ledger.merkle import leaf_hash
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Ledgers, Stored

PER_PAGE: Final = 50
LOOKED_AT: Final = 2_000
"""Events that are read for one page at most, where few match."""
KINDS: Final[dict[str, tuple[str, Callable[[Sentence], bool]]]] = {
    "all": ("All events", lambda one: True),
    "decisions": ("Decisions", lambda one: one.decision),
    "trouble": ("Refused, flagged and over", lambda one: one.tone in ("over", "near")),
    "changes": ("Changes by people", lambda one: one.icon == "proposal"),
}
"""What may be shown, by its name in the address."""


class Browsed(Struct, frozen=True):
    """Events, the latest first; ``first``: the first that was looked at; ``size``: all events."""

    events: tuple[Sentence, ...]
    first: int
    size: int
    client: str
    kind: str


def browse(ledgers: Ledgers, name: str, before: int | None, kind: str, client: str) -> Browsed:
    """Return the events before sequence ``before`` (None: the latest) of a kind, by a client if one
    is named. Raise StoreError.
    """
    size = ledgers.head(name).size
    end = size if before is None else max(0, min(before, size))
    first, found, texts = end, list[Sentence](), _texts(ledgers, name)
    while first > 0 and len(found) < PER_PAGE and end - first < LOOKED_AT:
        page = min(2 * PER_PAGE, first)
        rows = ledgers.read(name, first - page, page)
        first -= page
        events = (Event.from_bytes(row.body) for row in rows)
        told = [  # in order, as texts are read page by page
            in_words(event, texts)
            for event in events
            if not client or client in (event.by, event.body["command"].get("client"))
        ]
        found += filter(KINDS[kind][1], reversed(told))
    if len(found) > PER_PAGE:
        found = found[:PER_PAGE]
        first = found[-1].sequence
    return Browsed(tuple(found), first, size, client, kind)


def _texts(ledgers: Ledgers, name: str) -> Texts:
    return Texts(partial(ledgers.texts, name))


def in_words(event: Event, texts: Texts) -> Sentence:
    """Return an event as a sentence, with its texts."""
    return sentence(texts.opened(event), rfc3339(event.time))


class Step(Struct, frozen=True):
    """A hash on the way to the root. ``side``: older or newer than what it is joined with."""

    side: str
    hash: str


class Seen(Struct, frozen=True):
    """One event: as a sentence, as bytes, and the way from its hash to a signed root; without a
    checkpoint that covers it ``size`` is None.
    """

    sentence: Sentence
    type: str
    by: str
    body: str
    length: int
    leaf: str
    kept: bool
    """The hash that was stored with it is that of its bytes."""
    steps: tuple[Step, ...] = ()
    size: int | None = None
    root: str = ""


def seen(row: Stored, texts: Texts, receipt: Receipt | None, root: bytes, size: int) -> Seen:
    """Return an event, with the proof of ``receipt`` that it is in the tree of ``size`` events with
    this ``root``.
    """
    event, leaf = Event.from_bytes(row.body), leaf_hash(row.body)
    return Seen(
        sentence=in_words(event, texts),
        type=event.type,
        by=event.by,
        body=row.body.decode(),
        length=len(row.body),
        leaf=leaf.hex(),
        kept=leaf == row.leaf,
        steps=() if receipt is None else steps_of(event.sequence, size, receipt.proof),
        size=None if receipt is None else size,
        root="" if receipt is None else root.hex(),
    )


def steps_of(index: int, size: int, proof: Sequence[bytes]) -> tuple[Step, ...]:
    """Return each hash of an inclusion proof, and on which side it stands (RFC 9162, 2.1.3.2)."""
    found, position, last = [], index, size - 1
    for step in proof:
        older = bool(position & 1) or position == last
        found.append(Step("older" if older else "newer", step.hex()))
        if older:
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        position, last = position >> 1, last >> 1
    return tuple(found)
