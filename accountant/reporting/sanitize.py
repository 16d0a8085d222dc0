"""Text from outside, as people may be shown it."""

from __future__ import annotations


def visible(text: str) -> str:
    """Text from outside in one line, with invisible and direction-changing characters replaced.

    Joiners stay: Persian and Indian scripts need them.
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or character in "\u200c\u200d":
        return character
    return " " if character.isspace() else "\ufffd"
