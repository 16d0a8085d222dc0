"""The service that the examples ask: a process of its own, on SQLite in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from accountant.client import Client, Registrar
from examples.queries.people import PLANS
from examples.survey.running import Runner

PIPELINE: Final = "examples"
ANALYSTS: Final = ("ann", "bob", "cleo")
"""Three pipelines that ask the same question."""
_ROLES: Final = {"steward": "admin", "officer": "officer"} | dict.fromkeys(
    (PIPELINE, *ANALYSTS), "pipeline"
)
_HERE: Final = Path(__file__).parent

POPULATIONS: Final[dict[str, dict[str, Any]]] = {
    # It is private who is in the experiment: neighbours differ by one record that is there or not.
    "patients": {
        "privacy_unit": "patient's year",
        "neighbouring": "add_or_remove_one",
        "membership": "public",
        "dimensions": {"plan": list(PLANS.values())},
    },
    # It is known who was asked, and how many were: neighbours differ by one woman's answers.
    "women": {
        "privacy_unit": "woman",
        "neighbouring": "replace_one",
        "membership": "public",
        "dimensions": {},
    },
}
DATASETS: Final = {
    "patients": ("health", "curves", "repeats", "shared"),
    "women": ("affairs", "repeats"),
}


@dataclass(frozen=True)
class Ledgers:
    """Clients of the two populations with the key of an ordinary pipeline, and the analysts'."""

    patients: Client
    women: Client
    analysts: tuple[Client, ...]
    """Of the patients."""


@contextmanager
def service(width: int) -> Iterator[Ledgers]:
    """Start a service on an empty ledger, register the two populations, and yield the clients. At
    the end the service is stopped and its folder is gone.

    Raise DemoFailed if it does not start.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="accountant-examples-")))
        (folder / "logs").mkdir()
        runner = Runner(folder, width)
        runner.command("migrate")
        keys = {
            name: runner.command("keys", "create", "--role", role, "--name", name).strip()
            for name, role in _ROLES.items()
        }
        stack.enter_context(runner.service())
        for population in POPULATIONS:
            _register(runner.url, keys, population)

        def client(name: str, population: str) -> Client:
            return stack.enter_context(Client(runner.url, keys[name], population))

        yield Ledgers(
            client(PIPELINE, "patients"),
            client(PIPELINE, "women"),
            tuple(client(name, "patients") for name in ANALYSTS),
        )


def _register(url: str, keys: dict[str, str], population: str) -> None:
    with Registrar(url, keys["steward"], population) as registrar:
        registrar.register(**POPULATIONS[population])
        for dataset in DATASETS[population]:
            registrar.dataset(dataset, namespace="statsmodels", name=f"{population} ({dataset})")
        first = registrar.policy((_HERE / f"{population}.yaml").read_text(encoding="utf-8"))
    with Registrar(url, keys["officer"], population) as officer:
        officer.confirm(first["proposal"], first["digest"])
