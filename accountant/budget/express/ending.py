"""The express way of settlements: commits, releases and expiries of grants of known forms."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

from accountant.budget.commands import (
    Asked,
    Command,
    CommitGrant,
    ExpireGrant,
    ReleaseGrant,
)
from accountant.budget.express.forms import Held
from accountant.budget.express.reading import Read, key_at, unsealed
from accountant.budget.express.running import Running
from accountant.budget.express.settlements import ENDINGS, Settlement
from accountant.budget.express.stamps import Stamps
from accountant.ledger.events import Event

MOST_SETTLEMENTS: Final = 64
"""Ways to settle the grants of one form."""

_OF_GRANT: Final = b'"command":{"grant":"g'
_KEY: Final = b',"key":"'
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,15}")
_OF: Final = b'{"grant":"g'
_EXPIRED: Final = b"grant.expired.v1"
_KINDS: Final[dict[type[Command], bytes]] = {
    CommitGrant: b"grant.committed.v1",
    ReleaseGrant: b"grant.released.v1",
    ExpireGrant: b"grant.expired.v1",
}
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]{1,1000}")


class _Cut(NamedTuple):
    """What tells one settlement from another."""

    number: bytes
    held: Held
    how: tuple[bytes, bytes, bool]
    seals: tuple[bytes, ...]
    key_at: int
    command: bytes


class Ending:
    """How grants are settled."""

    def __init__(self, running: Running, stamps: Stamps) -> None:
        self._running, self._stamps = running, stamps

    def forget(self, running: Running) -> None:
        """Starts afresh; settlements are remembered with their forms."""
        self._running = running

    def decide(self, asked: Asked, now: int) -> tuple[str, bytes] | None:
        """Type and bytes of the event that settles a grant, whose key, if there is one, is new, and
        settles it; None if its words are not known.
        """
        kind, data = _KINDS[type(asked.command)], asked.canonical
        last = data.find(b'"', len(_OF))
        number = data[len(_OF) : last]
        plain = data.startswith(_OF) and _NUMBER.fullmatch(number)
        held = self._running.held.get(int(number)) if plain else None
        if held is None or (asked.key is not None and not _PLAIN.fullmatch(asked.key)):
            return None
        rest, seals = unsealed(data[last:])
        settlement = held.form.settlements.get((kind, rest, asked.key is not None))
        if settlement is None or (settlement.by or held.by) != asked.by:
            return None
        if (now >= held.expires) != (kind == _EXPIRED):
            return None
        about = self._about(settlement, held, kind)
        if about is None:
            return None
        sequence, key = b"%d" % self._running.state.sequence, (asked.key or "").encode()
        stamp, by = self._stamps.write(now), asked.by.encode()
        event = settlement.wording.filled([sequence, stamp, b"", key, number, by, b"", *seals, b""])
        self._running.settle(settlement, about, int(number), held)
        self._running.answered(asked.by, asked.key or "", asked.fingerprint if key else b"", now)
        return kind.decode(), event

    def take(self, read: Read) -> bool:
        """Settles a grant if the event is what has to come, in words that have come before."""
        cut = self._cut(read)
        settlement = cut.held.form.settlements.get(cut.how) if cut else None
        if cut is None or settlement is None:
            return False
        if (read.now >= cut.held.expires) != (read.kind == _EXPIRED):
            return False
        key: bytes | None = b""
        if cut.key_at:
            key = key_at(read.data, cut.key_at)
            answers = self._running.state.answers
            by = settlement.by or cut.held.by
            if key is None or answers.get(by, key.decode()) is not None:
                return False
        return self._settle(read, cut, settlement, key or b"")

    def _settle(self, read: Read, cut: _Cut, settlement: Settlement, key: bytes) -> bool:
        running, held = self._running, cut.held
        by = settlement.by or held.by
        sequence = b"%d" % running.state.sequence
        values = [sequence, read.stamp, b"", key, cut.number, by.encode(), b"", *cut.seals, b""]
        if settlement.wording.filled(values) != read.data:
            return False
        about = self._about(settlement, held, read.kind)
        if about is None:
            return False
        running.settle(settlement, about, int(cut.number), held)
        fingerprint = sha256(cut.command).digest() if key else b""
        running.answered(by, key.decode(), fingerprint, read.now)
        return True

    def learns(self, read: Read) -> bool:
        """A grant of a known form is settled in a way that is not known yet."""
        cut = self._cut(read)
        return cut is not None and cut.how not in cut.held.form.settlements

    def _about(self, settlement: Settlement, held: Held, kind: bytes) -> int | None:
        """What is kept of such a grant."""
        if held.by not in settlement.abouts:
            dataset, ending = held.form.request.dataset, ENDINGS[kind]
            settlement.abouts[held.by] = self._running.state.grants.about(held.by, dataset, ending)
        return settlement.abouts[held.by]

    def take_decided(self, read: Read, event: Event) -> bool:
        """Settles a grant as it was decided at length, if that can be told; the next one of its
        words need not be.
        """
        cut = self._cut(read)
        key = event.body.get("key", "")
        if cut is None or not isinstance(key, str) or not key.isascii() or len(cut.seals) > 1:
            return False
        form = cut.held.form
        settlement = form.settlements.get(cut.how)
        if settlement is None:
            if len(form.settlements) >= MOST_SETTLEMENTS:
                return False
            try:
                settlement = Settlement(form, event)
            except ValueError:
                return False
        if not self._settle(read, cut, settlement, key.encode()):
            return False
        form.settlements[cut.how] = settlement
        return True

    def _cut(self, read: Read) -> _Cut | None:
        data = read.data
        at = data.find(_OF_GRANT)
        first = at + len(_OF_GRANT)
        last = data.find(b'"', first)
        number = data[first:last]
        held = self._running.held.get(int(number)) if _NUMBER.fullmatch(number) else None
        if held is None:
            return None
        end = data.find(b',"grant":"g', last)
        rest, seals = unsealed(data[last:end])
        after = end + len(b',"grant":"g') + len(number) + 1
        keyed = data.startswith(_KEY, after)
        how = (read.kind, rest, keyed)
        command = data[at + len(b'"command":') : end]
        return _Cut(number, held, how, seals, after + len(_KEY) if keyed else 0, command)
