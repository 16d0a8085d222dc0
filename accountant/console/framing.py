"""What the handlers of pages share: who looks at what, and how facts are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Path, Request
from fastapi.responses import HTMLResponse
from msgspec import Struct

from accountant.api.access import OVERSEE
from accountant.budget.commands import Role
from accountant.console.access import Reading, Visitor, visitor
from accountant.console.rendering import Frame, render
from accountant.publishing.publisher import Publisher
from accountant.reporting.desk import Behind, Desk, Question, Seen
from accountant.runtime.service import Service

T = TypeVar("T")
NAME: Final = r"^[a-z0-9][a-z0-9_.-]{0,63}$"
NO_POPULATION: Final = "-"
"""Stands in addresses for what is of no population: none can have this name."""
Population = Annotated[str, Path(pattern=NAME)]
EventNumber = Annotated[int, Path(ge=0, le=2**53)]


class Part(Struct, frozen=True):
    """The part of a ledger that was read so far: ``read`` of ``size`` events."""

    name: str
    read: int
    size: int


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a page by somebody who may see it."""

    visitor: Visitor
    service: Service
    publisher: Publisher
    desk: Desk

    @property
    def now(self) -> int:
        """The time of the service's clock, in microseconds."""
        return self.service.time()

    def populations(self) -> list[str]:
        """Return the names of all populations that the visitor's key reaches, in order."""
        return [name for name in self.service.populations() if self.visitor.key.reaches(name)]

    @property
    def reached(self) -> frozenset[str] | None:
        """The populations that the visitor's key reaches, None for all."""
        return self.visitor.key.populations

    def look(self, population: str, question: Question[T]) -> Seen[T]:
        """Return facts of a population; while it is being read those so far, if there are any, and
        how far that is. Raise NotFound, StoreError.
        """
        self.service.known(population)
        published = self.publisher.last_published(population)
        return self.desk.look(population, question, self.now, published)

    def so_far(self, population: str, question: Question[T]) -> tuple[T | None, list[Part]]:
        """Return facts of a population, perhaps from a part of it, which the page has to tell.
        Raise Reading where there are none yet, NotFound, StoreError.
        """
        found, behind = self.look(population, question)
        if behind is not None and found is None:
            raise Reading(population, behind)
        return found, [] if behind is None else [Part(population, *behind)]

    def ask(self, population: str, question: Question[T]) -> T:
        """Return facts of a population that is read to its end, as what people decide by has to be.
        Raise Reading, NotFound, StoreError.
        """
        self.service.known(population)
        published = self.publisher.last_published(population)
        found = self.desk.ask(population, question, self.now, published)
        if isinstance(found, Behind):
            raise Reading(population, found)
        return found

    def page(
        self,
        template: str,
        here: str,
        population: str | None = None,
        *,
        fresh: int = 0,
        status: int = 200,
        early: Sequence[Part] = (),
        **facts: Any,
    ) -> HTMLResponse:
        """Return a page. ``here`` is the entry of the navigation that it belongs to; ``early``: the
        populations whose figures are of a part.
        """
        names = self.populations()
        shown = population or (names[0] if len(names) == 1 else None)
        who, everywhere = self.visitor, self.reached is None
        frame = Frame(
            who.name, who.role, who.csrf, here, shown, tuple(names), self.now, fresh, everywhere
        )
        response = HTMLResponse(render(template, frame, early=early, **facts), status)
        if early:
            response.headers["Refresh"] = "5"
        return response


def visit(*roles: Role, anywhere: bool = False) -> Callable[..., Visit]:
    """Return a dependency: a visit by somebody with one of ``roles`` (``visitor``)."""
    who = visitor(*roles, anywhere=anywhere)

    def found(request: Request, looking: Visitor = Depends(who)) -> Visit:  # noqa: B008
        return visit_of(request, looking)

    return found


def visit_of(request: Request, looking: Visitor) -> Visit:
    """Return the visit of somebody who was let in, by a form say."""
    state = request.app.state
    return Visit(looking, state.service, state.publisher, state.desk)


Overseen = Annotated[Visit, Depends(visit(*OVERSEE))]
"""By those who may see everything: administrators, officers, auditors."""
OverseenAnywhere = Annotated[Visit, Depends(visit(*OVERSEE, anywhere=True))]
"""Likewise, of a page that shows only the populations that the visitor's key reaches."""
