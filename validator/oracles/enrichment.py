"""Enrichment with a table: each event owes one result, which states fields of the row of its key.

Cells are those of `passthrough`, and so is what they owe, but for events without a row in an inner join. Source:
SEMANTICS 2.37, docs/oracles/enrichment.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, WithJsonSchema

from validator.model.stated_values import Stated, Values
from validator.model.wording import plural
from validator.oracles.passthrough import Passthrough
from validator.oracles.seam import Declared
from validator.settings.durations import Duration
from validator.settings.errors import broken_rule_at
from validator.settings.fields import check_path
from validator.settings.topics import TableTopic

FieldText = Annotated[str, AfterValidator(check_path), WithJsonSchema({"type": "string"})]
"""The path of a field."""


class Enrichment(Passthrough):
    """Each event needs exactly one result, which states fields of the row that a table has for its key."""

    kind: Literal["enrichment"]  # type: ignore[assignment]
    """A result for each event, with fields of a row of a table."""
    table: TableTopic
    """The topic of the table's changes, read from its start."""
    join: Literal["inner", "left"] = "left"
    """`left`: an event without a row has a result, too, whose fields are null; `inner`: it has none."""
    values: dict[str, FieldText] = Field(min_length=1, examples=[{"tier": "level"}])
    """Fields of a row that results state, by the names of `outputs[].fields.values`."""
    behind: Duration | None = None
    """How long after its replacement a row may be used for an event, in event time. None: at any time."""
    ahead: Duration | None = None
    """How long before its time. None: at any time."""

    judges_values: ClassVar[bool] = False
    judges_values_beside_ids: ClassVar[bool] = True
    _of_rows: bool = PrivateAttr(default=False)

    @property
    def tables(self) -> Sequence[TableTopic]:
        """The one table."""
        return (self.table,)

    def seen_from(self, topic: str | None) -> Self:
        """Rows of the table have fields; events have none that results state."""
        return self.model_copy().with_rows(seen=topic == self.table.topic)

    def with_rows(self, *, seen: bool) -> Self:
        """Note whether the records are rows of the table."""
        self._of_rows = seen
        return self

    @property
    def stated(self) -> Values:
        """Texts of fields, by their hashes."""
        if self._of_rows:
            return Values(paths=tuple(self.values.values()), hashed=frozenset(range(len(self.values))))
        return Values(stated=tuple(Stated(name, "row", place) for place, name in enumerate(self.values)))

    @property
    def owes_by_rows(self) -> bool:
        """With an inner join."""
        return self.join == "inner"

    @property
    def table_reach_us(self) -> tuple[int | None, int | None]:
        """The two declared times."""
        return self.behind, self.ahead

    def check_values(self, declared: Declared) -> None:
        """Refuse results without ids: each is judged by the bucket of its event."""
        del declared
        raise broken_rule_at("outputs[0].evidence", "oracle enrichment needs the ids of events", "write evidence: id")

    def check(self, declared: Declared) -> None:
        """Refuse keys of different widths, paths that no row can have, and values that are numbers with a tolerance."""
        super().check(declared)
        if self.owes_by_rows and self.behind is None:
            problem = "with join inner and no bound, a key may be without a row at any time, and no event owes a result"
            raise broken_rule_at("oracle.behind", problem, "write how late a row may be used")
        width = len(declared.inputs[0].fields.key)
        if len(self.table.fields.key) != width:
            problem = f"it has {plural(len(self.table.fields.key), 'field')} and the key of inputs[0] has {width}"
            raise broken_rule_at("oracle.table.fields.key", problem, "name the fields of the key of the events")
        for name, path in self.values.items():
            if path.endswith(")"):
                problem = f"{path} is a function, and results state a field of a row as it is"
                raise broken_rule_at(f"oracle.values.{name}", problem, "write the path of the field")
            self.table.check_paths([(f"oracle.values.{name}", path)])
        for i, output in enumerate(declared.outputs):
            for name, at in output.fields.values.items():
                if at.tolerance:
                    place = f"outputs[{i}].fields.values.{name}.tolerance"
                    raise broken_rule_at(place, "a field of a row is stated as it is", "leave it out")
