"""JSON logs on standard error, an object a line. Headers and bodies hold secrets: never logged.

One name for one thing: ``population``, ``client``, ``outcome``, ``rule``, ``epsilon``, ``reason``;
and of a request ``request_id`` and ``traceparent``.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, ClassVar


class _Logger:
    """A logger that loads structlog when something is logged: commands seldom log anything, and a
    tenth of their start would be spent on it.
    """

    quiet: ClassVar[bool] = False
    """Whether structlog is still to be told to send warnings only."""

    def __getattr__(self, name: str) -> Any:
        if _Logger.quiet and name in ("debug", "info"):
            return _dropped
        import structlog  # noqa: PLC0415 see above

        if _Logger.quiet:
            _only_warnings()
        return getattr(structlog.get_logger(), name)


def _dropped(*_: object, **__: object) -> None:
    """Log nothing: only warnings are sent."""


def logger() -> Any:
    """Return a logger of structlog's. Whatever commands import takes its logger here."""
    return _Logger()


def configure() -> None:
    """Send the logs of structlog and of the standard library to standard error in the same form."""
    import orjson  # noqa: PLC0415 (only a service logs this way)
    import structlog  # noqa: PLC0415

    _Logger.quiet = False
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer(serializer=orjson.dumps)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[strip, structlog.processors.JSONRenderer()]
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for name in ("apscheduler", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def only_warnings() -> None:
    """Send warnings only, as text, to standard error: standard output is for the command."""
    if "structlog" in sys.modules:
        _only_warnings()
    else:
        _Logger.quiet = True


def _only_warnings() -> None:
    import structlog  # noqa: PLC0415 see above

    _Logger.quiet = False
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
