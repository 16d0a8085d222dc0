"""JSON logs on standard error, one object a line, each with the request's id. No secrets in them:
headers and bodies are never logged.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast

import orjson
import structlog


def configure(stream: TextIO = sys.stderr) -> None:
    """Sends structlog and the standard library's loggers to ``stream`` in the same form. Ours go
    there straight: every request has a line.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer(serializer=_json)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.BytesLoggerFactory(stream.buffer),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def only_warnings() -> None:
    """What a command prints is for people and scripts: only warnings join it, on standard error."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Errors())),
    )


class _Errors:
    """Standard error as it is when something is written: whoever runs several commands in one
    process may have put another in its place.
    """

    def write(self, text: str) -> None:
        """Writes."""
        sys.stderr.write(text)

    def flush(self) -> None:
        """Writes it now."""
        sys.stderr.flush()


def _json(document: Any, default: Callable[[Any], Any], **_: Any) -> bytes:
    return orjson.dumps(document, default=default)
