"""Settings, folders, disks, clocks and addresses: what surrounds the database."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from accountant.cli.checkups.finding import Finding, fine, look, wrong
from accountant.cli.common import alerts_of, callbacks_of
from accountant.config.identity import provider_of
from accountant.config.origins import is_loopback
from accountant.config.settings import Settings
from accountant.console.place import place_of
from accountant.door.places import most_connections
from accountant.store.ledgers import parsed, sqlite_path

_LOW, _LITTLE = 100 * 2**20, 2**30
"""Bytes on a disk below which a full one is near, and below which somebody should look."""
_SLOW: Final = 0.1
"""Seconds of one write that reaches the disk: a ledger commits a few hundred times in them."""
_APART: Final = 1_000_000
"""Microseconds by which two clocks may differ in a moment."""
SOON: Final = 14
"""Days before the end of a key, or of a certificate, in which somebody should look."""
TIMEOUT: Final = 10.0


def settings(chosen: Settings) -> Iterator[Finding]:
    """Look for settings that contradict each other, or that are seldom meant."""
    name, found = "settings", False
    for read, do in (
        (place_of, "Correct it: sign-in links and callbacks name it."),
        (callbacks_of, "Correct it, or name no hosts."),
        (alerts_of, "Correct it: until then the service does not start."),
        (provider_of, "Correct it: until then nobody signs in through the provider."),
    ):
        try:
            read(chosen)
        except ValueError as error:
            found = True
            yield wrong(name, str(error), do)
    doubtful = {
        f"ACCOUNTANT_ORIGIN is {chosen.origin!r}, under which any ledger may sign": (
            chosen.origin == Settings.origin,
            "Set it to an address of yours before a ledger signs: it stays fixed after that.",
        ),
        f"the service binds {chosen.host}, and ACCOUNTANT_PUBLIC_URL is not set": (
            not is_loopback(chosen.host) and not chosen.public_url,
            "Keys travel in the clear: put a proxy with TLS before it, and name its address.",
        ),
        "ACCOUNTANT_OWNER_URL is set, with which tables can be rewritten": (
            bool(chosen.owner_url),
            "Set it only for `accountant migrate`: the service does not need it.",
        ),
        f"of {chosen.max_connections} connections only {most_connections(chosen)} fit": (
            most_connections(chosen) < chosen.max_connections,
            "Raise the number of open files of the process (ulimit -n).",
        ),
    }
    for text, (is_so, do) in doubtful.items():
        if is_so:
            found = True
            yield look(name, text, do)
    if not found:
        yield fine(name, "all settings are valid, and none is doubtful")


def folders(chosen: Settings) -> Iterator[Finding]:
    """Look at the home folder and its disk: room, rights, and whether a write reaches the disk."""
    places = {"home": chosen.home}
    if parsed(chosen.database_url).get_backend_name() == "sqlite":
        places["database"] = sqlite_path(chosen.database_url).parent
    for what, folder in places.items():
        if not folder.is_dir():
            do = "Name the right one with ACCOUNTANT_HOME, or make it with `accountant migrate`."
            yield wrong("folders", f"there is no folder {folder} ({what})", do)
            continue
        if not os.access(folder, os.W_OK | os.X_OK):
            yield wrong(
                "folders",
                f"this user may not write to {folder} ({what})",
                "Give it to the user that the service runs as.",
            )
            continue
        yield _room(what, folder)
        yield _write(what, folder)
    yield from _secrets(chosen.home / "vault")


def _room(what: str, folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**20:,.0f} MiB are free where {folder} lies ({what})"
    do = "Make room: when the disk is full nothing is granted."
    if free < _LITTLE:
        return (wrong if free < _LOW else look)("disk", text, do)
    return fine("disk", text)


def _write(what: str, folder: Path) -> Finding:
    started = time.perf_counter()
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".accountant-") as probe:
            probe.write(bytes(4096))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        text = f"a write to {folder} ({what}) does not reach the disk: {error}"
        return wrong("fsync", text, "Look at the disk and its file system before anything else.")
    took = time.perf_counter() - started
    text = f"a write to {folder} ({what}) reaches the disk in {took * 1000:.1f} ms"
    if took > _SLOW:
        return look("fsync", text, "Grants wait for that: use a faster disk, or a less busy one.")
    return fine("fsync", text)


def _secrets(vault: Path) -> Iterator[Finding]:
    """Look for files of the vault that others may read."""
    if not vault.is_dir():
        return
    places = [vault, *sorted(vault.rglob("*.key"))]
    open_ = [place for place in places if place.stat().st_mode & 0o077]
    for place in open_:
        mode = "700" if place.is_dir() else "600"
        do = f"chmod {mode} {place}; if somebody may have read it, `accountant keys rotate`."
        yield wrong("vault", f"others may read {place}", do)
    if not open_:
        yield fine("vault", f"only its owner may read {vault}")


def clocks(clock: Callable[[], int], ticks: Callable[[], int]) -> Iterator[Finding]:
    """Compare the clock, for a moment, with one that cannot be set. Both in microseconds."""
    before, passed = clock(), ticks()
    time.sleep(0.05)
    drift = (clock() - before) - (ticks() - passed)
    if abs(drift) > _APART:
        yield wrong(
            "clock",
            f"the clock moved by {drift / 1e6:+.1f} s in a moment",
            "Something sets it: run one time service, which corrects it gradually.",
        )
    else:
        yield fine("clock", "the clock runs as fast as one that cannot be set")


def service(chosen: Settings) -> Iterator[Finding]:
    """Ask the service at its address whether it is ready. That none runs is no fault."""
    host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 (not bound here)
    url = f"http://{host}:{chosen.port}/readyz"
    try:
        status, body = _answer(url)
    except OSError:
        yield fine("service", f"no service runs at {url.removesuffix('/readyz')}")
        return
    if status == 200:
        yield fine("service", f"the service at {url.removesuffix('/readyz')} is ready")
    else:
        detail = body.get("detail", f"it answers {status}")
        yield wrong("service", f"the service is not ready: {detail}", "See the other findings.")


def public(chosen: Settings) -> Iterator[Finding]:
    """Ask the service at its public address, and look at the certificate there."""
    if not chosen.public_url:
        return
    url = f"{chosen.public_url.rstrip('/')}/healthz"
    do = "Look at the proxy, its certificate and the name in the DNS."
    try:
        status, body = _answer(url)
    except OSError as error:
        yield wrong("public address", f"{url} cannot be reached: {error}", do)
        return
    if status != 200 or body.get("status") != "ok":
        yield wrong("public address", f"{url} answers {status}, and not as this service does", do)
        return
    yield fine("public address", f"{url} is answered by this service")
    if url.startswith("https:"):
        yield from _certificate(url)


def identity(chosen: Settings) -> Iterator[Finding]:
    """Ask the identity provider for its description, as the service does when people sign in."""
    issuer = chosen.oidc_issuer
    if not issuer:
        return
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    do = "Until then people sign in by links alone: `accountant signin-link`."
    try:
        status, body = _answer(url)
    except OSError as error:
        yield wrong("identity provider", f"{url} cannot be reached: {error}", do)
        return
    if status != 200 or body.get("issuer") != issuer:
        text = f"{url} answers {status} and names the issuer {body.get('issuer')!r}, not {issuer!r}"
        yield wrong("identity provider", text, "Set ACCOUNTANT_OIDC_ISSUER as it names itself.")
    else:
        yield fine("identity provider", f"{issuer} answers")


def _certificate(url: str) -> Iterator[Finding]:
    parts = urlsplit(url)
    address = parts.hostname or "", parts.port or 443
    try:
        with (
            socket.create_connection(address, TIMEOUT) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=address[0]) as secure,
        ):
            ends = str((secure.getpeercert() or {}).get("notAfter", ""))
    except OSError as error:
        yield wrong("certificate", f"{address[0]}: {error}", "Look at the proxy's certificate.")
        return
    left = (ssl.cert_time_to_seconds(ends) - datetime.now(UTC).timestamp()) / 86_400
    text = f"the certificate of {address[0]} is valid for {left:.0f} days more"
    if left < SOON:
        yield look("certificate", text, "Renew it.")
    else:
        yield fine("certificate", text)


def _answer(url: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the object that a call answers. Raise OSError."""
    import httpx2  # noqa: PLC0415 it takes long to load

    try:
        trusted = ssl.create_default_context() if url.startswith("https:") else False
        answer = httpx2.get(url, timeout=TIMEOUT, verify=trusted, trust_env=False)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    try:
        body = answer.json()
    except ValueError:
        body = {}
    return answer.status_code, body if isinstance(body, dict) else {}
