"""Answers about keys."""

from __future__ import annotations

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from accountant.api.models.fields import Time


class Rotated(TypedDict):
    """The secret that takes the place of a key."""

    key: Annotated[str, "the new key, shown only once"]
    name: Annotated[str, "the client's name in events"]
    role: Annotated[str, "the role"]
    populations: NotRequired[Annotated[list[str], "that it reaches; absent: all"]]
    until: NotRequired[Annotated[Time, "from when on it is refused; absent: never"]]
    old_until: Annotated[Time, "from when on the old key is refused"]
