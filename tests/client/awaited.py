"""Derives the asynchronous client from the blocking one: ``python tests/client/awaited.py``.

Both have to say the same. So only ``sync.py`` is written, and a test holds ``aio.py`` against it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "accountant" / "client"
HEAD: Final = '''"""The client for asynchronous programs: the blocking one, awaited.

Derived from ``sync.py``: change that one, and run ``make async-client``.
"""'''

WORDS: Final = [
    ('"""The blocking client."""', HEAD),
    ("import os\nimport time\n", "import asyncio\nimport os\n"),
    ("import Callable, Iterator, Mapping", "import AsyncIterator, Awaitable, Callable, Mapping"),
    ("that waits for its answers; closes as a context manager. Not thread-safe.",
     "that awaits its answers; closes as an asynchronous context manager."),
    ("httpx2.Client | Plain", "httpx2.AsyncClient"),
    ("    import httpx2\n\n    from accountant.client.plain import Plain\n", "    import httpx2\n"),
    ("            # Loads httpx2: half of the time that the client takes to load.\n"
     "            from accountant.client.plain import opened  # noqa: PLC0415\n",
     "            import httpx2  # noqa: PLC0415 (half of the time that the client takes to load)"
     "\n"),
    ("opened(self.url, self._options)", "httpx2.AsyncClient(**self._options)"),
    ("self._open.close()", "await self._open.aclose()"),
    ("time.sleep(", "await asyncio.sleep("),
    ("http.request(", "await http.request("),
    ("with http.stream(", "async with http.stream("),
    ("for part in response.iter_bytes()", "async for part in response.aiter_bytes()"),
    ("response.read()", "await response.aread()"),
    ("__enter__", "__aenter__"),
    ("__exit__", "__aexit__"),
    ("        self.close()\n", "        await self.close()\n"),
    ("Iterator[", "AsyncIterator["),
    ("class Sender(", "class AsyncSender("), ("(Sender)", "(AsyncSender)"),
    ("from accountant.client.reservations",
     "from accountant.client.pending import Pending\nfrom accountant.client.reservations"),
    ("        return self._granted(", "        return Pending(self._granted("),
    ("tracked=tracked), waits=waits)", "tracked=tracked), waits=waits))"),
    ("        return self._opened(call)", "        return Pending(self._opened(call))"),
    ("for item in self._listed()", "async for item in self._listed()"),
    ("Callable[[Callable[P, T]], Callable[P, T]]",
     "Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]"),
    ("def decorate(function: Callable[P, T]) -> Callable[P, T]:",
     "def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:"),
    ("def paid(", "async def paid("),
    ("with self.grant(dataset", "async with self.grant(dataset"),
    ("            yield from page[0]\n",
     "            for each in page[0]:\n                yield each\n"),
    ("return function(*args", "return await function(*args"),
]  # fmt: skip
PLAIN: Final = {"__init__", "_http", "from_env", "grant", "sparse_vector", "charged", "use"}
"""Methods that await nothing themselves."""


def derived(text: str) -> str:
    """Return the asynchronous form of the blocking client's source."""
    for old, new in WORDS:
        if old not in text:
            raise SystemExit(f"the blocking client no longer has {old!r}: mend this program")
        text = text.replace(old, new)
    for name in ("Grant", "Session", "Client"):
        text = re.sub(rf"(?<![A-Za-z.]){name}(?=[(:,\]]| \|)", f"Async{name}", text)
    text = re.sub(r"-> Async(\w+):\n", r"-> Async\1:\n", text)
    for name in ("Grant", "Session"):
        text = text.replace(f"-> {name}:", f"-> Async{name}:")
    for method, kind in (("grant", "Grant"), ("sparse_vector", "Session")):
        pattern = rf"(    def {method}\(.*?\) -> )Async{kind}:"
        text = re.sub(pattern, rf"\1Pending[Async{kind}]:", text, flags=re.DOTALL)
    for name in set(re.findall(r"^    def (\w+)\(", text, re.MULTILINE)) - PLAIN:
        text = re.sub(rf"^    def {name}\(", f"    async def {name}(", text, flags=re.MULTILINE)
    for call in ("self.send(", "self._client.send(", "self._client.report_what_ran(",
                 "self.report_what_ran(", "self._client.receipt(", "self.checkpoint()",
                 "self._received(", "self.until_decided("):  # fmt: skip
        text = text.replace(call, f"await {call}")
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-q", "--config", "pyproject.toml", "-"],
        input=text, capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return formatted.stdout


if __name__ == "__main__":
    (FOLDER / "aio.py").write_text(derived((FOLDER / "sync.py").read_text()))
