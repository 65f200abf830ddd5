"""Events that count once for each word of their key (`inputs[].explode`)."""

from __future__ import annotations

import json
import re
from typing import Final, Literal

from validator.settings.fields import Frozen

# Java and RE2 do not agree on the characters of `\s`.
SEPARATORS: Final = {"space": " ", "whitespace": r"[ \t-\r]+", "non_word": "[^0-9A-Za-z_]+"}
"""Where a text is split, as regular expressions that RE2 knows."""


class Explode(Frozen):
    """How the key of an event is split. An event counts in the cell of each word, as often as it has the word."""

    at: Literal["space", "whitespace", "non_word", "items"] = "whitespace"
    r"""`space`: at each space, as `split(" ")` in Java; `whitespace`: at each stretch of white space; `non_word`: at
    each stretch of characters other than letters, digits and `_`, as `split("\\W+")` in Java; `items`: each item of an
    array. The empty word is not judged."""
    case: Literal["as_is", "lower"] = "as_is"
    """`lower`: words are compared in lower case."""

    def words(self, text: str) -> list[str]:
        """Return the words of the key of an event (with `items`, the JSON array of their texts)."""
        text = text.lower() if self.case == "lower" else text
        found: list[str] = json.loads(text) if self.at == "items" else re.split(self.pattern, text, flags=re.ASCII)
        return [word for word in found if word]

    @property
    def pattern(self) -> str:
        """The separator as a regular expression."""
        return SEPARATORS[self.at]
