"""Requests whose form is known, with what differs from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from accountant.budget.express.forms import Form
from accountant.budget.express.holding import Rest
from accountant.budget.express.reading import Holes
from accountant.budget.sealing import Opened

NO_HOLES: Final = Holes((), b"")


class Known(NamedTuple):
    """A request of a known form."""

    form: Form
    who: str
    by: bytes
    """Who asks."""
    key: bytes
    """Empty for an item of a batch."""
    fingerprint: bytes
    """The command's; empty for an item of a batch."""
    holes: Holes
    opened: Mapping[str, Opened] = {}
    """Its free texts, if they were sealed just now."""

    def rest(self, now: int) -> Rest:
        """What is reserved at ``now``, beside the form: the fields of ``Held``."""
        return self.who, now + self.form.lasts, now, self.holes.seals


class Template:
    """A command as it was asked, before its free texts were sealed: it comes again word for word,
    and each time has seals of its own.
    """

    __slots__ = ("_fields", "_pieces", "form")

    def __init__(self, form: Form, sealed: bytes, opened: Mapping[str, Opened]) -> None:
        """``sealed`` are the command's canonical bytes, with the digests of ``opened``."""
        self.form = form
        self._fields = [(field, one.text, one.text.encode()) for field, one in opened.items()]
        self._pieces: list[bytes] = []
        for one in opened.values():
            before, _, sealed = sealed.partition(one.digest.encode())
            self._pieces += [before, b""]
        self._pieces.append(sealed)

    def known(self, who: str, by: bytes, key: bytes, salt: Callable[[], bytes]) -> Known:
        """The command, asked once more."""
        form = self.form
        if form.fingerprint is not None:
            return Known(form, who, by, key, form.fingerprint, NO_HOLES)
        opened, seals, pieces = {}, [], self._pieces.copy()
        for place, (field, text, data) in enumerate(self._fields):
            opened[field] = one = Opened(salt(), text)
            seal = sha256(one.salt + data).hexdigest().encode()
            pieces[2 * place + 1] = seal
            seals.append(seal)
        fingerprint = sha256(b"".join(pieces)).digest()
        return Known(form, who, by, key, fingerprint, Holes(tuple(seals), b""), opened)
