"""How an alert goes to a channel: as a signed webhook that is a CloudEvent, as a message to a chat,
or as a mail (``mail.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from accountant.budget.facts import SECOND
from accountant.config.alerts import AlertSettings, Channel, Slack, Webhook, secret_in, sound
from accountant.notifying.alerting import Told, Way
from accountant.notifying.webhook import Message, deliver, post, secret_of
from accountant.runtime.clock import wall_clock

_MEDIA_TYPE: Final = "application/cloudevents+json"


def ways_of(settings: AlertSettings, origin: str) -> list[Way]:
    """Return each channel with what sends there. ``origin`` is the start of the ledgers' origins.
    Raise ValueError, naming the channel and not showing a secret.
    """
    return [Way(one, _way(one, origin)) for one in settings.channels]


def _way(channel: Channel, origin: str) -> Callable[[Told], None]:
    if channel.webhook is not None:
        return _webhook(channel.name, channel.webhook, origin)
    if channel.slack is not None:
        return _slack(channel.name, channel.slack)
    assert channel.mail is not None  # noqa: S101 the settings have checked it
    from accountant.notifying.mail import mailing  # noqa: PLC0415 few have any

    password = channel.mail.password_file
    secret = "" if password is None else secret_in(password, channel.name)
    return mailing(channel.mail, secret, origin)


def _slack(name: str, slack: Slack) -> Callable[[Told], None]:
    try:
        url = sound(secret_in(slack.url_file, name))
    except ValueError as error:
        raise ValueError(f"channel {name}: {error}") from None

    def send(told: Told) -> None:
        deliver(url, orjson.dumps({"text": in_chat(told)}), {"content-type": "application/json"})

    return send


def in_chat(told: Told) -> str:
    """Return an alert as a line of a chat, in which ``&``, ``<`` and ``>`` are marks; several as
    lines.
    """
    text = "\n• ".join(" ".join(one.split()) for one in (told.sentence, *told.parts))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    space = "\n" if told.parts else " "
    return f"{text}{space}<{told.page}|Open>" if told.page else text


def _webhook(name: str, webhook: Webhook, origin: str) -> Callable[[Told], None]:
    try:
        secret = secret_of(secret_in(webhook.secret_file, name))
    except ValueError as error:
        raise ValueError(f"channel {name}: {error}") from None

    def send(told: Told) -> None:
        message = Message(told.id, cloud_event(told, origin), _MEDIA_TYPE)
        post(webhook.url, message, secret, wall_clock() // SECOND)

    return send


def cloud_event(told: Told, origin: str) -> bytes:
    """Return an alert as a CloudEvent 1.0 in the structured mode, JSON (cloudevents.io)."""
    data = {
        "kind": told.kind,
        "sentence": told.sentence,
        "population": told.population,
        "dataset": told.dataset,
        "rule": told.rule,
        "page": told.page,
    }
    event = {
        "specversion": "1.0",
        "id": told.id,
        "source": f"//{origin}/{told.population}",
        "type": f"accountant.alert.{told.kind}",
        "time": told.time,
        "datacontenttype": "application/json",
        "data": {name: value for name, value in data.items() if value},
    }
    if told.dataset and told.dataset != "*":
        event["subject"] = told.dataset
    return orjson.dumps(event)
