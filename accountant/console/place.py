"""The address at which people reach the console, and what follows from it for cookies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from accountant.config.origins import is_loopback
from accountant.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Place:
    """Where the console is reached: the origin that browsers know it by, empty for whichever
    address of this machine they use.
    """

    origin: str

    @property
    def secure(self) -> bool:
        """Whether browsers reach it over https."""
        return self.origin.startswith("https://")

    @property
    def prefix(self) -> str:
        """What the names of our cookies begin with: by __Host- a browser takes them only from this
        host, over https.
        """
        return "__Host-" if self.secure else ""

    def is_ours(self, origin: str, host: str) -> bool:
        """Return whether an Origin is that of our own pages, in a request to ``host``."""
        return origin == (self.origin or f"http://{host}")

    @classmethod
    def of(cls, public_url: str) -> Self:
        """Return the place at a public address. Raise ValueError unless it is https, or http on
        this machine.
        """
        if not public_url:
            return cls("")
        parts = urlsplit(public_url)
        secure = parts.scheme == "https"
        local = parts.scheme == "http" and is_loopback(parts.hostname or "")
        bare = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
        if not (parts.hostname and bare and (secure or local)):
            raise ValueError(
                f"{public_url!r} must be like https://accounts.example.org: https and a host, or "
                "http://127.0.0.1:8321 on this machine, and no path"
            )
        port = {"https": 443, "http": 80}[parts.scheme]
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        shown = "" if parts.port in (None, port) else f":{parts.port}"
        return cls(f"{parts.scheme}://{host}{shown}")


def place_of(settings: Settings) -> Place:
    """Return where the console is reached. Raise ValueError, naming the variable."""
    try:
        return Place.of(settings.public_url)
    except ValueError as error:
        raise ValueError(f"ACCOUNTANT_PUBLIC_URL: {error}") from None
