"""What an oracle is: the parameters of one kind, which cells an event belongs to, and what a cell owes.

One file of this package is one family of oracles. `validator.oracles.kinds` finds it, and the configuration, the Spark
stage and the core use it through the methods of `Oracle` only. docs/oracles/README.md says how to add one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, PrivateAttr, field_validator

from validator.oracles.ids import ById, Flags, Seen, window_classes
from validator.settings.built import CUMULATIVE, ID_SPACES, Combination, refuse_unbuilt
from validator.settings.errors import broken_rule_at
from validator.settings.fields import Frozen

if TYPE_CHECKING:
    from validator.codecs.conditions import Condition
    from validator.model.id_spaces import IdSpace
    from validator.settings.topics import Input, Late, Output

Ints = npt.NDArray[np.int64]


class Assigned(NamedTuple):
    """Contributions of events to cells, one entry each, all of an event side by side or not. ``events``: row of the
    event; None where entry i is that of event i. ``starts``: start of the cell, in microseconds."""

    events: Ints | None
    starts: Ints


class Reads(NamedTuple):
    """What the topics of a pipeline mean for its cells. ``joined_keys``: a key is of several fields. ``replaces``: the
    newest result of a key replaces the earlier ones (emission `cumulative`)."""

    joined_keys: bool = False
    replaces: bool = False

    @classmethod
    def of_topics(cls, inputs: Sequence[Input], outputs: Sequence[Output]) -> Self:
        """Those of topics that passed `Oracle.check`."""
        replaces = any(output.emission == "cumulative" for output in outputs)
        return cls(joined_keys=len(inputs[0].fields.key) > 1, replaces=replaces)


class Oracle(Frozen):
    """One kind of oracle. All instants are microseconds since the epoch; arrays have one entry per event or cell.

    A cell is (start, key). Starts of one oracle lie on a grid, `grid_us` apart; that of a result may be any instant.
    Where cells are `by_id`, a cell is one id of a key, and has no start.
    """

    kind: str
    """Which oracle."""
    values: Annotated[tuple[str, ...], Field(default=())] = ()
    """Aggregates to check: `count`, `sum(field)`, `min`, `max`, `avg`, `distinct(field)`."""

    refuses: ClassVar[tuple[Combination, ...]] = ()
    """What this oracle refuses beside others only: the documents name it."""
    compares_all: ClassVar[bool] = False
    """Whether fingerprints decide nothing: every cell with an answer, or overdue, is compared id by id."""
    drops_repeats: ClassVar[bool] = False
    """Whether the pipeline drops repeated ids, so that a cell owes each id once: what `inputs[].duplicates: collapse`
    says of a pipeline of any other oracle."""
    asks_lateness: ClassVar[bool] = False
    """Whether what a cell owes depends on which events were late, also where lateness is no excuse."""
    hidden_inputs_lose: ClassVar[bool] = False
    """Whether a record that cannot be read may explain that contributions are missing."""
    ends_are_known: ClassVar[bool] = True
    """Whether the end of a cell follows from its start (`ends_after_us`): only then settled cells can leave memory."""
    noun: ClassVar[str] = "window from"
    """How a cell is called before its start."""
    by_id: ClassVar[bool] = False
    """Whether there are no windows, and every id of a key is a cell of its own (`validator.reconcile.by_id`), which
    begins with its first event."""
    result_time: ClassVar[Literal["window_start", "event_time"] | None] = "window_start"
    """The field of a result that names its cell; None where its key and its ids do."""
    _reads: Reads = PrivateAttr(default=Reads())

    @field_validator("values", mode="before")
    @classmethod
    def _values_built(cls, values: Any) -> Any:
        refuse_unbuilt("oracle.values", values)
        return values

    @property
    def rounding(self) -> Literal["down", "up"]:
        """To which microsecond an event time that is finer goes, so that it stays on its side of every boundary."""
        return "down"

    @property
    @abstractmethod
    def grid_us(self) -> int:
        """Distance of neighbouring starts."""

    @property
    @abstractmethod
    def span_us(self) -> int:
        """Longest time from an event to the end of its cell, as far as it is known beforehand."""

    @property
    def result_span_us(self) -> int | None:
        """Distance of the two ends that a result may name; None where any will do."""
        return None

    @property
    def ends_after_us(self) -> int | None:
        """Where events put off the end of their cell: the end is so long after the last one. None: `ends_us` says it
        all."""
        return None

    @property
    def merging_gap_us(self) -> int | None:
        """Where cells merge: the cell of a key on the next place of the grid becomes one with a cell, where its first
        event is at most so long after the other's last. `ends_after_us` is given, too."""
        return None

    @property
    def reads(self) -> Reads:
        """What the topics of its pipeline mean for its cells."""
        return self._reads

    def reading(self, reads: Reads) -> Self:
        """This oracle, once it took up what the topics of its pipeline mean for its cells."""
        self._reads = reads
        return self

    @property
    def scope_margin_us(self) -> int:
        """A cell that starts within this of the horizon is out of scope, too."""
        return 0

    @property
    def condition(self) -> Condition | None:
        """What must hold for an event, so that a result is owed for it; None where all contribute."""
        return None

    @property
    def cells_most(self) -> int:
        """To how many cells an event belongs at most."""
        return 1

    @property
    def explained_by_one(self) -> int | None:
        """How many contributions one record that cannot be read may explain; None: all of a cell."""
        return 1

    @abstractmethod
    def assigned(self, event_times_us: Ints) -> Assigned:
        """The cells that events, or late and rejected records, belong to."""

    def starts_of_results(self, named_us: Ints) -> Ints:
        """The starts of the cells that results are of, which name these instants."""
        return named_us

    @abstractmethod
    def ends_us(self, starts_us: Ints) -> Ints:
        """The ends of cells: the first instant of which an event belongs to none of them any more."""

    @abstractmethod
    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """The largest ends of cells at or before ``event time - slack``: what events prove to be past."""

    @abstractmethod
    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """`reaches_us` of the latest event that each cell can hold."""

    def reach_at(self, instant_us: int, slack_us: int) -> int:
        """`reaches_us` of one event time."""
        return int(self.reaches_us(np.array([instant_us], dtype=np.int64), slack_us)[0])

    def classes(self, seen: Seen, flags: Flags, texts: Sequence[str], *, collapse: bool, drops_late: bool) -> ById:
        """What becomes of each (cell, id). ``texts``: those of textual ids, by number. ``drops_late``: late policy
        `drop`."""
        del texts, drops_late
        return window_classes(seen, flags, collapse=collapse)

    def spaces(self, inputs: Sequence[Input]) -> Mapping[str, IdSpace]:
        """Input topic -> its id space; empty where all inputs share one."""
        del inputs
        return {}

    def check(
        self,
        inputs: Sequence[Input],
        outputs: Sequence[Output],
        set_aside: Iterable[tuple[str, Late]],
        *,
        drops_late: bool,
    ) -> None:
        """Raise the refusal of what this oracle cannot do with these topics. ``set_aside``: late and rejected ones,
        with their place in the file. ``drops_late``: late policy `drop`."""
        del inputs, drops_late
        self.check_times(outputs)
        problem, mend = ID_SPACES.problem, "leave input out"
        for i, output in enumerate(outputs):
            if any(path.input is not None for path in output.fields.ids or ()):
                raise broken_rule_at(f"outputs[{i}].fields.ids", problem, mend)
        for place, late in set_aside:
            if late.input is not None:
                raise broken_rule_at(f"{place}.input", problem, mend)

    def check_times(self, outputs: Sequence[Output]) -> None:
        """Raise the refusal of results that name their cells in another way than this oracle's do, and of those that
        replace each other, where there are windows."""
        used, words = self.result_time, {"window_start": "window's start", "event_time": "time of its event"}
        what = words.get(used or "", "")
        also = "window_end" if used == "window_start" else None
        for i, output in enumerate(outputs):
            place = f"outputs[{i}].fields"
            for name in ("event_time", "window_start", "window_end"):
                if name not in (used, also) and getattr(output.fields, name) is not None:
                    mend = "leave it out" + (f", and name the {what} as {used}" if used is not None else "")
                    raise broken_rule_at(f"{place}.{name}", f"oracle {self.kind} does not use it", mend)
            if used is not None and getattr(output.fields, used) is None:
                mend = f"name the path of the {what} in a result"
                raise broken_rule_at(f"{place}.{used}", f"oracle {self.kind} needs it", mend)
            if output.emission == "cumulative" and not self.by_id:
                raise broken_rule_at(f"outputs[{i}].emission", CUMULATIVE.problem, "use final or incremental")
