"""What the client reads from environment variables."""

from __future__ import annotations

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
_LONGEST: Final = 4096  # Bytes of a file that are read: a key is far shorter


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
