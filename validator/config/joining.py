"""What fits a windowed join and what does not: whose ids are where must be said (docs/decisions/0090)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from validator.config.built import COLLAPSE_IN_JOIN, ID_SPACES, WIDE_JOIN
from validator.config.errors import broken_rule_at
from validator.config.oracle import Oracle
from validator.config.topics import Input, Late, Output


def check_spaces(
    oracle: Oracle, inputs: Sequence[Input], outputs: Sequence[Output], set_aside: Iterable[tuple[str, Late]]
) -> None:
    """Raise the refusal of what the oracle cannot do with these topics; ``set_aside`` are late and rejected ones with
    their place in the file."""
    if oracle.kind == "windowed_join":
        _check_join(oracle, inputs, outputs, set_aside)
        return
    problem, mend = ID_SPACES.problem, "leave input out"
    for i, output in enumerate(outputs):
        if any(path.input is not None for path in output.fields.ids or ()):
            raise broken_rule_at(f"outputs[{i}].fields.ids", problem, mend)
    for place, late in set_aside:
        if late.input is not None:
            raise broken_rule_at(f"{place}.input", problem, mend)


def _check_join(
    oracle: Oracle, inputs: Sequence[Input], outputs: Sequence[Output], set_aside: Iterable[tuple[str, Late]]
) -> None:
    sides = {"left": oracle.left, "right": oracle.right}
    topics = [entry.topic for entry in inputs]
    both = " and ".join(str(topic) for topic in sides.values())
    for side, topic in sides.items():
        if topic not in topics:
            raise broken_rule_at(f"oracle.{side}", f"{topic} is no input topic", f"use one of {', '.join(topics)}")
    if len(inputs) > 2:
        raise broken_rule_at("inputs", WIDE_JOIN.problem, f"keep {both} only")
    for i, entry in enumerate(inputs):
        if entry.duplicates != "count":
            raise broken_rule_at(f"inputs[{i}].duplicates", COLLAPSE_IN_JOIN.problem, "leave it out")
    for i, output in enumerate(outputs):
        place = f"outputs[{i}].fields.ids"
        if output.evidence != "ids":
            problem = f"a join's results cannot have evidence {output.evidence}"
            raise broken_rule_at(f"outputs[{i}].evidence", problem, "use ids")
        paths = output.fields.ids or ()
        for path in paths:
            if path.input not in sides.values():
                problem = f"it does not say of which input the ids at {path.path} are"
                raise broken_rule_at(place, problem, f"write {{path: {path.path}, input: ...}} with {both}")
        for topic in sides.values():
            if topic not in [path.input for path in paths]:
                raise broken_rule_at(place, f"the ids of {topic} are missing", f"add {{path: ..., input: {topic}}}")
    for place, late in set_aside:
        if late.input not in sides.values():
            problem = "a join needs to know of which input its events are"
            raise broken_rule_at(f"{place}.input", problem, f"name one of {both}, and give each a topic of its own")
