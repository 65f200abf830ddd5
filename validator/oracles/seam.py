"""The interface of an oracle: the parameters of one kind, the cells that an event belongs to, and what a cell owes.

A module of this package that defines a concrete oracle is one family of oracles. `validator.oracles.kinds` finds it.
The configuration, the Spark stage and the core use an oracle only through the methods of `Oracle`.
docs/oracles/README.md describes how to add one.

Methods import the array libraries: reading a configuration needs none of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, Protocol, Self

from pydantic import Field, PrivateAttr

from validator.model.classes import Guarantee
from validator.model.stated_values import REVERSED, Values
from validator.settings.aggregates import Aggregate, LowerBound
from validator.settings.built import (
    CUMULATIVE,
    EXPLODE,
    FINAL_ONLY,
    ID_SPACES,
    MIXED_EMISSIONS,
    TABLES,
    WHERE,
    Combination,
)
from validator.settings.conditions import Where
from validator.settings.errors import broken_rule_at
from validator.settings.fields import FieldPath, Frozen

if TYPE_CHECKING:
    import pyarrow as pa

    from validator.model.arrays import Bools, Ints
    from validator.model.conditions import Condition
    from validator.model.id_spaces import IdSpace
    from validator.model.pair_rules import PairRule
    from validator.oracles.ids import Flags, IdCounts, IdVerdicts
    from validator.settings.topics import Input, Late, Output, TableTopic


_ANY_NUMBER: Final = 1 << 31
"""More words than a record has."""


class Assigned(NamedTuple):
    """Contributions of events to cells, one entry each, in any order.

    ``events``: row of the event; None if entry i belongs to event i. ``starts``: start of the cell, in microseconds.
    """

    events: Ints | None
    starts: Ints


class Words(Protocol):
    """How the key of an event becomes several."""

    def words(self, text: str) -> list[str]:
        """Return the keys."""

    def lists(self, texts: pa.Array) -> pa.Array:
        """Return the keys of each text. An empty text is none; those of a text that is not a key do not matter."""


class Declared(NamedTuple):
    """The settings beside the oracle. ``set_aside``: late and rejected topics, with their place in the file.
    ``drops_late``: late policy `drop`."""

    inputs: Sequence[Input]
    outputs: Sequence[Output]
    set_aside: Sequence[tuple[str, Late]]
    drops_late: bool
    guarantee: Guarantee

    @property
    def events(self) -> list[tuple[str, Input | Late]]:
        """The topics of events, with their place in the file."""
        return [*((f"inputs[{i}]", one) for i, one in enumerate(self.inputs)), *self.set_aside]


class Reads(NamedTuple):
    """How a pipeline's topics define its cells.

    ``key_fields``: number of fields of a result's key. ``replaces``: the newest result of a key replaces the earlier
    ones (emission `cumulative`). ``several_outputs``: results are in several topics. ``evidence``: its name.
    ``names_ids``: results say which events they used. ``adds_up``: the results of a cell add up (emission
    `incremental`). ``tolerances``: the tolerance of each stated value that has one, the largest of all outputs; 0: the
    value is exact.
    ``explodes``: an event counts for each of its words. ``signed``: a change of a table adds a row, and removes the one
    before it. ``collapses``: the pipeline drops repeated ids. ``id_fields``: number of fields of an id. ``has_ids``:
    every event of an input has an id. ``owners``: late and rejected topics that name an input, with this input.
    ``upserts``: inputs whose records replace the row of their record key.
    """

    key_fields: int = 1
    replaces: bool = False
    several_outputs: bool = False
    evidence: str = "ids"
    names_ids: bool = True
    adds_up: bool = False
    tolerances: tuple[tuple[str, Decimal], ...] = ()
    explodes: bool = False
    id_fields: int = 1
    has_ids: bool = False
    owners: tuple[tuple[str, str], ...] = ()
    signed: bool = False
    collapses: bool = False
    upserts: tuple[str, ...] = ()

    @property
    def several_of_record(self) -> bool:
        """Whether a record of an input may have several contributions."""
        return self.explodes or self.signed

    @property
    def joined_keys(self) -> bool:
        """Whether a key is the JSON array of its fields."""
        return self.key_fields > 1

    @classmethod
    def of_topics(cls, declared: Declared, *, names_ids: bool) -> Self:
        """Return the value for the topics of a pipeline."""
        inputs, outputs = declared.inputs, declared.outputs
        replaces = any(output.emission == "cumulative" for output in outputs)
        adds_up = any(output.emission == "incremental" for output in outputs)
        declared_of: dict[str, list[Decimal | None]] = {}
        for name, path in (pair for output in outputs for pair in output.fields.values.items()):
            declared_of.setdefault(name, []).append(path.tolerance)
        # A value is exact if every output declares it.
        tolerances = {
            name: max(one or Decimal(0) for one in some)
            for name, some in declared_of.items()
            if any(some) or None not in some
        }
        return cls(
            key_fields=len(outputs[0].fields.key),
            replaces=replaces,
            several_outputs=len(outputs) > 1,
            evidence=outputs[0].evidence,
            names_ids=names_ids,
            adds_up=adds_up,
            tolerances=tuple(tolerances.items()),
            explodes=any(one.explode is not None for one in inputs),
            id_fields=max(1, len(inputs[0].fields.id or ())),
            has_ids=all(one.fields.id is not None for one in inputs),
            owners=tuple((one.topic, one.input) for _, one in declared.set_aside if one.input is not None),
            signed=any(bool(one.table) for one in inputs),
            collapses=any(one.duplicates == "collapse" for one in inputs),
            upserts=tuple(one.topic for one in inputs if one.replaces_rows),
        )


class Oracle(Frozen):
    """One kind of oracle. All instants are microseconds since the epoch; arrays have one entry per event or cell.

    A cell is (start, key). The starts of one oracle lie on a grid: their distances are multiples of `grid_us`. The
    instant that a result names need not be on the grid. If cells are `by_id`, a cell is one id of a key; if they are
    `by_key`, it is a key. Neither has a start.
    """

    kind: str
    """Which oracle."""
    values: dict[str, Aggregate] = Field(default_factory=dict, examples=[{"clicks": "count"}])
    """Aggregates that results state (evidence `values`, or beside ids), by name; `outputs[].fields.values` has the path
    of each name."""

    having: dict[str, LowerBound] | None = Field(default=None, examples=[{"clicks": {"above": 1}}])
    """Bounds without which the pipeline writes no result, by the names of `values`; of `count`, `count(PATH)`,
    `distinct(PATH)` and `max(PATH)`."""

    where: Where | None = None
    """Which events the pipeline reads, if the topic has others, too. Only events that pass need the fields of
    `inputs[].fields`."""

    skips_others: ClassVar[bool] = True
    """Whether the pipeline skips events for which `where` does not hold before it reads their other fields."""
    refuses: ClassVar[tuple[Combination, ...]] = ()
    """Values of other settings that this oracle refuses. The documentation lists them."""
    compares_all: ClassVar[bool] = False
    """Whether fingerprints decide nothing: every cell that has an answer or is overdue is compared id by id."""
    drops_repeats: ClassVar[bool] = False
    """Whether the pipeline drops repeated ids, so that a cell owes each id once. With any other oracle,
    `inputs[].duplicates: collapse` states this."""
    judges_values: ClassVar[bool] = False
    """Whether results may have evidence `values`."""
    answers_events: ClassVar[bool] = False
    """Whether a result is of one event, so that its values are fields of this event (`same`)."""
    judges_values_beside_ids: ClassVar[bool] = False
    """Whether results may state values beside the ids of their events."""
    accepts_cumulative: ClassVar[bool] = False
    """Whether the newest result of a cell may replace the earlier ones (emission `cumulative`)."""
    counts_rows: ClassVar[bool] = False
    """Whether an input may be the changelog of a table."""
    asks_lateness: ClassVar[bool] = False
    """Whether the contributions that a cell owes depend on which events were late, also without late policy `drop`."""
    states_pairs: ClassVar[bool] = False
    """Whether a result states a pair of events, so that `unsound` finds what is wrong in it."""
    in_every_cell: ClassVar[bool] = True
    """Whether results name an event in each of its cells (SEMANTICS 4.28)."""
    ends_are_known: ClassVar[bool] = True
    """Whether the end of a cell follows from its start (see `ends_after_us`). Only then can settled cells leave
    memory."""
    cell_noun: ClassVar[str] = "window"
    """What a sentence calls the time of a cell."""
    noun: ClassVar[str] = "window from"
    """Noun for a cell in a sentence; the cell's start follows it."""
    result_time: ClassVar[Literal["window_start", "event_time"] | None] = "window_start"
    """Field of a result that names its cell; None if its key and its ids name it."""
    _reads: Reads = PrivateAttr(default=Reads())

    @property
    def by_id(self) -> bool:
        """Whether there are no windows and each id of a key is a cell of its own (`validator.reconcile.by_id`), which
        begins with its first event."""
        return False

    @property
    def by_key(self) -> bool:
        """Whether there are no windows and each key is a cell, which never ends (`validator.reconcile.by_key`)."""
        return False

    @property
    def results_every(self) -> int:
        """Number of events of a key from one result to the next; the events after the last result owe none yet."""
        return 1

    @property
    def has_windows(self) -> bool:
        """Whether the cells of an event depend on its time."""
        return not (self.by_id or self.by_key)

    @property
    def rounding(self) -> Literal["down", "up"]:
        """How a finer event time is rounded to microseconds, so that it stays on its side of every boundary."""
        return "down"

    @property
    @abstractmethod
    def grid_us(self) -> int:
        """A time of which all distances between starts are multiples, and all distances between reaches."""

    @property
    @abstractmethod
    def span_us(self) -> int:
        """Longest time from an event to the end of its cell, as far as it is known in advance."""

    @property
    def result_span_us(self) -> int | None:
        """Distance between the start and the end that a result names; None if any distance is accepted."""
        return None

    @property
    def state_depends_on(self) -> Mapping[str, str]:
        """What the cells of a state depend on beside the parameters: name -> value. A state continues with the same
        values only."""
        return {}

    @property
    def ends_after_us(self) -> int | None:
        """Time from the last event of a cell to its end, if events put off the end; None if `ends_us` gives the end."""
        return None

    @property
    def merging_gap_us(self) -> int | None:
        """Longest pause within a cell, if cells merge: two cells of a key on adjacent places of the grid become one if
        the first event of the later cell is at most this long after the last event of the earlier one. `ends_after_us`
        is then set, too."""
        return None

    @property
    def answers_once(self) -> bool:
        """Whether one result answers a cell, so that parts of it are wrong (SEMANTICS 2.25)."""
        return False

    @property
    def pair_rule(self) -> PairRule | None:
        """Which pairs of events of two inputs are in results, if these state how many (evidence `values`)."""
        return None

    @property
    def excuses_pauses(self) -> bool:
        """Whether, with lateness scope `idle`, pauses decide what other partitions made late (SEMANTICS 2.31)."""
        return not (self.asks_lateness or self.states_pairs)

    @property
    def dates_events(self) -> bool:
        """Whether fact rows have the time of each event."""
        return self.merging_gap_us is not None or self.states_pairs

    def contradicts(self, named_us: Ints, ends_us: Ints) -> Bools:
        """Return which ends that results name contradict the ends of their cells (SEMANTICS 2.28)."""
        import numpy as np

        del named_us
        return np.zeros(len(ends_us), dtype=np.bool_)

    @property
    def own_end(self) -> FieldPath | None:
        """Field of an event with its own latest time of partners, which fact rows then have; None: none has one."""
        return None

    @property
    def reads(self) -> Reads:
        """How the topics of its pipeline define its cells."""
        return self._reads

    def reading(self, reads: Reads) -> Self:
        """Set `reads`, and return this oracle."""
        self._reads = reads
        return self

    @property
    def stated(self) -> Values:
        """What results state, if they have evidence `values`."""
        tolerances = dict(self.reads.tolerances)
        bounds = {
            name: replace(one.bound, tolerance=tolerances.get(name, Decimal(0)))
            for name, one in (self.having or {}).items()
        }
        return Values.of(self.values, bounds, of_one=self.answers_events and not self.reads.names_ids)

    @property
    def tables(self) -> Sequence[TableTopic]:
        """The tables that the pipeline looks up. `seen_from` their topics, `stated` has the fields of their rows."""
        return ()

    @property
    def table_reach_us(self) -> tuple[int | None, int | None]:
        """How long after its replacement, and how long before its time, an event may use a row; None: any time."""
        return None, None

    @property
    def owes_by_rows(self) -> bool:
        """Whether an event whose key has no row in the tables owes nothing."""
        return False

    @property
    def follows_inputs(self) -> bool:
        """Whether absence is proven only as far as all inputs and tables have been read."""
        return self.reads.signed or self.owes_by_rows

    @property
    def scope_margin_us(self) -> int:
        """A cell that starts less than this after the horizon is out of scope, too."""
        return 0

    @property
    def condition(self) -> Condition | None:
        """Condition under which an event owes a result; None if all events contribute."""
        if self.where is None:
            return None
        # SEMANTICS 2.6: where an event has no cell of its own, one that owes nothing is not an event.
        ignores = self.by_id or self.by_key or not self.ends_are_known or self.asks_lateness
        return self.where.condition("unowed" if not self.skips_others else "ignored" if ignores else "skipped")

    @property
    def cells_most(self) -> int:
        """Largest number of cells that an event belongs to."""
        return 1

    @property
    def explained_by_one(self) -> int | None:
        """Largest number of contributions that one unreadable record may explain; None: all of a cell."""
        # SEMANTICS 4.14: the number of its words is not known. 2.35: a truncation removes every row.
        return _ANY_NUMBER if self.reads.several_of_record else 1

    @property
    def hidden_inputs_lose(self) -> bool:
        """Whether an unreadable record of an input may explain missing contributions."""
        # SEMANTICS 2.35, 2.37: it may remove a row, so that a result rightly states fewer, or an event owes none.
        return self.follows_inputs

    @property
    def may_skip(self) -> bool:
        """Whether the pipeline may skip an event that has no key."""
        # SEMANTICS 2.24: elsewhere, such an event has no cell of its own.
        return not (self.asks_lateness or self.states_pairs or self.by_id or not self.ends_are_known)

    @property
    def computes_key(self) -> bool:
        """Whether `key` computes the keys of events."""
        return type(self).key is not Oracle.key

    def key(self, fields: tuple[str | None, ...]) -> object:
        """Return the key of an event: a scalar, or a tuple with the fields of a result's key. ``fields``: the texts of
        the fields that `inputs[].fields.key` names. None: with windows, the event owes nothing."""
        return fields

    def words_of(self, entry: Input | Late | TableTopic) -> Words | None:
        """How the key of an event of a topic becomes several; None: it is one."""
        found: Words | None = getattr(entry, "explode", None)
        return found

    def seen_from(self, topic: str | None) -> Self:
        """Return the oracle for the events, or late or rejected records, of one input."""
        del topic
        return self

    @abstractmethod
    def assigned(self, event_times_us: Ints) -> Assigned:
        """Return the cells to which events, or late and rejected records, belong."""

    def starts_of_results(self, named_us: Ints) -> Ints:
        """Return the starts of the cells of results. ``named_us``: the instants that the results name."""
        return named_us

    @abstractmethod
    def ends_us(self, starts_us: Ints) -> Ints:
        """Return the end of each cell: the first instant whose events do not belong to the cell."""

    @abstractmethod
    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """Return, for each event, the latest end of a cell at or before ``event time - slack``. The event proves that
        this end is past."""

    @abstractmethod
    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """Return `reaches_us` of the latest event that each cell can contain."""

    def reach_at(self, instant_us: int, slack_us: int) -> int:
        """Return `reaches_us` of one event time."""
        import numpy as np

        return int(self.reaches_us(np.array([instant_us], dtype=np.int64), slack_us)[0])

    def unsound(self, id_counts: IdCounts, texts: Sequence[str]) -> tuple[Bools, Bools]:
        """Return which contributions are in results that state no pair, and which are in results that state a pair too
        often."""
        raise NotImplementedError(f"results of {self.kind} state no pairs")

    def classes(
        self, id_counts: IdCounts, flags: Flags, texts: Sequence[str], *, collapse: bool, drops_late: bool
    ) -> IdVerdicts:
        """Return the classes of each (cell, id). ``texts``: textual ids, by number. ``drops_late``: late policy
        `drop`."""
        from validator.oracles.ids import window_classes

        del texts, drops_late
        return window_classes(id_counts, flags, collapse=collapse)

    def spaces(self, inputs: Sequence[Input]) -> Mapping[str, IdSpace]:
        """Input topic -> its id space; empty if all inputs share one."""
        del inputs
        return {}

    def named_inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """The inputs whose events results name."""
        return inputs

    def check(self, declared: Declared) -> None:
        """Raise PydanticCustomError for settings that this oracle cannot judge."""
        self.check_times(declared.outputs)
        self.check_condition(declared)
        self.check_words(declared)
        self.check_tables(declared)
        problem, fix = ID_SPACES.problem, "leave input out"
        for i, output in enumerate(declared.outputs):
            if any(path.input is not None for path in output.fields.ids or ()):
                raise broken_rule_at(f"outputs[{i}].fields.ids", problem, fix)
        for place, late in declared.set_aside:
            if late.input is not None:
                raise broken_rule_at(f"{place}.input", problem, fix)

    def check_values(self, declared: Declared) -> None:
        """Raise PydanticCustomError for evidence `values` that this oracle cannot judge."""

    def check_words(self, declared: Declared) -> None:
        """Raise PydanticCustomError if events are words where results do not count them, in a key of several fields,
        beside late and rejected topics, or with fields of their own."""
        is_counted = not self.reads.names_ids and self.pair_rule is None
        for i, one in enumerate(declared.inputs):
            if one.explode is not None and (not is_counted or len(one.fields.key) != 1 or declared.set_aside):
                raise broken_rule_at(f"inputs[{i}].explode", EXPLODE.problem, "leave it out")
            if one.explode is not None:
                # A word is a scalar, and so is each item of an array.
                below = f"{one.fields.key[0].path}."
                paths = [*self.seen_from(one.topic).stated.paths, one.fields.event_time.path]
                if (path := next((path for path in paths if path.startswith(below)), None)) is not None:
                    fix = f"name a field of the event, or let inputs[{i}] be a topic with an event for each item"
                    said = f"{path} is a field of what is exploded, and not of the event, which is not supported yet"
                    raise broken_rule_at(f"inputs[{i}].explode", said, fix)
            if one.explode is not None and one.missing_key == "owed":
                raise broken_rule_at(f"inputs[{i}].missing_key", "an absent text has no words", "write skip")

    def check_tables(self, declared: Declared) -> None:
        """Raise PydanticCustomError if an input is the changelog of a table, of which this oracle does not count the
        rows."""
        values, set_aside = self.stated, list(declared.set_aside)
        are_counted = values.count_name is not None and all(one.function in REVERSED for one in values.stated)
        is_judged = self.counts_rows and declared.outputs[0].evidence == "values" and are_counted
        for i, one in enumerate(declared.inputs):
            if one.table and (not is_judged or set_aside or one.explode is not None):
                raise broken_rule_at(f"inputs[{i}].table", TABLES.problem, "leave it out, and the other settings")
        if self.reads.signed and declared.guarantee is not Guarantee.EXACTLY_ONCE:
            # SEMANTICS 2.35: a lost change that removes a row looks like a repeat of one that adds it.
            problem = f"the number of rows of a table does not show whether a pipeline is {declared.guarantee}"
            raise broken_rule_at("guarantee", problem, "use exactly_once")

    def check_condition(self, declared: Declared) -> None:
        """Raise PydanticCustomError for a condition that this oracle cannot judge, or on a field that contains, or lies
        inside, a field of the event."""
        condition = self.condition
        if self.where is None or condition is None:
            return
        if condition.others == "ignored" and declared.set_aside:
            raise broken_rule_at("oracle.where", WHERE.problem, "leave it out, or use windows")
        for i, entry in enumerate(declared.inputs):
            entry.check_where("oracle.where", self.where, f" of inputs[{i}]")

    def check_times(self, outputs: Sequence[Output]) -> None:
        """Raise PydanticCustomError for results that do not name their cells as this oracle needs, and for emission
        `cumulative` with windows."""
        used, words = self.result_time, {"window_start": "window's start", "event_time": "event's time"}
        what = words.get(used or "", "")
        also = "window_end" if used == "window_start" else None
        for i, output in enumerate(outputs):
            place = f"outputs[{i}].fields"
            for name in ("event_time", "window_start", "window_end"):
                if name not in (used, also) and getattr(output.fields, name) is not None:
                    fix = "leave it out" + (f", and set {used} to the path of the {what}" if used is not None else "")
                    raise broken_rule_at(f"{place}.{name}", f"oracle {self.kind} does not use it", fix)
            is_end_enough = (
                also is not None and self.result_span_us is not None and output.fields.window_end is not None
            )
            if used is not None and getattr(output.fields, used) is None and not is_end_enough:
                problem, fix = f"oracle {self.kind} needs it", f"name the path of the {what} in a result"
                if used == "window_start":
                    # By the order of results, one lost result would move all later ones to other windows.
                    problem += ", since the order of results does not show their windows once one is lost"
                    fix += (
                        "; if no field has it, let the engine write it into the value or the key: window_start of "
                        "Flink SQL, window.start of Spark, key.window().start() of Kafka Streams"
                    )
                raise broken_rule_at(f"{place}.{used}", problem, fix)
            if output.emission == "cumulative" and not self.accepts_cumulative:
                raise broken_rule_at(f"outputs[{i}].emission", CUMULATIVE.problem, FINAL_ONLY)
            if (output.emission == "cumulative") != (outputs[0].emission == "cumulative"):
                fix = "give every output the same emission"
                raise broken_rule_at(f"outputs[{i}].emission", MIXED_EMISSIONS.problem, fix)
