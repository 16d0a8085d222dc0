"""Text from outside made safe to show."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return text from outside in one line, invisible and direction-changing characters replaced
    (but for joiners, which Persian and Indian scripts need).
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or character in "\u200c\u200d":
        return character
    return " " if character.isspace() else "\ufffd"
