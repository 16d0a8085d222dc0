"""Where the service is, from the environment and the options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from accountant.client.command_line.failures import Misuse
from accountant.client.environment import VARIABLES, key_of
from accountant.client.sync import Client


def place_of(asked: argparse.Namespace, env: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the service's address, the key and the population. Raise Misuse that names every
    variable that is missing.
    """
    of_keys = getattr(asked, "keys", False)
    population = "-" if of_keys else asked.population or env.get("ACCOUNTANT_POPULATION")
    missing = []
    if not env.get("ACCOUNTANT_URL"):
        missing.append(f"ACCOUNTANT_URL ({VARIABLES['ACCOUNTANT_URL']})")
    if not (env.get("ACCOUNTANT_KEY") or env.get("ACCOUNTANT_KEY_FILE")):
        missing.append("ACCOUNTANT_KEY or ACCOUNTANT_KEY_FILE (the API key, or a file with it)")
    if not population:
        missing.append("ACCOUNTANT_POPULATION or --population (what is asked about)")
    if missing:
        raise Misuse(f"this asks a service: set {' and '.join(missing)}", "not-configured")
    return env["ACCOUNTANT_URL"], key_of(env), str(population)


def connected(asked: argparse.Namespace, env: Mapping[str, str], **options: Any) -> Client:
    """Return a client of the service. Raise Misuse as ``place_of``."""
    options = {"spool": env.get("ACCOUNTANT_SPOOL") or None} | options
    return Client(*place_of(asked, env), **options)
