"""Work that an orchestrator may try several times: paid once, and drawn once.

The idempotency key comes from the run and the task, and not from the try. So a second try meets the
first one's grant:

* it was **released**: the first try drew nothing, and this one asks anew, under the next key;
* it is open, committed or expired: the first try may have drawn its noise. MayHaveRun is raised,
  and nothing is charged again.

A person then looks whether the first answer was kept. If not, its noise is lost and paid for;
``again=1`` pays for another draw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from hashlib import sha256
from itertools import count
from typing import ParamSpec, TypeVar, Unpack

from accountant.adapters.libraries import Fields
from accountant.client import Client, Grant, MayHaveRun, Mechanism
from accountant.client.calls import Datasets
from accountant.client.reservations import untracked

T = TypeVar("T")
P = ParamSpec("P")
Ledger = Client | Callable[[], Client]
"""A client, or what makes one when a task runs: a client holds a key, which nobody pickles."""


class TaskFields(Fields, total=False):
    """What a task may say of its request.

    ``part`` tells apart several grants of one task. ``again`` counts how often a person has decided
    to draw anew. ``tracked``: see Grant.
    """

    part: str
    again: int
    tracked: bool


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work of a run: ``names`` say which, in the words of ``tool``."""

    tool: str
    names: tuple[str, ...]
    part: str = ""
    again: int = 0

    def key(self, number: int) -> str:
        """Return its ``number``-th idempotency key, whatever the length and script of its names."""
        said = json.dumps([*self.names, self.part, self.again, number])
        return f"{self.tool}-{sha256(said.encode()).hexdigest()[:48]}"

    def __str__(self) -> str:
        return " / ".join([self.tool, *self.names, *filter(None, [self.part])])


def ask(
    ledger: Client,
    work: Work,
    dataset: Datasets,
    mechanisms: Sequence[Mechanism],
    *,
    tracked: bool = False,
    **about: Unpack[Fields],
) -> Grant:
    """Return a grant that no earlier try of the work has used. Raise Refused, and MayHaveRun where
    one may have.
    """
    for number in count(1):
        key = work.key(number)
        grant = ledger.grant(dataset, mechanisms, tracked=tracked, idempotency_key=key, **about)
        if not grant.repeated:
            return grant
        if (state := ledger.grant_state(grant.id).state) != "released":
            error = MayHaveRun(grant.id)
            error.add_note(f"{work}: {_what_to_do(state, work.again + 1)}")
            raise error
    raise AssertionError  # count never ends


def _what_to_do(state: str, again: int) -> str:
    """Return what a person can do about a grant that an earlier try may have used."""
    anew = f"Else again={again} pays for another draw"
    if state != "reserved":
        return f"the grant is {state}, and paid for. If the earlier answer was kept, use it. {anew}"
    return (
        "the grant is open. If the earlier answer was kept, use it and commit the grant. If no "
        f"noise was drawn, release the grant and try again. {anew}"
    )


@contextmanager
def paid(
    ledger: Ledger,
    tool: str,
    names: tuple[str, ...],
    dataset: Datasets,
    mechanisms: Sequence[Mechanism],
    *,
    part: str = "",
    again: int = 0,
    tracked: bool = False,
    **about: Unpack[Fields],
) -> Iterator[Grant]:
    """Ask for the work that ``names`` name; commit when the block ends. See ``ask`` and Grant."""
    opened: AbstractContextManager[Client]
    opened = nullcontext(ledger) if isinstance(ledger, Client) else ledger()
    with opened as client:
        work = Work(tool, names, part, again)
        with ask(client, work, dataset, mechanisms, tracked=tracked, **about) as grant:
            yield grant


def charging(
    granted: Callable[[], AbstractContextManager[Grant]], more: TaskFields
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator: a call of the function asks for a grant, runs only if it is given, and is
    committed when it ends. ``more``: what is asked. Raise ValueError where it is ``tracked``.
    """
    untracked(more)

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def paid_for(*args: P.args, **kwargs: P.kwargs) -> T:
            with granted():
                return function(*args, **kwargs)

        return paid_for

    return decorate
