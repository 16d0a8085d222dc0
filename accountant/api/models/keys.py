"""Answers about keys."""

from __future__ import annotations

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from accountant.api.models.fields import Time


class NewKey(TypedDict):
    """A key, link or session of the last seven days: it makes nobody another person."""

    name: Annotated[str, "whose it is"]
    role: Annotated[str, "the role"]
    by: Annotated[list[str], "who had a part in making it"]
    made: Annotated[Time, "when"]


NewKeys = Annotated[
    list[NewKey], "made by whoever proposed or asked: they confirm nothing of theirs; absent: none"
]


class Rotated(TypedDict):
    """The secret that takes the place of a key."""

    key: Annotated[str, "the new key, shown only once"]
    name: Annotated[str, "the client's name in events"]
    role: Annotated[str, "the role"]
    populations: NotRequired[Annotated[list[str], "that it reaches; absent: all"]]
    until: NotRequired[Annotated[Time, "from when on it is refused; absent: never"]]
    old_until: Annotated[Time, "from when on the old key is refused"]
