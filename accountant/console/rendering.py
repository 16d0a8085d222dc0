"""HTML from facts, by the templates. Nothing is loaded from anywhere but this service."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fastapi import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from accountant import __version__
from accountant.console import amounts
from accountant.ledger.events import rfc3339
from accountant.reporting import numbers
from accountant.reporting.safely import visible
from accountant.reporting.verdict import in_words

_HERE: Final = Path(__file__).resolve().parent
_STATIC: Final = _HERE / "static"
_MEDIA: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


class Frame(Struct, frozen=True):
    """What surrounds a page: who reads it, of which population, when, and which entry of the
    navigation it belongs to. ``csrf`` goes into every form.
    """

    reader: str
    role: str
    csrf: str
    here: str
    population: str | None
    populations: tuple[str, ...]
    now: int
    fresh: int = 0
    """Seconds after which the page asks for itself again while it is looked at; 0: never."""
    everywhere: bool = True
    """The reader's key reaches all populations, and so they may see keys."""

    @property
    def decides(self) -> bool:
        """Return whether the reader may confirm, decline and approve."""
        return self.role in ("admin", "officer")

    @property
    def time(self) -> str:
        """The present stamp, RFC 3339."""
        return rfc3339(self.now)


def render(template: str, frame: Frame | None = None, **facts: Any) -> str:
    """Return a page. ``frame`` is None for whoever has not signed in."""
    return environment().get_template(template).render(frame=frame, **facts)


def static(name: str) -> Response | None:
    """Return a file of the console by its name, or None. A browser may keep it: its name in a page
    has its digest.
    """
    path = _STATIC / name
    if name not in _digests():
        return None
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    headers["X-Content-Type-Options"] = "nosniff"
    return Response(path.read_bytes(), media_type=_MEDIA[path.suffix], headers=headers)


@lru_cache(maxsize=1)
def _digests() -> dict[str, str]:
    files = (path for path in sorted(_STATIC.iterdir()) if path.suffix in _MEDIA)
    return {path.name: sha256(path.read_bytes()).hexdigest()[:12] for path in files}


def asset(name: str) -> str:
    """Return the address of a file of the console."""
    return f"/console/static/{name}?{_digests()[name]}"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates: all is escaped, what is missing is an error."""
    found = Environment(
        auto_reload=False,  # the files are those of the package
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    found.filters.update(
        up=amounts.up,
        down=amounts.down,
        grouped=amounts.grouped,
        one_in=numbers.one_in,
        even_chance=numbers.even_chance,
        day=numbers.day,
        minute=numbers.minute,
        lasted=numbers.lasted,
        named=in_words,
    )
    found.globals.update(
        asset=asset,
        percent_of=numbers.percent_of,
        places=numbers.places,
        counted=numbers.counted,
        version=__version__,
    )
    return found
