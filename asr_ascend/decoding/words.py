"""Words and their times, from the times of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def word_times(tokens: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the words of a text with spaces; each ends with its last token.

    Args:
        tokens: in order, each with "token" (its text), "end_ms" and "emitted_ms". A space in a text
            ends a word.

    Returns:
        The words in order, each with "word", "end_ms" and "emitted_ms".
    """
    words: list[dict[str, Any]] = []
    starts = True
    for token in tokens:
        for number, part in enumerate(token["token"].split(" ")):
            starts = starts or number > 0
            if not part:
                continue
            if starts:
                words.append({"word": ""})
            words[-1] |= {
                "word": words[-1]["word"] + part,
                "end_ms": token["end_ms"],
                "emitted_ms": token["emitted_ms"],
            }
            starts = False
    return words
