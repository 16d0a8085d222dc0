"""How an adapter imports its library, and what every adapter passes on to a grant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_type_hints

from accountant.client.calls import About


class Fields(About, total=False):
    """What a request for a grant may say, where one adapter asks for many: no key among it."""

    ttl_seconds: int | None


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import a library in the block. Raise an ImportError that says what to install."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{error}: install the library: pip install 'privacy-accountant-client[{extra}]'",
            name=error.name,
        ) from error


def only(fields: Mapping[str, Any], known: type = Fields) -> None:
    """Raise TypeError for a field that is not ``known``. With ``tracked`` a grant that the user
    never sees would be released after its noise was drawn; under one key, many would be one.
    """
    if other := fields.keys() - get_type_hints(known).keys():
        raise TypeError(f"{', '.join(sorted(other))}: not a field of what is asked for here")


def sampler(distribution: str) -> dict[str, str]:
    """Return the library that draws the noise, with its version, as a mechanism states it."""
    try:
        found = version(distribution)
    except PackageNotFoundError:  # run from a folder of sources
        found = "unknown"
    return {"library": distribution, "version": found}
