"""The running aggregate: one result per key over all of its events so far, without a window.

Source: SEMANTICS 2.14 and 2.16; docs/oracles/running_aggregate.md. Every event must be in a result of its key.
A cell is one id of one key. Each event is therefore due on its own, once the watermark has passed its time. A result of
a key is an observation of each id that it lists (`validator.reconcile.by_id`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from pydantic import Field

from validator.oracles.seam import Assigned, Declared, Oracle, Reads
from validator.settings.built import Combination
from validator.settings.errors import broken_rule_at

if TYPE_CHECKING:
    from validator.model.arrays import Ints
    from validator.settings.topics import Output

DROP_WITHOUT_WINDOWS: Final = Combination(
    ("timing.late_policy",),
    "`drop` with `running_aggregate`",
    "late policy drop is not supported for a running aggregate, which has no windows that close",
)
VALUES_NOT_CUMULATIVE: Final = Combination(
    ("outputs.emission",),
    "all but `cumulative`, for values of a `running_aggregate`",
    "values of a running aggregate are those of all events of the key so far",
)
VALUES_IN_SEVERAL: Final = Combination(
    ("outputs.evidence",),
    "`values` with `running_aggregate`, for one of several outputs",
    "values of a running aggregate are not supported yet for several outputs",
)
DISTINCT_OF_KEYS: Final = Combination(
    ("oracle.values",),
    "`distinct(PATH)` with `running_aggregate`",
    "the number of different values of a running aggregate is not supported yet",
)
EVERY_UNSEEN: Final = Combination(
    ("oracle.every",),
    "above 1 with late or rejected topics, `table`, or results without `count`",
    "only the number of events in a result shows which of them owe one",
)


class WithoutWindows(Oracle):
    """The base of oracles of keys without windows."""

    every: int = Field(default=1, ge=1, examples=[10])
    """A key has a result, of all events so far, after every so many of them; the others owe none yet."""

    refuses: ClassVar[tuple[Combination, ...]] = (
        *(DROP_WITHOUT_WINDOWS, VALUES_NOT_CUMULATIVE, VALUES_IN_SEVERAL, DISTINCT_OF_KEYS, EVERY_UNSEEN),
    )
    cell_noun: ClassVar[str] = "time"
    noun: ClassVar[str] = "running aggregate of its key"
    judges_values: ClassVar[bool] = True
    accepts_cumulative: ClassVar[bool] = True
    counts_rows: ClassVar[bool] = True
    ends_are_known: ClassVar[bool] = False
    result_time: ClassVar[Literal["window_start", "event_time"] | None] = None

    @property
    def by_id(self) -> bool:
        """Whether results list ids."""
        return self.reads.names_ids

    @property
    def by_key(self) -> bool:
        """Whether results state values: which events of a key they used is not known."""
        return not self.reads.names_ids

    @property
    def results_every(self) -> int:
        """As configured."""
        return self.every

    @property
    def grid_us(self) -> int:
        """Any distance: cells have no start."""
        return 1

    @property
    def span_us(self) -> int:
        """An event's cell ends at the next instant."""
        return 1

    @property
    def ends_after_us(self) -> int | None:
        """An event is due once the watermark has passed its time."""
        return 1

    def assigned(self, event_times_us: Ints) -> Assigned:
        """Cells have no start."""
        return Assigned(None, _absent(event_times_us))

    def starts_of_results(self, named_us: Ints) -> Ints:
        """Results name no window."""
        return named_us

    def ends_us(self, starts_us: Ints) -> Ints:
        """A cell without a known event has nothing to wait for."""
        return _absent(starts_us)

    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """Lateness excuses nothing here (`check`), so nothing depends on the value."""
        del slack_us
        return event_times_us * 0

    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """As `reaches_us`."""
        return self.reaches_us(starts_us, slack_us)

    def check_times(self, outputs: Sequence[Output]) -> None:
        """Also refuse evidence `id` with emission `cumulative`."""
        super().check_times(outputs)
        for i, output in enumerate(outputs):
            place = f"outputs[{i}]"
            if output.emission == "cumulative" and output.evidence == "id":
                problem = "with emission cumulative, a result replaces the earlier ones of its key, so it needs all ids"
                raise broken_rule_at(f"{place}.evidence", problem, "use evidence ids, or emission final")

    def check_values(self, declared: Declared) -> None:
        """Refuse values in results that add up, in several outputs, and numbers of different values."""
        if declared.outputs[0].emission != "cumulative":
            raise broken_rule_at("outputs[0].emission", VALUES_NOT_CUMULATIVE.problem, "write cumulative")
        if len(declared.outputs) > 1:
            raise broken_rule_at("outputs[1].evidence", VALUES_IN_SEVERAL.problem, "write one output per pipeline")
        if self.stated.hashed:
            raise broken_rule_at("oracle.values", DISTINCT_OF_KEYS.problem, "leave it out, or use windows")

    def check(self, declared: Declared) -> None:
        """Also refuse late policy `drop`."""
        super().check(declared)
        if declared.drops_late:
            raise broken_rule_at("timing.late_policy", DROP_WITHOUT_WINDOWS.problem, "write report")
        is_seen = self.by_key and self.stated.count_name is not None and not self.reads.signed
        if self.every > 1 and (not is_seen or declared.set_aside):
            raise broken_rule_at("oracle.every", EVERY_UNSEEN.problem, "leave it out")


class RunningAggregate(WithoutWindows):
    """One result per key over all of its events so far, without windows. Each event belongs in a result of its key."""

    kind: Literal["running_aggregate"]
    """A key without windows."""

    @classmethod
    def of(cls, *, replaces: bool = False) -> Self:
        """Return an oracle that is not read from a file. ``replaces``: emission `cumulative`."""
        return cls.model_construct(kind="running_aggregate").reading(Reads(replaces=replaces))


def _absent(like: Ints) -> Ints:
    import numpy as np

    from validator.model.arrays import ABSENT

    return np.full_like(like, ABSENT)
