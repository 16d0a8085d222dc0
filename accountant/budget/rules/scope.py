"""The scope of a rule: which requests it is about, by what is charged, who asks, and what for.

A request is in scope if one of the datasets that it is charged to is, and if its client and its
purpose are. What a dataset is called never changes; whose it is and what it is labelled may. So a
scope has a fixed part, ``names``, and a part that *moves*: whatever matches the names may come in
and go out. What a dataset is when a request is decided, decides.

Clients and purposes divide a budget. A limit that counts some clients, or some purposes, promises
nothing about the data: others learn beside it, and a purpose is what the client says it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from accountant.budget.population.population import MOST_LABELS, LabelText
from accountant.budget.population.selection import DimensionName, Name

if TYPE_CHECKING:
    from accountant.budget.population.population import Dataset

MOST_PATTERNS: Final = 50
MOST_PURPOSES: Final = 1_000
LONGEST_PATTERN: Final = 200
EVERYTHING: Final = "*"
_ALL: Final = (EVERYTHING,)
ALL: Final = "*"
"""The dataset of a person's total over all datasets. (No dataset id contains a star.)"""


def _ordered(texts: list[str]) -> list[str]:
    """Sort texts, which must differ: their order means nothing, and two spellings of one scope are
    one.
    """
    if len(set(texts)) < len(texts):
        raise PydanticCustomError("stated_twice", "the same is named twice")
    return sorted(texts)


def _plainly(texts: str | list[str]) -> str | list[str]:
    """Spell a single one of several as what it is."""
    return texts[0] if isinstance(texts, list) and len(texts) == 1 else texts


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _some(kind: Any) -> Any:
    """Return the type of a field that names one ``kind`` of text, or a list of them, as a list."""
    return Annotated[
        list[kind],
        BeforeValidator(_several),
        Field(min_length=1, max_length=MOST_PATTERNS),
        AfterValidator(_ordered),
        WithJsonSchema(_schema_of(kind)),
    ]


def _schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a field that names one or several."""
    one = TypeAdapter(kind).json_schema()
    several = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_PATTERNS}
    return {"anyOf": [one, several | {"uniqueItems": True}]}


_Pattern = Annotated[str, Field(min_length=1, max_length=LONGEST_PATTERN)]
if TYPE_CHECKING:
    Ids = str | list[str]
    Patterns = list[str]
    Values = list[str]
    Names = list[str]
else:
    Patterns = _some(_Pattern)
    """Shell-style patterns, of which one has to match."""
    Values = _some(LabelText)
    Names = _some(Name)
    Ids = Annotated[
        Annotated[_Pattern, Tag(":one")] | Annotated[Patterns, Tag(":several")],
        Discriminator(lambda value: ":several" if isinstance(value, list) else ":one"),
        AfterValidator(_plainly),
        WithJsonSchema(_schema_of(_Pattern)),
    ]
    """Patterns over ids of datasets; a single one is spelled as a text."""
Labels = Annotated[dict[LabelText, Values], Field(min_length=1, max_length=MOST_LABELS)]
"""By the key of a label, the value or the values of which a dataset has one."""
Subjects = Annotated[dict[DimensionName, Names], Field(min_length=1)]
"""By dimension, the values of which a cell has one; all dimensions have to match."""
Purposes = Annotated[
    list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_PURPOSES)
]


class Scope(NamedTuple):
    """Which requests a rule is about. An empty part is about all."""

    names: tuple[str, ...] = _ALL
    owners: tuple[str, ...] = ()
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    clients: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether a dataset may come in or go out."""
        return bool(self.owners or self.labels)

    @property
    def partial(self) -> bool:
        """Whether it is about some clients or purposes only."""
        return bool(self.clients or self.purposes)

    def names_it(self, dataset: str) -> bool:
        """Return whether a dataset of this id is, or may come to be, in scope."""
        return any(matches(pattern, dataset) for pattern in self.names)

    def holds(self, dataset: Dataset) -> bool:
        """Return whether a dataset, as it is registered now, is in scope: its id and its owner
        match, and each label that is named has one of the values.
        """
        if self.names == _ALL and not self.moves:  # as most are, asked about a thousand datasets
            return True
        if not self.names_it(dataset.id):
            return False
        owner, labels = dataset.owner, dict(dataset.labels)
        if self.owners and (owner is None or not _one_of(self.owners, owner)):
            return False
        return all(labels.get(key) in values for key, values in self.labels)

    def counts(self, client: str, purpose: object) -> bool:
        """Return whether requests of ``client`` for ``purpose`` are in scope. A purpose that stands
        in no list of the policy is sealed, or free text, and in no scope that names some.
        """
        return self.concerns(client) and (not self.purposes or purpose in self.purposes)

    def concerns(self, client: str) -> bool:
        """Return whether some request of ``client`` is in scope."""
        return not self.clients or _one_of(self.clients, client)

    def seen_by(self, client: str) -> Scope:
        """Return the scope as ``client`` may see it: with no names of clients but its own."""
        return self._replace(clients=tuple(one for one in self.clients if _one_of((one,), client)))

    def meets(self, datasets: Iterable[Dataset], client: str, purpose: object) -> bool:
        """Return whether a request that is charged to ``datasets`` is in scope."""
        return self.counts(client, purpose) and any(map(self.holds, datasets))

    def data(self, *, each: bool = False) -> str:
        """Return the datasets in words: ``each dataset that …``, or ``the datasets that …``."""
        clauses = self._clauses(each=each)
        if not clauses:
            return "each dataset" if each else "all datasets"
        return ("each dataset that " if each else "the datasets that ") + " and ".join(clauses)

    def _clauses(self, *, each: bool) -> list[str]:
        match, are, have = ("matches", "is", "has") if each else ("match", "are", "have")
        found = []
        if self.names != _ALL:
            found.append(f"{match} {either(self.names)}")
        if self.owners:
            found.append(f"{are} owned by {either(self.owners)}")
        if self.labels:
            labels = (f"the label {key} {either(values)}" for key, values in self.labels)
            found.append(f"{have} {' and '.join(labels)}")
        return found

    @property
    def narrowed(self) -> str:
        """What the scope says beyond names, for a place in a refusal; empty if it says nothing."""
        labels = (f"label {key} {either(values)}" for key, values in self.labels)
        parts = [f"owner {either(self.owners)}"] if self.owners else []
        parts += labels
        parts += [f"clients {either(self.clients)}"] if self.clients else []
        parts += [f"purpose {either(self.purposes)}"] if self.purposes else []
        return ", ".join(parts)


def scope_of(
    datasets: str | list[str],
    owners: list[str] | None = None,
    labels: Mapping[str, list[str]] | None = None,
    clients: list[str] | None = None,
    purposes: list[str] | None = None,
) -> Scope:
    """Return the scope that the fields of a rule spell."""
    names = (datasets,) if isinstance(datasets, str) else tuple(datasets)
    named = tuple((key, tuple(values)) for key, values in sorted((labels or {}).items()))
    few = tuple(owners or ()), named, tuple(clients or ()), tuple(purposes or ())
    return Scope(names, *few)


def _one_of(patterns: tuple[str, ...], text: str) -> bool:
    return any(text == pattern or matches(pattern, text) for pattern in patterns)


def either(names: Iterable[str]) -> str:
    """Format names as a choice: “a”, “b” or “c”."""
    *first, last = [f"“{name}”" for name in names]
    return f"{', '.join(first)} or {last}" if first else last


@lru_cache(maxsize=16_384)
def matches(pattern: str, text: str) -> bool:
    """Match a text against a shell-style pattern."""
    return fnmatchcase(text, pattern)
