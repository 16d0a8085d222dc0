"""What a call says of itself for the documentation, beside its handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

Handler = TypeVar("Handler", bound=Callable[..., Any])
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Call:
    """What a call takes and gives.

    ``gives`` is a class of ``accountant.api.models``, None where the answer is no JSON; ``takes``
    is the model of the body. ``within`` names fields of it that stand in the path. ``topics`` are
    those of the problems that it may meet (``description/problem_codes.py``).
    """

    gives: Any = None
    takes: type[BaseModel] | None = None
    within: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    media: tuple[str, ...] = (JSON,)


def call(
    gives: Any = None,
    takes: type[BaseModel] | None = None,
    *,
    within: str = "",
    topics: str = "",
    media: str = JSON,
) -> Callable[[Handler], Handler]:
    """Describe a handler; lists are words with spaces between them."""

    def described(handler: Handler) -> Handler:
        split = (tuple(words.split()) for words in (within, topics, media))
        handler.call = Call(gives, takes, *split)  # type: ignore[attr-defined]
        return handler

    return described
