"""The express way of requests: grants reserved or refused, and records of what ran.

Replay reads an event and compares (``take``); whoever decides asks for the bytes (``decide``). Both
come from the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import islice
from typing import Final, NamedTuple

from accountant.budget.commands import Asked, AskGrant, RecordInvocations
from accountant.budget.express.forms import Answer, Form, Held, sealed_in, values_of
from accountant.budget.express.known import NO_HOLES, Known, Template
from accountant.budget.express.reading import Holes, Read, hollowed, key_at
from accountant.budget.express.running import Running
from accountant.budget.express.stamps import Stamps
from accountant.budget.sealing import Opened, seal
from accountant.budget.state import asked_of
from accountant.ledger.events import MAX_BYTES, Event

MOST_FORMS: Final = 16_384
"""Of some five kilobytes each."""
REFUSED: Final = "grant.refused.v1"
ASKED: Final = frozenset({"grant.reserved.v1", REFUSED, "invocation.recorded.v1"})

_BY: Final = b'{"by":"'
_BATCH: Final = b'{"batch":'
_NEXT_BY: Final = b',"by":"'
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]{1,1000}")
_DECISION: Final = b',"decision":{"id":"d'
_COMMAND: Final = b'"command":{'
_AT_ONCE: Final = 500
"""Forms made of requests that come for the first time, before it has shown that they come again."""
_MOST_SEEN: Final = 100_000
_LONGEST_TEMPLATE: Final = 2_048
"""Bytes of a command that is remembered as a whole."""
_EXCHANGE: Final = 8
"""Requests answered from forms, for each form that takes the place of another."""


class Asking:
    """The forms of one ledger."""

    def __init__(self, running: Running, stamps: Stamps) -> None:
        self._running, self._stamps = running, stamps
        self._forms: dict[bytes, Form] = {}
        self._asked: dict[bytes, Form] = {}
        """The same forms, by the bytes of their command."""
        self._templates: dict[bytes, Template] = {}
        """The same forms too, by the bytes of what was asked, before its texts were sealed."""
        self._clients: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        """Who asks, by what stands for them: text that is its own JSON."""
        self._seen: set[int] = set()
        self._credit = _AT_ONCE

    def forget(self, running: Running) -> None:
        """Forgets all forms."""
        self._running = running
        self._forms.clear()
        self._asked.clear()
        self._templates.clear()

    def decide(self, asked: Asked, now: int) -> tuple[str, bytes] | None:
        """Type and bytes of the event that answers ``asked``, whose key is new, and books it; None
        if its words are not known.
        """
        known = self.known(asked) if asked.key is not None else None
        return self.answer(known, now) if known is not None else None

    def answer(self, known: Known, now: int) -> tuple[str, bytes] | None:
        """``decide`` for what is ``known`` already."""
        found = self._answered(known, now, b"")
        if found is None:
            return None
        answer, data = found
        held = Held(known.form, *known.rest(now))
        self._book(known.form, answer, held, known.key, known.fingerprint)
        return answer.event, data

    def item(self, asked: Asked, now: int, header: int) -> tuple[str, bytes] | None:
        """``decide`` for an item of the batch that begins at ``header``; None too if it would be
        refused.
        """
        known = self.known(asked)
        found = self._answered(known, now, b"%d" % header) if known is not None else None
        if known is None or found is None or found[0].event == REFUSED:
            return None
        answer, data = found
        self._book(known.form, answer, Held(known.form, *known.rest(now)), b"", b"")
        return answer.event, data

    def known(self, asked: Asked) -> Known | None:
        """What is asked, if its form is known, and who asks and the key are texts that are their
        own JSON.
        """
        form, holes = self._asked.get(asked.canonical), NO_HOLES
        if form is None or form.fingerprint is None:
            command, holes = hollowed(asked.canonical)
            form = self._asked.get(command) or self._asked.get(_of(asked.by, command))
        who, key = self._text(asked.by), _key(asked)
        if form is None or who is None or key is None:
            return None
        fingerprint = (form.fingerprint or asked.fingerprint) if key else b""
        return Known(form, asked.by, who, key, fingerprint, holes)

    def opened(self, asked: Asked, salt: Callable[[], bytes]) -> Known | None:
        """``known`` of what is not sealed yet, and has a key."""
        command = asked.canonical
        template = self._templates.get(command) or self._templates.get(_of(asked.by, command))
        who, key = self._text(asked.by), _key(asked)
        if template is not None and who is not None and key is not None:
            return template.known(asked.by, who, key, salt)
        sealed, opened = seal(self._running.state, asked, salt)
        known = self.known(sealed)
        if known is None:
            return None
        if len(known.holes.seals) == len(opened) and not known.holes.ran_at:
            self._learn(asked, known.form, sealed.canonical, opened)
        return known._replace(opened=opened)

    def _learn(self, asked: Asked, form: Form, sealed: bytes, opened: Mapping[str, Opened]) -> None:
        """Makes a template of what comes word for word the second time: texts may be new each."""
        seen, command = hash(asked.canonical), asked.canonical
        if seen not in self._seen:
            self._see(seen)
        elif len(command) <= _LONGEST_TEMPLATE:
            if len(self._templates) >= MOST_FORMS:
                self._templates.clear()
            own = form is not self._asked.get(hollowed(sealed)[0])
            place = _of(asked.by, command) if own else command
            self._templates[place] = Template(form, sealed, opened)

    def _see(self, seen: int) -> None:
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen.add(seen)

    def earned(self, answers: int) -> None:
        """So many requests were answered from forms."""
        self._credit += answers

    def _text(self, by: str) -> bytes | None:
        """Who asks; None if that is not its own JSON."""
        found = self._clients.get(by)
        if found is None and _PLAIN.fullmatch(by):
            if len(self._clients) >= _MOST_SEEN:
                self._clients.clear()
            found = self._clients[by] = by.encode()
        return found

    def _answered(self, known: Known, now: int, batch: bytes) -> tuple[Answer, bytes] | None:
        """What is answered, if its words were tried."""
        form, stamp = known.form, self._stamps.write(now)
        found = self._worded(form, now, stamp, known.key, batch, known.by, known.holes)
        if found is None or not found[0].tried or len(found[1]) > MAX_BYTES:
            return None
        return found

    def take(self, read: Read) -> bool:
        """Books the event if it is what has to come, in words that have come before."""
        parts = self._parted(read.data)
        form = self._form(parts) if parts else None
        if parts is None or form is None or parts.batch:
            return False
        key = key_at(read.data, read.data.rfind(b'"key":"', parts.end, read.stamp_at) + 7)
        answers = self._running.state.answers
        if key is None or answers.get(self._names[parts.by], key.decode()) is not None:
            return False
        answer = self._answer(form, read, parts, key)
        if answer is None or not answer.tried:
            return False
        self._read(form, answer, read, parts, key)
        return True

    def take_decided(self, read: Read, event: Event, asked: Asked | None) -> bool:
        """Books an event that was decided at length, if its form can be told; the next one of its
        words need not be. Raises ValueError for an item that is not the next one of its batch.
        """
        parts, state = self._parted(read.data), self._running.state
        key = event.body.get("key", "")
        if parts is None or not isinstance(key, str) or (state.batch is None) == bool(parts.batch):
            return False
        if bool(key) == bool(parts.batch) or (key and not _PLAIN.fullmatch(key)):
            return False
        form = self._form(parts) or self._new_form(parts, event, asked)
        if form is None:
            return False
        answer = self._answer(form, read, parts, key.encode())
        if answer is None:
            return False
        answer.tried = True
        if state.batch is not None:
            state.batch = state.batch.taken(event)
        self._read(form, answer, read, parts, key.encode())
        if asked is not None:
            command, _ = hollowed(asked.canonical)
            own = form is not self._forms.get(parts.head)
            self._asked[_of(asked.by, command) if own else command] = form
        return True

    def _parted(self, data: bytes) -> _Parts | None:
        batch, first = b"", len(_BY)
        if data.startswith(_BATCH):
            at = data.find(_NEXT_BY)
            batch, first = data[len(_BATCH) : at], at + len(_NEXT_BY)
        elif not data.startswith(_BY):
            return None
        end, by = data.find(_DECISION), data[first : data.find(b'"', first)]
        if by not in self._names:
            if key_at(data, first) is None:
                return None
            if len(self._names) >= _MOST_SEEN:
                self._names.clear()
            self._names[by] = by.decode()
        head, holes = hollowed(data[first + len(by) : end])
        return _Parts(by, head, holes, end, batch)

    def _form(self, parts: _Parts) -> Form | None:
        return self._forms.get(parts.head) or self._forms.get(parts.by + parts.head)

    def _answer(self, form: Form, read: Read, parts: _Parts, key: bytes) -> Answer | None:
        """The answer that has to be given, if it is the one that is read."""
        found = self._worded(form, read.now, read.stamp, key, parts.batch, parts.by, parts.holes)
        return found[0] if found is not None and found[1] == read.data else None

    def _worded(
        self, form: Form, now: int, stamp: bytes, key: bytes, batch: bytes, by: bytes, holes: Holes
    ) -> tuple[Answer, bytes] | None:
        """The answer that has to be given, alone or in the batch that begins at ``batch``, and its
        bytes; None if there is no fixed wording.
        """
        if not self._running.ready(form):
            return None
        try:
            expires = self._stamps.write(now + form.lasts) if form.lasts else b""
        except OverflowError:
            return None
        values = values_of(self._running.state.sequence, stamp, expires, key, by, batch, holes)
        answer = form.answer(tuple([gauge.read(values) for gauge in form.gauges]), batch != b"")
        return None if answer is None else (answer, answer.wording.filled(values))

    def _read(self, form: Form, answer: Answer, read: Read, parts: _Parts, key: bytes) -> None:
        """Books what was read."""
        by = self._names[parts.by]
        held = Held(form, by, read.now + form.lasts, read.now, parts.holes.seals)
        fingerprint = form.fingerprint
        if key and fingerprint is None:
            first = read.data.find(_COMMAND) + len(_COMMAND) - 1
            fingerprint = sha256(read.data[first : parts.end]).digest()
        self._book(form, answer, held, key, fingerprint or b"")

    def _book(self, form: Form, answer: Answer, held: Held, key: bytes, fingerprint: bytes) -> None:
        self.earned(1)
        if answer.event == "grant.reserved.v1":
            self._running.book(form, held)
        elif answer.event != REFUSED:
            self._running.book(form, None)
        self._running.answered(held.by, key.decode(), fingerprint, held.opened)

    def _forget_oldest(self) -> None:
        """Makes room: half of the forms go, those that were made first."""
        for head in list(islice(self._forms, len(self._forms) // 2)):
            del self._forms[head]
        self._templates.clear()
        kept = set(map(id, self._forms.values()))
        self._asked = {head: form for head, form in self._asked.items() if id(form) in kept}

    def _new_form(self, parts: _Parts, event: Event, asked: Asked | None) -> Form | None:
        """A form for a request that is likely to come again, in accounts that there are."""
        running, seen = self._running, hash(parts.head)
        again, full = seen in self._seen, len(self._forms) >= MOST_FORMS
        if not again:
            self._see(seen)
        # Where more come again than are kept, making them must not cost more than they save.
        if self._credit < _EXCHANGE if full else not again and self._credit <= 0:
            return None
        asked = asked_of(event) if asked is None else asked
        command = asked.command
        if not isinstance(command, AskGrant | RecordInvocations):
            return None
        document, holes = asked.document, parts.holes
        same = len(sealed_in(document)) == len(holes.seals)
        same &= ("ran_at" in document) == (holes.ran_at != b"")
        if not same or not running.comparable(command.dataset, asked.by):
            return None
        self._credit -= _EXCHANGE if full else 1
        if full:
            self._forget_oldest()
        counted = running.state.limits_on(command.dataset, asked.by)
        own = parts.by if any(rule.per for rule, _, _ in counted) else b""
        form = self._forms[own + parts.head] = Form(running.state, asked, command, running.tally)
        return form


def _key(asked: Asked) -> bytes | None:
    """The key, empty for an item of a batch; None if it is not its own JSON."""
    if asked.key is None:
        return b""
    return asked.key.encode() if _PLAIN.fullmatch(asked.key) else None


def _of(by: str, command: bytes) -> bytes:
    """What stands for a command where a rule counts by client."""
    return by.encode() + b"\n" + command


class _Parts(NamedTuple):
    """What stands before the decision, without who asks and what differs."""

    by: bytes
    head: bytes
    holes: Holes
    end: int
    batch: bytes
    """Where the batch begins that it is an item of; empty if it is alone."""
