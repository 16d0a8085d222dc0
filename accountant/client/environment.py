"""What the client reads from environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLES: Final = {
    "ACCOUNTANT_URL": "the service's address",
    "ACCOUNTANT_KEY": "the API key",
    "ACCOUNTANT_KEY_FILE": "a file that holds the API key",
    "ACCOUNTANT_POPULATION": "the population that is asked about",
    "ACCOUNTANT_SPOOL": "a folder of reports that wait for the service",
    "ACCOUNTANT_GRANT": "the grant under which a command runs",
}
"""All of them. An empty one counts as not set."""
OF_ADAPTERS: Final = frozenset({"ACCOUNTANT_TRAINING"})
"""Read by adapters in the commands that ``accountant run`` starts."""
_PREFIX: Final = "ACCOUNTANT_"
_SETTINGS: Final = (
    "HOME", "DATABASE_URL", "OWNER_URL", "HOST", "PORT", "EXPIRY_SECONDS", "REPORT_HOURS",
    "CHECKPOINT_SECONDS", "ORIGIN", "PUBLIC_LOG", "MAX_BODY_BYTES", "MOST_WAITING",
    "MAX_CONNECTIONS", "HEAD_SECONDS", "BODY_SECONDS", "IDLE_SECONDS", "MAX_HELD_BYTES",
    "CLOCK_AHEAD_HOURS", "ONE_CORE", "CALLBACK_HOSTS", "CALLBACK_SECRET", "CALLBACK_SECONDS",
    "PUBLIC_URL", "SESSION_HOURS", "SESSION_IDLE_MINUTES",
    "OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "OIDC_CLIENT_SECRET_FILE",
    "OIDC_SCOPES", "OIDC_ROLE_CLAIM", "OIDC_ROLES", "OIDC_NAME_CLAIM",
    "ALERTS", "ALERT_SECONDS", "CALLBACK_SECRET_FILE", "DATABASE_URL_FILE", "KEY_DAYS",
    "OWNER_URL_FILE",
)  # fmt: skip
OF_THE_SERVICE: Final = frozenset(_PREFIX + name for name in _SETTINGS)
"""What the service reads: the client may run beside it, without its code."""
_FOREIGN: Final = re.compile(
    r"ACCOUNTANT_TEST_\w+"  # of the project's own tests
    r"|ACCOUNTANT_(\w+_)?SERVICE_(HOST|PORT(_\w+)?)"
    r"|ACCOUNTANT_(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?"
)
"""Beside a Kubernetes Service whose name begins with ``accountant`` every pod has variables with
its address, and nobody who starts a pipeline has chosen them.
"""
_LONGEST: Final = 4096  # Bytes of a file that are read: a key is far shorter


def check_names(env: Mapping[str, str]) -> None:
    """Raise ValueError for a variable that begins with ACCOUNTANT_ and that nothing reads, naming
    the nearest ones: a misspelt setting would otherwise be a default that nobody chose.
    """
    known = VARIABLES.keys() | OF_ADAPTERS | OF_THE_SERVICE
    for name in sorted(env):
        if name.startswith(_PREFIX) and name not in known and not _FOREIGN.fullmatch(name):
            from difflib import get_close_matches  # noqa: PLC0415 (only for this message)

            ends = sorted(one.removeprefix(_PREFIX) for one in known)
            near = [_PREFIX + one for one in get_close_matches(name.removeprefix(_PREFIX), ends, 2)]
            meant = f"; {' or '.join(near)} may be meant" if near else ""
            raise ValueError(
                f"{name} is no setting of accountant{meant}. Correct it or unset it; "
                "docs/reference/settings.md lists all of them"
            )


def key_of(env: Mapping[str, str]) -> str:
    """Return the API key, from ACCOUNTANT_KEY or else from the file that ACCOUNTANT_KEY_FILE names.
    Raise KeyError without either, and OSError for a file that cannot be read.
    """
    if env.get("ACCOUNTANT_KEY") or not env.get("ACCOUNTANT_KEY_FILE"):
        return env["ACCOUNTANT_KEY"]
    return key_in(env["ACCOUNTANT_KEY_FILE"])


def key_in(file: str) -> str:
    """Return the key in a file. Raise OSError."""
    with Path(file).open("rb") as stream:
        return stream.read(_LONGEST).decode("latin-1")
