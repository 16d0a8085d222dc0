"""A folder that states populations, datasets and policies, one file each.

``populations/<population>.yaml``, ``datasets/<population>/<id>.yaml``, and
``policies/<population>.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field

from accountant.budget.commands.base import IDENTIFIER, Identifier, Reasons, Text, Use, Values
from accountant.budget.commands.registering import FurtherUnits
from accountant.budget.errors import Invalid
from accountant.budget.policy import Policy
from accountant.budget.policy_file import parse_policy, parsed
from accountant.budget.population.population import LabelText, Membership
from accountant.privacy.mechanisms import Relation

_ADOPTING: Final = "the policy cannot be adopted: "
_LAYOUT: Final = (
    "populations/<population>.yaml, datasets/<population>/<id>.yaml and policies/<population>.yaml"
)


class PopulationFile(BaseModel, frozen=True, extra="forbid"):
    """What a file says of a population. That members are new is said once, and not in a file."""

    privacy_unit: Text
    neighbouring: Relation
    membership: Membership
    dimensions: dict[Identifier, Values] = {}
    fixed: Reasons = {}
    units: FurtherUnits = {}


class DatasetFile(BaseModel, frozen=True, extra="forbid"):
    """What a file says of a dataset; its id is the file's name. What is left out stays."""

    namespace: Text
    name: Text
    owner: Text | None = None
    labels: dict[LabelText, LabelText] | None = None
    parents: list[Text] | None = Field(None, max_length=100)
    also: list[Use] | None = Field(None, max_length=100)
    closes: list[Identifier] | None = Field(None, max_length=200)


@dataclass(frozen=True)
class PolicyFile:
    """A policy, its text, and the text's digest."""

    text: str
    policy: Policy
    digest: str


@dataclass
class Stated:
    """What a folder states, by population; datasets also by their id."""

    populations: dict[str, PopulationFile] = field(default_factory=dict)
    datasets: dict[str, dict[str, DatasetFile]] = field(default_factory=dict)
    policies: dict[str, PolicyFile] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The populations that it is about."""
        return sorted(self.populations.keys() | self.datasets.keys() | self.policies.keys())


def read_folder(folder: Path) -> Stated:
    """Read all files of a folder. Raises Invalid with every file that is wrong, and the line."""
    if not folder.is_dir():
        raise Invalid("bad-folder", f"{folder} is no folder: give one with {_LAYOUT}")
    found, wrong = Stated(), list[str]()
    for path in _files(folder):
        try:
            _take(found, path.relative_to(folder).parts, path.read_text("utf-8"))
        except (Invalid, ValueError) as error:
            reason = getattr(error, "detail", None) or str(error)
            wrong.append(f"{path}: {reason.removeprefix(_ADOPTING)}")
    if wrong:
        raise Invalid("bad-folder", "\n".join([*wrong, "nothing was done: correct the files"]))
    if not found.names:
        raise Invalid("bad-folder", f"{folder} states nothing: it should have {_LAYOUT}")
    return found


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files that are meant: what is hidden, and what is no YAML, is not."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in (".yaml", ".yml") and path.is_file() and not hidden:
            yield path


def _take(found: Stated, parts: tuple[str, ...], text: str) -> None:
    if not parts[-1].endswith(".yaml"):
        raise ValueError("files end in .yaml: name it so")
    names = [*parts[1:-1], parts[-1].removesuffix(".yaml")]
    for name in names:
        if not re.fullmatch(IDENTIFIER, name):
            raise ValueError(f"{name!r} cannot be a name: use small letters, digits, . _ and -")
    match (parts[0], len(names)):
        case ("populations", 1):
            found.populations[names[0]] = parsed(text, PopulationFile, "units")
        case ("datasets", 2):
            dataset = parsed(text, DatasetFile, "")
            found.datasets.setdefault(names[0], {})[names[1]] = dataset
        case ("policies", 1):
            found.policies[names[0]] = PolicyFile(text, *parse_policy(text))
        case _:
            raise ValueError(f"nothing is read from here: files are {_LAYOUT}")


def in_order(datasets: dict[str, DatasetFile]) -> list[str]:
    """Return the ids, each after those that it was made from, else by name."""
    by_name = {f"{one.namespace}/{one.name}": name for name, one in datasets.items()}
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...] = ()) -> None:
        if name in order or name in above:  # a circle is the service's to refuse
            return
        for parent in datasets[name].parents or ():
            if parent in by_name:
                visit(by_name[parent], (*above, name))
        order.append(name)

    for name in sorted(datasets):
        visit(name)
    return order
