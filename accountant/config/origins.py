"""The places to which the service may send something: their origins, as a setting lists them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_PORTS: Final = {"https": 443, "http": 80}
LONGEST: Final = 500
"""Characters of an address."""


class Origin(NamedTuple):
    """Scheme, host in lower case, and port."""

    scheme: str
    host: str
    port: int


def origins_of(text: str) -> frozenset[Origin]:
    """Return the origins that a setting lists: hosts, with a port perhaps, which are asked over
    HTTPS; or ``http://`` and a host, where nobody listens in between. Raise ValueError.
    """
    return frozenset(_origin(word if "://" in word else f"https://{word}") for word in _words(text))


def refused(url: str, allowed: frozenset[Origin]) -> str | None:
    """Return why nothing is sent to ``url``; None if it may be."""
    try:
        origin = _origin(url, path=True)
    except ValueError as error:
        return str(error)
    if not allowed:
        return "this service sends callbacks to nobody: ACCOUNTANT_CALLBACK_HOSTS names no host"
    if origin not in allowed:
        return (
            f"{origin.scheme}://{origin.host}:{origin.port} is not among the hosts that "
            "ACCOUNTANT_CALLBACK_HOSTS names"
        )
    return None


def is_loopback(host: str) -> bool:
    """Return whether a host's name is always this machine's."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """Return the host that a Host header names, without its port; empty for what names none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_sound(url: str) -> bool:
    """Return whether an address is https, or http on this machine, without a name or a fragment."""
    try:
        parts = urlsplit(url)
        local = parts.scheme == "http" and is_loopback(parts.hostname or "")
        bare = "@" not in parts.netloc and not parts.fragment
        return (parts.scheme == "https" or local) and bool(parts.hostname) and bare
    except ValueError:
        return False


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def _origin(url: str, *, path: bool = False) -> Origin:
    """Return the origin of an address. Raise ValueError for one that is not plainly an address."""
    if len(url) > LONGEST or not url.isascii() or any(c <= " " or c == "\\" for c in url):
        raise ValueError("an address has at most 500 visible ASCII characters")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is no address that begins with https:// and a host")
    if "@" in parts.netloc or parts.fragment or (not path and parts.path not in ("", "/")):
        raise ValueError(f"{url!r} has a name, a fragment or a path where none belongs")
    port = parts.port  # raises ValueError beyond 65,535
    return Origin(parts.scheme, parts.hostname.lower(), port or _PORTS[parts.scheme])
