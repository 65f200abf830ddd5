"""ShuffleBench: each record goes to the consumers whose rules match it, which count and add up. See
`generator.shufflebench`.

ShuffleBench's ``AdvancedStateConsumer`` starts again after each result (with the output rate of its fault studies,
after each record), so that a lost state cannot be seen, and how records are distributed over results depends on their
order. Here a consumer keeps its count, as its ``CountingConsumer`` does, and its sum; it states both at the output
rate.

The sum is modulo 2^64, as published. Start and end are the least and the largest time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, Field, model_validator

from generator.sections import Count, Share
from generator.shufflebench import LEAST_RECORD_BYTES, NAMED_MEAN_MAX, RECORDS, RecordWire, name_of, state_bytes
from generator.workloads.operations import Running
from generator.workloads.seam import Load, Stream
from validator.model.range_rules import HASHED_BYTES, AnyMatcher, matcher
from validator.model.rules import RULES_MAX, ZIPF_MAX, Matching, Rules, pairs_in, single_spaced

LEAST_STATE_BYTES: Final = 32
HASHED_MAX: Final = 1_000
_STATE: Final = {
    name: {"offset": 8 * place, "type": "int64"} for place, name in enumerate(("count", "sum", "start", "end"))
}


class ShuffleBench(Running):
    """Records are counted and added up per consumer, of which a record has any number."""

    kind: ClassVar[str] = "shufflebench"
    streams: ClassVar[tuple[Stream, ...]] = (RECORDS,)
    sets_aside: ClassVar[bool] = False
    aggregates: ClassVar[Mapping[str, str]] = {
        "count": "count", "sum": "sum_mod64(id)", "start": "min(time)", "end": "max(time)",
    }  # fmt: skip
    rules: Annotated[int, Field(gt=0, le=RULES_MAX)] = 20_000
    """Number of consumers. This and the next two are those of ShuffleBench's fault studies."""
    selectivity: Annotated[Share, Field(gt=0)] = 0.5
    """Mean number of consumers of a record."""
    zipf: Annotated[float, Field(ge=0, le=ZIPF_MAX)] = 0.0
    """The exponent of Zipf's law for the shares of the consumers; 0: all have the same."""
    selectivities: Annotated[str, AfterValidator(single_spaced)] | None = None
    """In place of the three: shares, each with its number of consumers, as ``0.01=100 0.5=2``."""
    matching: Matching = "ranges"
    """How rules match. ``hashes`` computes a hash for each rule and record, for at most `HASHED_MAX` rules."""
    output_rate: Count = 1
    """Number of records of a consumer from one result to the next. ShuffleBench's default is 10."""
    record_bytes: Annotated[int, Field(ge=LEAST_RECORD_BYTES)] = 1024
    """Size of a record."""
    state: Annotated[int, Field(ge=LEAST_STATE_BYTES)] = LEAST_STATE_BYTES
    """Size of a consumer's state, and of a result, in bytes."""

    @model_validator(mode="after")
    def _says_the_rules_once(self) -> Self:
        alike = sorted(self.model_fields_set & {"rules", "selectivity", "zipf"})
        if self.selectivities is not None and alike:
            raise ValueError(f"selectivities say which consumers there are; leave out {', '.join(alike)}")
        pairs = [(0.0, self.rules)] if self.selectivities is None else pairs_in(self.selectivities)
        if (mean := sum(share * number for share, number in pairs)) > NAMED_MEAN_MAX:
            raise ValueError(
                f"selectivities: a record has room for {NAMED_MEAN_MAX} consumers on average, not {mean:g}"
            )
        if self.matching == "hashes" and (rules := sum(number for _, number in pairs)) > HASHED_MAX:
            problem = f"hashes would be computed for each record and each of {rules:,} rules"
            raise ValueError(f"matching: {problem}; have at most {HASHED_MAX:,}")
        return self

    def wire(self, stream: Stream, load: Load) -> RecordWire:
        """The records."""
        del stream
        return RecordWire(load.plan.seed, self._matcher, self.record_bytes)

    def routed(self, value: bytes) -> Sequence[str] | None:
        """The consumers, by the engine's own matching."""
        return [name_of(rule) for rule in self._matcher.of(value[:HASHED_BYTES])]

    def operator(self, window_ms: int) -> dict[str, Any]:
        """With the output rate."""
        return {**super().operator(window_ms), "every": self.output_rate}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """The rules, and the output rate."""
        if self.selectivities is None:
            rules: dict[str, Any] = {"rules": self.rules, "selectivity": self.selectivity, "zipf": self.zipf}
        else:
            rules = {"selectivities": self.selectivities}
        if self.matching != "ranges":
            rules["matching"] = self.matching
        return {**super().oracle(inputs, window_ms), "kind": "rule_match", **rules, "every": self.output_rate}

    def stated(self, members: dict[str, Any]) -> bytes:
        """The state. The Kafka key has the consumer."""
        return state_bytes(members, self.state)

    def output(self, inputs: Sequence[str]) -> dict[str, Any]:
        """The state as bytes."""
        of_values = super().output(inputs)
        of_values["fields"]["key"] = "$key"
        return {**of_values, "format": {"kind": "raw", "fields": _STATE}, "key_format": "json"}

    @property
    def _rules(self) -> Rules:
        return Rules(self.rules, self.selectivity, self.zipf, self.selectivities, self.matching)

    @property
    def _matcher(self) -> AnyMatcher:
        return matcher(self._rules)
