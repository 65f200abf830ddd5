"""What the joins share: two inputs, each with ids of its own, whose results carry the ids of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from pydantic import model_validator

from validator.model.id_spaces import IdSpace
from validator.model.stated_values import MODULAR
from validator.oracles.seam import Declared, Oracle
from validator.settings.built import Combination
from validator.settings.errors import broken_rule_at
from validator.settings.fields import check_path

if TYPE_CHECKING:
    from validator.model.arrays import Bools
    from validator.oracles.ids import IdCounts
    from validator.settings.topics import Input, Output

SELF_JOIN: Final = Combination(
    ("oracle.right",), "the topic of `left`", "a join of an input with itself is not supported yet"
)
WIDE_JOIN: Final = Combination(
    ("inputs",), "more than two with a join", "a join of more than two inputs is not supported yet"
)
COLLAPSE_IN_JOIN: Final = Combination(
    ("inputs.duplicates",),
    "`collapse` with a join",
    "collapse is not supported for a join, which counts an id once per cell anyway",
)

Join = Literal["inner", "left", "semi"]


class TwoSides(Oracle):
    """Two inputs that are joined per key. A result has the ids of both, or of a semi join those of the left one."""

    join: Join
    """`inner`: a result needs an event of both sides; `left`: a left event without a partner has a result, too; `semi`:
    as `inner`, but results name the left events only."""
    left: str
    """The left input topic. If either topic can be on the left, name the larger one here."""
    right: str
    """The right input topic."""

    refuses: ClassVar[tuple[Combination, ...]] = (SELF_JOIN, WIDE_JOIN, COLLAPSE_IN_JOIN)
    compares_all: ClassVar[bool] = True

    @model_validator(mode="after")
    def _two_sides(self) -> Self:
        if self.left == self.right:
            raise broken_rule_at("right", SELF_JOIN.problem, "name the other input")
        return self

    @property
    def explained_by_one(self) -> int | None:
        """An unreadable event may be the partner of all others in its cell."""
        return None

    def spaces(self, inputs: Sequence[Input]) -> Mapping[str, IdSpace]:
        """Each input has an id space of its own. The left one keeps its integers."""
        return {entry.topic: IdSpace(entry.topic, keeps_integers=entry.topic == self.left) for entry in inputs}

    def named_inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """Results of a semi join name the left events only."""
        return [entry for entry in inputs if entry.topic == self.left] if self.join == "semi" else inputs

    def are_right(self, id_counts: IdCounts, texts: Sequence[str]) -> Bools:
        """Return which ids are those of the right input."""
        import numpy as np

        prefix = IdSpace(self.right, keeps_integers=False).prefix
        of_right = np.array([text.startswith(prefix) for text in texts], dtype=np.bool_)
        found = np.zeros(len(id_counts.id), dtype=np.bool_)
        found[id_counts.is_text == 1] = of_right[id_counts.id[id_counts.is_text == 1]]
        return found

    def check(self, declared: Declared) -> None:
        """Refuse inputs other than the two sides, and results, late or rejected records that do not name the input of
        their ids."""
        sides = {"left": self.left, "right": self.right}
        topics = [entry.topic for entry in declared.inputs]
        both = " and ".join(sides.values())
        for side, topic in sides.items():
            if topic not in topics:
                raise broken_rule_at(
                    f"oracle.{side}", f"{topic} is not an input topic", f"use one of {', '.join(topics)}"
                )
        if len(declared.inputs) > 2:
            raise broken_rule_at("inputs", WIDE_JOIN.problem, f"keep {both} only")
        for i, entry in enumerate(declared.inputs):
            if entry.duplicates != "count":
                raise broken_rule_at(f"inputs[{i}].duplicates", COLLAPSE_IN_JOIN.problem, "leave it out")
        self.check_times(declared.outputs)
        self.check_condition(declared)
        self.check_words(declared)
        named = [self.left] if self.join == "semi" else list(sides.values())
        for i, output in enumerate(declared.outputs if self.reads.names_ids else ()):
            self._check_named(f"outputs[{i}]", output, named)
        for place, late in declared.set_aside:
            if late.input not in (self.left, self.right):
                problem = f"it must name the input of these events (one of {self.left} and {self.right})"
                raise broken_rule_at(f"{place}.input", problem, "set it, and use a separate topic for each input")

    def check_values(self, declared: Declared) -> None:
        """Refuse values that do not say how many pairs there were or of which side they are."""
        del declared
        if self.stated.count_name is None:
            fix = "add the number of pairs, as in {pairs: count}"
            raise broken_rule_at("oracle.values", "values of a join need count", fix)
        # An event counts once per partner, so a difference of sums over ids names no id.
        if modular := next((one.function for one in self.stated.stated if one.function in MODULAR), None):
            raise broken_rule_at("oracle.values", f"{modular} is not supported by joins", "use sum")
        allowed = ("left",) if self.join == "semi" else ("left", "right")
        for path in self.stated.paths:
            side, _, field = path.partition(".")
            if side not in allowed or not field:
                fix = f"write {' or '.join(f'{name}.FIELD' for name in allowed)}"
                raise broken_rule_at("oracle.values", f"{path} is not a field of a side that results name", fix)
            check_path(field)

    def _check_named(self, place: str, output: Output, named: Sequence[str]) -> None:
        """Refuse results that do not name the events of the inputs ``named``, or that name others."""
        if output.evidence == "id":
            if self.join == "semi":
                return
            raise broken_rule_at(f"{place}.evidence", "a join's results cannot have evidence id", "use ids")
        paths = output.fields.ids or ()
        allowed = named[0] if len(named) == 1 else f"one of {' and '.join(named)}"
        for path in paths:
            if path.input not in named:
                problem = f"the input of the ids at {path.path} must be {allowed}"
                raise broken_rule_at(f"{place}.fields.ids", problem, f"write {{path: {path.path}, input: TOPIC}}")
        for topic in named:
            if topic not in [path.input for path in paths]:
                problem, fix = f"the ids of {topic} are missing", f"add {{path: ..., input: {topic}}}"
                raise broken_rule_at(f"{place}.fields.ids", problem, fix)
