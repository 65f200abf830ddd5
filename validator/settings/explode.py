"""Events that count once for each word of their key (`inputs[].explode`)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, Literal

from validator.settings.fields import Frozen

if TYPE_CHECKING:
    import pyarrow as pa

# Java and RE2 do not agree on the characters of `\s`.
SEPARATORS: Final = {"space": " ", "whitespace": r"[ \t-\r]+", "non_word": "[^0-9A-Za-z_]+"}
"""Where a text is split, as regular expressions that RE2 knows."""


class Explode(Frozen):
    """How the key of an event is split. An event counts in the cell of each word, as often as it has the word."""

    at: Literal["space", "whitespace", "non_word", "items"] = "whitespace"
    r"""`space`: at each space, as `split(" ")` in Java; `whitespace`: at each stretch of white space; `non_word`: at
    each stretch of characters other than letters, digits and `_`, as `split("\\W+")` in Java; `items`: each scalar
    of an array. The empty word is not judged."""
    case: Literal["as_is", "lower"] = "as_is"
    """`lower`: words are compared in lower case."""

    def words(self, text: str) -> list[str]:
        """Return the words of the key of an event (with `items`, the JSON array of their texts)."""
        text = text.lower() if self.case == "lower" else text
        found: list[str] = json.loads(text) if self.at == "items" else re.split(self.pattern, text, flags=re.ASCII)
        return [word for word in found if word]

    def lists(self, texts: pa.Array) -> pa.Array:
        """Return `words` of many texts. Some may be empty."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.case == "lower":
            is_plain = pc.all(pc.string_is_ascii(texts)).as_py()
            # Arrow changes each character alone; Java and Python also look at those beside it.
            texts = (
                pc.ascii_lower(texts)
                if is_plain
                else pa.array([each.lower() for each in texts.to_pylist()], texts.type)
            )
        if self.at != "items":
            return pc.split_pattern_regex(texts, self.pattern)
        # The key of a record that was not examined is the reason.
        split = [self.words(text) if text.startswith("[") else [] for text in texts.to_pylist()]
        return pa.array(split, pa.list_(pa.string()))

    @property
    def pattern(self) -> str:
        """The separator as a regular expression."""
        return SEPARATORS[self.at]
