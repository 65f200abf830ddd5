"""Reasons to doubt the configuration (SEMANTICS 4.19 to 4.23), as sentences that name the topic, the fields and an
example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from validator.codecs.one_record import Undecodable
from validator.config.model import Config
from validator.core.doubts import (
    Fits,
    Sign,
    TopicInDoubt,
    decoded_results,
    explained_by,
    rows,
    topics_in_doubt,
    unmatched,
)
from validator.core.fit import Fit, Growth, Mismatch
from validator.core.fit_sample import Named
from validator.core.suspicion import misnamed, values_in_doubt
from validator.core.totals import CellTotals, TopicCounts
from validator.model.classes import VIOLATES, Guarantee, ViolationClass, forbidding
from validator.model.grading import Doubt
from validator.model.progress import IngestProgress
from validator.model.wording import plural, plural_of
from validator.oracles.seam import Oracle
from validator.reconcile.judge import VIOLATIONS
from validator.settings.built import CUMULATIVE
from validator.stream import refused_fields
from validator.stream.pair_sentences import pair_sentence, shown_cell


@dataclass(frozen=True)
class Example:
    """A record that does not decode. ``why``: every field that does not fit it; empty if unknown. ``unread``: why it
    could not be read, as a clause."""

    partition: int
    offset: int
    why: tuple[Undecodable, ...] = ()
    unread: str | None = None


def configuration_doubts(
    config: Config, progress: IngestProgress, sums: CellTotals, examples: Mapping[str, Example], *, waits: bool
) -> Iterator[Doubt]:
    """Why the configuration is in doubt.

    ``examples``: topic -> a record that does not decode. ``waits``: whether a topic does not exist yet. If no result
    matches an event, the configuration is doubted only once there are violations that this may explain: at the start of
    a pipeline the first results are still outstanding.
    """
    found = topics_in_doubt(progress)
    for one in found:
        yield Doubt(_topic_doubt(config, one, examples.get(one.topic)))
    if waits or any(one.side in ("input", "output") for one in found):
        # The absent or doubtful topic already explains why nothing matches.
        return
    fit = sums.fit or Fit()
    doubted = [row for row in rows(progress, sums) if row.suspects is not Fits.SOME]
    matching = {side: [row for row in doubted if (row.sign, row.side) == (Sign.MATCHES, side)] for side in _SIDES}
    violated = {name for name in VIOLATIONS if sums.violations(name)}
    if matching[""] and (sums.matched or violated or progress.undecodable("output")):
        seen = _contributions_doubt(config, sums, 0 if sums.matched else decoded_results(progress))
        yield Doubt(f"{seen}{example_clause(config, fit)}; {_CORRECT}")
    elif fit.mismatch is not None:
        yield Doubt(f"{mismatch_sentence(config.oracle, fit.mismatch)}{example_clause(config, fit)}; {_CORRECT}")
    if values_in_doubt(sums):
        yield Doubt(_values_doubt(config, sums))
    if sums.overdrawn:
        yield Doubt(_table_doubt(config, sums.overdrawn))
    of_repeats = ViolationClass.DUPLICATE
    if fit.growth is not None and (sums.counts[of_repeats] or sums.on_record.get(of_repeats)):
        # SEMANTICS 2.23: without ids, numbers that add up may hide a loss.
        concerned = forbidding(of_repeats) if config.oracle.reads.names_ids else frozenset(Guarantee)
        yield Doubt(growth_sentence(config, fit.growth), concerned)
    for topic in (row.topic or "" for row in doubted if row.sign is Sign.LISTS):
        if sums.counts["missing"] or _has_undecodable(progress, topic):
            yield Doubt(_ids_doubt(config, topic, decoded_results(progress, topic)) + example_clause(config, fit))
    for side, sentence, counts in (("input", _input_doubt, sums.inputs), ("output", _output_doubt, sums.outputs)):
        classes = {
            name for row in matching[side] for name in explained_by(row, copies_explain=config.copies_explain)
        } & violated
        for topic in (row.topic or "" for row in matching[side]):
            held = classes | ({"undecodable"} if side == "output" and _has_undecodable(progress, topic) else set())
            # Repeated results of another output, for example, leave no doubt about at-least-once.
            concerns = frozenset(name for name in Guarantee if {ViolationClass(one) for one in held} & VIOLATES[name])
            if held and (concerns or side == "input"):
                said = sentence(config, topic, counts[topic], sums) + example_clause(config, fit, topic)
                yield Doubt(said, concerns if side == "output" else frozenset(Guarantee))
    if violated:
        for side, count in misnamed(progress, sums).items():
            yield Doubt(_set_aside_doubt(config, side, count, sums.set_aside[side].matched))


def _table_doubt(config: Config, keys: int) -> str:
    """Why the changes of a table are not all of its changes."""
    topics = " and ".join(one.topic for one in config.inputs if one.table)
    return (
        f"the changes in topic {topics} are in doubt: of {plural(keys, 'key')} they remove more rows than they add, so "
        "some changes are not in it; it must begin with all rows of the table (Debezium: snapshot.mode initial), and "
        "have each change once"
    )


_SIDES: Final = ("", "input", "output")
_CORRECT: Final = "correct it and begin with a new state.path"


def mismatch_sentence(oracle: Oracle, one: Mismatch) -> str:
    """Why results systematically name other cells than the configuration expects."""
    cells = plural_of(oracle.cell_noun) if oracle.has_windows else "keys"
    others = f"{cells} or keys" if oracle.has_windows else cells
    many = f"{one.many:,} of {one.among:,}"
    seen = {
        "grid": f"{many} results name a start at which no {oracle.cell_noun} of the oracle begins",
        "results": f"{many} results have events of other {others}",
        "value": f"results name other {cells} for {many} sampled events than the oracle expects",
        "counts": f"{many} results state other numbers or values than the events of their {cells} give",
    }[one.sign]
    check = "a parameter of the oracle, or the fields of key and time, may be wrong"
    return f"the configuration is in doubt: {seen}: {_other_value(one) or check}"


def _other_value(one: Mismatch | None) -> str | None:
    """The value of a parameter that fits, as a clause; None if none is known."""
    if one is None or one.parameter is None:
        return None
    events = plural(one.of, "sampled event")
    if one.configured is None:
        return (
            f"{one.parameter} may be wrong: {one.value} fit {one.fits} of {events}, and the configured ones {one.right}"
        )
    configured = f"{one.configured} fits {one.right}"
    return f"{one.parameter} is {one.configured}, but {one.value} fits {one.fits} of {events}, and {configured}"


def _values_doubt(config: Config, sums: CellTotals) -> str:
    wrong = sums.results["wrong_value"]
    if config.oracle.tables:
        return (
            f"the configuration is in doubt: {wrong:,} of {plural(wrong + sums.results['correct'], 'result')} state "
            "fields that no row of the table had then: oracle.table, oracle.values, oracle.behind, oracle.ahead or "
            f"outputs[].fields.values may be wrong; {_CORRECT}"
        )
    # A field that results repeat has no tolerance, and violations have no value of it.
    repeat = all(one.function == "same" for one in config.oracle.stated.stated)
    further = "" if repeat else ", or need a tolerance; violations show both values"
    return (
        f"the configuration is in doubt: {wrong:,} of {plural(wrong + sums.results['correct'], 'result')} state other "
        f"values than their events give: oracle.values or outputs[].fields.values may be wrong{further}; {_CORRECT}"
    )


def growth_sentence(config: Config, one: Growth) -> str:
    """Why the configured emission of an output is in doubt, and what the operator does."""
    use = (
        "write emission: cumulative, with a new state.path"
        if config.oracle.accepts_cumulative
        else f"{CUMULATIVE.problem}, so repeats are not judged"
    )
    it = one.example
    if isinstance(it, Named):
        topic, place = it.topic, config.entry_of(it.topic)
        many = f"in {one.cells} of {plural(one.of, 'sampled cell')} with several results"
        seen = f"{many} each result contains the one before it, for example {topic}-{it.partition} offset {it.offset}"
    else:
        outputs = [entry.topic for entry in config.outputs]
        topic, place = ", ".join(outputs), config.entry_of(outputs[0]) if len(outputs) == 1 else "outputs[]"
        cells = plural(one.of, config.oracle.cell_noun, plural_of(config.oracle.cell_noun))
        many = f"in {one.cells:,} of {cells} with several results"
        shown = f", for example the {shown_cell(config, it)}" if it is not None else ""
        seen = f"{many} their numbers rise, and the last one is right{shown}"
    return (
        f"the configuration of topic {topic} is in doubt: {seen}: its results are updates, and {place}.emission says "
        f"that each one counts; {use}"
    )


def example_clause(config: Config, fit: Fit, topic: str | None = None) -> str:
    """A clause with an example; empty if there is none. ``topic``: the topic in doubt, if it is only one."""
    known = fit.pairs or {}
    places = {name for _, name in config.topics_by_place()} if topic is None else {topic}
    found = [known[name] for name in sorted(places) if name in known]
    found.sort(key=lambda it: it.expected is None or it.named is None)
    if fit.unlike is not None and (not found or found[0].expected is None or found[0].named is None):
        found = [fit.unlike]
    return f"; for example {pair_sentence(config, found[0])}" if found else ""


def _has_undecodable(progress: IngestProgress, topic: str) -> bool:
    return any(it.undecodable for place, it in progress.frontiers.items() if place.topic == topic)


def _topic_doubt(config: Config, one: TopicInDoubt, example: Example | None) -> str:
    none = "no record" if not one.decoded else f"only {one.decoded} of {one.read} records"
    read = f" ({one.read} {'was' if one.read == 1 else 'were'} read)" if not one.decoded else ""
    place = config.entry_of(one.topic)
    check = f"check {place}.fields"
    example_clause = ""
    if example is not None:
        example_clause = f"; for example {one.topic}-{example.partition} offset {example.offset}"
        if example.unread is not None:
            example_clause += f", where its value {example.unread}"
        elif example.why:
            check = f"check {refused_fields.settings(place, example.why)}"
            example_clause += f", where {refused_fields.said(example.why, config.publish)}"
    return (
        f"the configuration of topic {one.topic} is in doubt: {none} of it {'decode' if one.decoded > 1 else 'decodes'}"
        f"{read}{example_clause}; {check}"
    )


def _contributions_doubt(config: Config, sums: CellTotals, results: int) -> str:
    """``results``: number of decoded results if none of them matches an event; 0 if a few do."""
    beside, expected = unmatched(sums), sums.counts["expected"]
    has_ids = config.oracle.reads.names_ids
    if not beside:
        check = "outputs[].fields, or a unit in them, may be wrong"
    elif has_ids and sums.counts["unknown_id"] * 2 >= beside:
        check = "inputs[].fields.id and outputs[].fields.ids may name different ids"
    else:
        check = "the fields of key and time, a unit, or a parameter of the oracle may be wrong"
    seen = (
        f"{'no id' if has_ids else 'nothing'} in {plural(results, 'result')} matches an event in the same cell"
        if results
        else f"results have nearly none of the {expected} expected contributions, and {beside} that are not expected"
    )
    return f"the configuration is in doubt: {seen}: {_other_value(sums.fit.mismatch if sums.fit else None) or check}"


def _ids_doubt(config: Config, topic: str, results: int) -> str:
    found = "its only result has no id" if results == 1 else f"none of its {results} results has an id"
    return (
        f"the configuration of topic {topic} is in doubt: {found}: {config.entry_of(topic)}.fields.ids may name "
        "another list; correct it and begin with a new state.path. If the configuration is right, find out why no "
        f"result of {topic} names an event"
    )


def _input_doubt(config: Config, topic: str, one: TopicCounts, sums: CellTotals) -> str:
    place, beside = config.entry_of(topic), unmatched(sums)
    some = "is in a result for its cell" if one.matched < 2 else "are in results for their cells"
    few = f"only {one.matched}" if one.matched else "none"
    if not beside:
        check = f"outputs[].fields.ids may lack the path of the ids of {topic}, or {place}.fields may be wrong"
    elif sums.counts["misplaced"] * 2 > beside:
        check = f"the key, the time or its unit in {place}.fields may be wrong"
    else:
        check = f"{place}.fields.id and outputs[].fields.ids may name different ids"
    return (
        f"the configuration of topic {topic} is in doubt: {few} of {plural(one.read, 'event')} {some}, unlike events "
        f"of other inputs: {check}; correct it and begin with a new state.path. If the configuration is "
        f"right, the pipeline uses {'nearly no event' if one.matched else 'no event'} of {topic}: find out why"
    )


def _output_doubt(config: Config, topic: str, one: TopicCounts, sums: CellTotals) -> str:
    place, beside = config.entry_of(topic), unmatched(sums)
    match = "matches an event in the same cell" if one.right < 2 else "match events in the same cells"
    few = f"only {one.right}" if one.right else "none"
    if not beside:
        check = f"{place}.fields may be wrong, or the topic may have copies of other results"
    elif sums.counts["unknown_id"] * 2 >= beside:
        check = f"{place}.fields.ids and inputs[].fields.id may name different ids"
    else:
        check = f"the key, the time or its unit in {place}.fields may be wrong"
    return (
        f"the configuration of topic {topic} is in doubt: {few} of {plural(one.read, 'id')} in its results {match}: "
        f"{check}; correct it and begin with a new state.path. If the "
        f"configuration is right, {'nearly every' if one.right else 'every'} result of {topic} is wrong or repeated: "
        "find out why"
    )


def _set_aside_doubt(config: Config, side: str, count: int, matched: int) -> str:
    topics = ", ".join(topic for place, topic in config.topics_by_place() if place.startswith(f"{side}["))
    few, records = f"only {matched}" if matched else "none", plural(count + matched, f"{side} record")
    some = "has the id of an event in its cell" if matched < 2 else "have the id of an event in their cells"
    return (
        f"the configuration of {side} topic {topics} is in doubt: {few} of {records} {some}: "
        f"check {side}[].fields; correct it and begin with a new state.path"
    )
