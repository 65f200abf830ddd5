"""What the pipeline is declared to compute: the parameters of the oracle that predicts its answers."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from validator.config.built import LOCAL_TIME, SELF_JOIN, Built, refuse_unbuilt
from validator.config.durations import Duration, PositiveDuration, format_duration
from validator.config.errors import broken_rule, broken_rule_at
from validator.config.fields import Frozen

Kind = Literal[
    "passthrough",
    "filter",
    "map",
    "sample",
    "tumbling_window",
    "sliding_window",
    "session_window",
    "windowed_join",
    "interval_join",
    "running_aggregate",
    "distinct",
    "rule_match",
    "reachability",
]
UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "Etc/GMT", "GMT", "Zulu"})


class TumblingWindow(Frozen):
    """Windows of one size, side by side; each event belongs in the one that holds its event time, per key. With
    `windowed_join` two inputs are joined within them, and a result has the ids of both."""

    kind: Annotated[Kind, Built("oracle.kind")]
    """Which oracle: `tumbling_window`, or `windowed_join`, which also needs `join`, `left` and `right`."""
    size: PositiveDuration
    """Length of a window."""
    offset: Duration = 0
    """Shift of the windows' start from the epoch (in `time_zone`); below `size`."""
    time_zone: str = "UTC"
    """IANA name of the zone whose local time the windows are aligned to."""
    closed: Literal["left", "right"] = "left"
    """The end that belongs to the window: `left` is [start, end), `right` is (start, end]."""
    join: Literal["inner", "left"] | None = None
    """Of `windowed_join`: whether both sides must have an event (`inner`), or the left is answered alone (`left`)."""
    left: str | None = None
    """Of `windowed_join`: the input topic on the left; the larger one, where that can be chosen."""
    right: str | None = None
    """Of `windowed_join`: the input topic on the right."""
    values: Annotated[tuple[str, ...], Field(default=())] = ()
    """Aggregates to check: `count`, `sum(field)`, `min`, `max`, `avg`, `distinct(field)`."""

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise broken_rule(f"{name!r} is no known time zone", "write an IANA name such as Europe/Berlin") from None
        return name

    @field_validator("values", mode="before")
    @classmethod
    def _values_built(cls, values: Any) -> Any:
        refuse_unbuilt("oracle.values", values)
        return values

    @model_validator(mode="after")
    def _sane(self) -> TumblingWindow:
        if self.offset >= self.size:
            mend = f"write an offset below {format_duration(self.size)}"
            raise broken_rule_at("offset", f"{format_duration(self.offset)} is not below the size", mend)
        if self.time_zone not in UTC_NAMES:
            mend = "write UTC, with an offset where the windows are shifted by a constant"
            raise broken_rule_at("time_zone", LOCAL_TIME.problem, mend)
        return self

    @model_validator(mode="after")
    def _sides(self) -> TumblingWindow:
        mends = {"join": "write inner or left", "left": "name an input topic", "right": "name the other input topic"}
        for name, mend in mends.items():
            given = getattr(self, name) is not None
            if self.kind == "windowed_join" and not given:
                raise broken_rule_at(name, "oracle windowed_join needs it", mend)
            if self.kind != "windowed_join" and given:
                raise broken_rule_at(name, f"oracle {self.kind} does not use it", "leave it out, or use windowed_join")
        if self.left is not None and self.left == self.right:
            raise broken_rule_at("right", SELF_JOIN.problem, "name the other input")
        return self


Oracle: TypeAlias = TumblingWindow
"""Becomes a union with ``Field(discriminator="kind")`` when an oracle without tumbling windows is built."""
