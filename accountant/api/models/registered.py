"""What is registered: populations, datasets and policies."""

from __future__ import annotations

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from accountant.api.models.values import CountedIn, Rules
from accountant.budget.custody.publication import Publication


class Population(TypedDict):
    """A population."""

    population: Annotated[str, "its name"]
    privacy_unit: Annotated[str, "who or what is protected"]
    neighbouring: Annotated[str, "add_or_remove_one or replace_one"]
    membership: Annotated[str, "public or private"]
    dimensions: Annotated[dict[str, list[str]], "each dimension with its values in order"]
    cells: Annotated[int, "how many cells the dimensions make"]
    sequence: CountedIn


class Dataset(TypedDict):
    """A dataset."""

    id: Annotated[str, "its short id; grants and rules use it"]
    namespace: Annotated[str, "OpenLineage namespace"]
    name: Annotated[str, "OpenLineage name"]
    owner: NotRequired[Annotated[str | None, "who answers for it"]]
    parents: NotRequired[Annotated[list[str], "what it was made from"]]


class PolicyInForce(TypedDict):
    """A policy as it was adopted."""

    digest: Annotated[str, "SHA-256 of the policy file's text, in hex"]
    policy: Annotated[str, "its name"]
    rules: Annotated[Rules, "its rules with every default written out"]
    publication: NotRequired[Annotated[Publication, "its witnesses, if it names any"]]


class AdoptedPolicy(PolicyInForce):
    """What adopting a policy has changed."""

    adopted: Annotated[bool, "false if this very policy was in force already"]
    opens_epoch: Annotated[list[str], "limit rules that begin a new epoch"]


class PopulationInForce(Population):
    """A population with its datasets and policy."""

    datasets: Annotated[list[Dataset], "the datasets"]
    policy: Annotated[PolicyInForce | None, "the policy in force, if one is adopted"]
