"""What an asynchronous call that opens something returns: to be awaited, or entered at once."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

H = TypeVar("H", bound=AbstractAsyncContextManager[Any])


class Pending(Generic[H]):
    """``grant = await ledger.grant(…)``, or ``async with ledger.grant(…) as grant``."""

    def __init__(self, opening: Coroutine[Any, Any, H]) -> None:
        self._opening = opening
        self._opened: H | None = None

    def __await__(self) -> Generator[Any, Any, H]:
        return self._opening.__await__()

    async def __aenter__(self) -> H:
        self._opened = await self._opening
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._opened.__aexit__(*error) if self._opened is not None else None
