"""An alert as a mail, over TLS unless the server is on this machine."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from threading import Timer
from typing import Any, Final

from accountant.config.alerts import Mail
from accountant.config.logs import logger
from accountant.notifying.alerting import Told
from accountant.notifying.webhook import Undelivered

_log = logger()
_SECONDS: Final = 10.0
"""For each step of an exchange."""
_WHOLE: Final = 45.0
"""Seconds for all of it: less than the pause before the next attempt."""
_LONGEST: Final = 150
"""Characters of a subject."""


def mailing(mail: Mail, password: str, origin: str) -> Callable[[Told], None]:
    """Return what sends an alert as a mail. ``origin`` is the start of the ledgers' origins."""

    def send(told: Told) -> None:
        try:
            server = _connected(mail)
            try:
                if mail.user:
                    server.login(mail.user, password)
                refused = server.send_message(written(told, mail, origin))
                with suppress(smtplib.SMTPException, OSError):  # it is taken by now
                    server.quit()
            finally:
                server.close()
        except smtplib.SMTPResponseException as error:  # whose text may hold addresses
            reason = f"the mail server answers {error.smtp_code}"
            raise Undelivered(f"{type(error).__name__}: {reason}") from None
        except smtplib.SMTPException as error:
            raise Undelivered(type(error).__name__) from None
        except OSError as error:
            raise Undelivered(f"{type(error).__name__}: {error.strerror or error}") from None
        if refused:
            _log.error("a mail was not taken for all", refused=len(refused), of=len(mail.to))

    return send


class _Bounded(smtplib.SMTP):
    """A connection that is cut after the time for all of it, however many steps that has."""

    def connect(self, *place: Any, **more: Any) -> tuple[int, bytes]:
        """Connect, and read the greeting."""
        self._timer = Timer(_WHOLE, self._cut)
        self._timer.start()
        try:
            return super().connect(*place, **more)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._timer.cancel()
        super().close()

    def _cut(self) -> None:
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


class _BoundedTls(_Bounded, smtplib.SMTP_SSL):
    """The same with TLS from the beginning."""


def _connected(mail: Mail) -> smtplib.SMTP:
    """Return a connection, with TLS where the settings say so: without it nothing is sent."""
    if mail.security == "tls":
        context = ssl.create_default_context()
        return _BoundedTls(mail.host, mail.port, timeout=_SECONDS, context=context)
    server = _Bounded(mail.host, mail.port, timeout=_SECONDS)
    try:
        if mail.security == "starttls":
            server.starttls(context=ssl.create_default_context())
    except BaseException:
        server.close()
        raise
    return server


def written(told: Told, mail: Mail, origin: str) -> EmailMessage:
    """Return an alert as a mail. Each attempt has the same id, so that mailboxes may know it."""
    message = EmailMessage()
    sentence = " ".join(told.sentence.split())
    short = sentence if len(sentence) <= _LONGEST else f"{sentence[: _LONGEST - 1]}…"
    message["Subject"] = short
    message["From"], message["To"] = mail.sender, ", ".join(mail.to)
    message["Date"] = format_datetime(datetime.fromisoformat(told.time))
    message["Message-ID"] = f"<{told.id}@{origin.partition('/')[0].partition(':')[0]}>"
    message["Auto-Submitted"] = "auto-generated"
    lines = [sentence, "", *(f"* {' '.join(part.split())}" for part in told.parts)]
    lines += [""] if told.parts else []
    lines += [f"First seen: {told.time}", f"Kind of alert: {told.kind}"]
    message.set_content("\n".join([*lines, *([f"Page: {told.page}"] if told.page else [])]) + "\n")
    return message
