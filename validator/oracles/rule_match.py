"""The rule match: an event counts in the result of each rule that it matches.

Source: ShuffleBench (`validator.model.range_rules`). All else is a running aggregate whose results state values.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema

from validator.model.rules import RULES_MAX, ZIPF_MAX, Matching, Rules, single_spaced
from validator.oracles.running_aggregate import WithoutWindows
from validator.oracles.seam import Declared, Reads, Words
from validator.settings.built import Combination
from validator.settings.errors import broken_rule_at

if TYPE_CHECKING:
    import pyarrow as pa

    from validator.settings.topics import Input, Late, TableTopic

HEAD_BYTES: Final = 16
Selectivities = Annotated[str, AfterValidator(single_spaced), WithJsonSchema({"type": "string"})]
WITHOUT_VALUES: Final = Combination(
    ("oracle.kind",),
    "`rule_match` with evidence `ids` or `id`, or with late or rejected topics",
    "matches are counted only in values, without late or rejected topics",
)


@dataclass(frozen=True)
class Matches:
    """The rules that events match, by the first bytes of a record, in Base64."""

    of: Rules
    prefix: str

    def words(self, text: str) -> list[str]:
        """Return the names of the rules that match."""
        from validator.model.range_rules import matcher

        head = _head(text)
        found = matcher(self.of).of(head) if head else []
        return [f"{self.prefix}{rule}" for rule in found]

    def lists(self, texts: pa.Array) -> pa.Array:
        """Return `words` of many texts."""
        import numpy as np
        import pyarrow as pa

        from validator.model.range_rules import matcher

        heads = [_head(text) for text in texts.to_pylist()]
        known = np.flatnonzero([head is not None for head in heads])
        words = np.frombuffer(b"".join(head for head in heads if head), "<u8").reshape(-1, 2)
        places, rules = matcher(self.of).of_words(words[:, 0].copy(), words[:, 1].copy())
        ends = np.concatenate([[0], np.cumsum(np.bincount(known[places], minlength=len(heads)))])
        names = pa.array([f"{self.prefix}{rule}" for rule in rules.tolist()], pa.string())
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names)


class RuleMatch(WithoutWindows):
    """One result per rule over all events so far that match it. An event matches any number of rules. Rule `i` matches
    if the hash of the key, less an offset of its own, is below its share of all hashes; with `hashes`, if a hash whose
    seed is this offset is."""

    kind: Literal["rule_match"]
    """A key for each rule that an event matches: those of ShuffleBench."""
    rules: int | None = Field(default=None, ge=1, le=RULES_MAX, examples=[1000])
    """Number of rules."""
    selectivity: float | None = Field(default=None, gt=0, allow_inf_nan=False, examples=[0.2])
    """Number of rules that an event matches on average."""
    zipf: float = Field(default=0.0, ge=0, le=ZIPF_MAX, allow_inf_nan=False)
    """Exponent of Zipf's law for the shares of the rules; 0: all are equal."""
    selectivities: Selectivities | None = Field(default=None, examples=["0.01=100 0.5=2"])
    """In place of these: shares and their numbers of rules, as `0.01=100 0.5=2`."""
    matching: Matching | None = None
    """`hashes`: see above. Default: `ranges`."""
    prefix: str = "consumer_"
    """The key of results of rule `i` is this text and `i`, counted from 0."""

    refuses: ClassVar[tuple[Combination, ...]] = (*WithoutWindows.refuses, WITHOUT_VALUES)
    counts_rows: ClassVar[bool] = False

    def reading(self, reads: Reads) -> Self:
        """A record may count in several cells."""
        return super().reading(reads._replace(explodes=True))

    def words_of(self, entry: Input | Late | TableTopic) -> Words | None:
        """The names of the rules that an event matches."""
        del entry
        return Matches(self.matched, self.prefix)

    @property
    def matched(self) -> Rules:
        """The rules."""
        return Rules(self.rules or 0, self.selectivity or 0.0, self.zipf, self.selectivities, self.matching or "ranges")

    def check(self, declared: Declared) -> None:
        """Also refuse results with ids, set-aside events, and keys that are not 16 bytes."""
        super().check(declared)
        if self.selectivities is None:
            if self.rules is None or self.selectivity is None:
                name = "rules" if self.rules is None else "selectivity"
                raise broken_rule_at(f"oracle.{name}", "it is not known which rules there are", f"write {name}")
        elif self.model_fields_set & {"rules", "selectivity", "zipf"}:
            fix = "leave out rules, selectivity and zipf"
            raise broken_rule_at("oracle.selectivities", "they say how many rules there are, and their shares", fix)
        if self.reads.names_ids:
            raise broken_rule_at("outputs[0].evidence", WITHOUT_VALUES.problem, "write values")
        for place, _ in declared.set_aside:
            raise broken_rule_at(place, WITHOUT_VALUES.problem, "leave it out")
        for i, one in enumerate(declared.inputs):
            if one.explode is not None:
                raise broken_rule_at(f"inputs[{i}].explode", "a key is matched as a whole", "leave it out")
            places = getattr(one.format, "fields", {})
            at = places.get(one.fields.key[0].path) if len(one.fields.key) == 1 else None
            if getattr(at, "type", None) != "bytes" or getattr(at, "size", None) != HEAD_BYTES:
                problem = f"rules match the first {HEAD_BYTES} bytes of a record"
                fix = f"name a field of format raw, as in head: {{offset: 0, type: bytes, size: {HEAD_BYTES}}}"
                raise broken_rule_at(f"inputs[{i}].fields.key", problem, fix)


def _head(text: str) -> bytes | None:
    """Return the bytes of a key; None if it has none, as that of a record that was not examined."""
    try:
        head = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return head if len(head) == HEAD_BYTES else None
