"""JSON logs on standard error, an object a line. Headers and bodies hold secrets: never logged.

One name for one thing: ``population``, ``client``, ``outcome``, ``rule``, ``epsilon``, ``reason``;
and of a request ``request_id`` and ``traceparent``.
"""

from __future__ import annotations

import logging
import sys

import orjson
import structlog


def configure() -> None:
    """Send the logs of structlog and of the standard library to standard error in the same form."""
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
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
