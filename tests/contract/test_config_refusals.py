"""The messages for each error in a configuration: one sentence with file, field and fix."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from validator.cli.refused import UNBUILT_COMMANDS
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.config.reference import NOT_ALL, render
from validator.model.envelopes import ENVELOPES
from validator.oracles.kinds import built, refusals, unbuilt
from validator.reconcile.evidence.kinds import evidence_of
from validator.settings.errors import ConfigError
from validator.settings.formats import kinds as formats
from validator.stream.topic_settings import ids_that_repeat

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]


def problems(*assignments: str, example: str = "clickstream", **environment: str) -> tuple[str, ...]:
    """The sentences, without the lines of the example."""
    with pytest.raises(ConfigError) as caught:
        loads(EXAMPLES[example], "/etc", assignments, environment, source="c.yaml")
    return tuple(re.sub(r"^(c\.yaml), line \d+:", r"\1:", problem) for problem in caught.value.problems)


def test_the_example_states_the_defaults() -> None:
    config = loads(EXAMPLES["clickstream"], "/etc", environment={})
    bare = Config.model_validate(
        {
            **{name: config.model_dump(mode="json")[name] for name in ("pipeline", "guarantee", "inputs", "outputs")},
            "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
            "oracle": {"kind": "tumbling_window", "size": "60s"},
            "state": {"path": "/etc/state/clickstream"},
        }
    )
    for part in ("kafka", "engine", "oracle", "start", "timing", "state", "spark", "metrics", "limits"):
        assert getattr(bare, part) == getattr(config, part), part


FORMATS = " or ".join((", ".join([*formats.built()][:-1]), [*formats.built()][-1]))
KINDS = " or ".join((", ".join([*built()][:-1]), [*built()][-1]))

NOT_BUILT_SENTENCES = {
    "oracle={kind: reachability, size: 30s}": (
        f"oracle.kind (from --set oracle): reachability is not supported yet; use {KINDS}."
    ),
}


FORMAT_SENTENCES = {
    "csv": "inputs[0].format.columns (from --set inputs.0.format): it is missing; add it.",
    "xml": "inputs[0].format (from --set inputs.0.format): 'xml' is not a format; use FORMATS.",
    "7": "inputs[0].format (from --set inputs.0.format): 7 is not a format; use FORMATS.",
    "{columns: [id]}": "inputs[0].format (from --set inputs.0.format): it has no kind; use FORMATS.",
    "{kind: json, columns: [id]}": (
        "inputs[0].format.columns (from --set inputs.0.format): format json has no such key; leave it out."
    ),
    "avro": (
        "inputs[0].format (from --set inputs.0.format): its records name schemas of a registry, and there is none; "
        "write schema_registry.url."
    ),
    "{kind: csv, columns: [id, page]}": (
        "inputs[0].fields.event_time: timestamp is not a column of the format; use one of id, page."
    ),
    "{kind: csv, columns: [id, page, timestamp], delimter: x}": (
        "inputs[0].format.delimter (from --set inputs.0.format): format csv has no such key; did you mean delimiter."
    ),
    "{kind: csv, columns: [id, page, timestamp, id]}": (
        "inputs[0].format.columns (from --set inputs.0.format): id is named twice; give each column a name of its own."
    ),
    "{kind: csv, columns: [a.b]}": (
        "inputs[0].format.columns (from --set inputs.0.format): 'a.b' is not a valid column name; leave out dots and $."
    ),
    "{kind: csv, columns: [id], delimiter: '\"'}": (
        "inputs[0].format.delimiter (from --set inputs.0.format): it is a quote or a line end; "
        "use another character, such as ; or |."
    ),
    "{kind: csv, columns: [id], delimiter: ;}": (
        "inputs[0].format.list_delimiter (from --set inputs.0.format): it equals delimiter; use another character."
    ),
}


@pytest.mark.parametrize("given", FORMAT_SENTENCES)
def test_a_format_that_does_not_fit_is_refused_with_one_sentence(given: str) -> None:
    wanted = FORMAT_SENTENCES[given].replace("FORMATS", FORMATS)
    assert problems(f"inputs.0.format={given}") == (f"c.yaml: {wanted}",)


def test_a_condition_of_a_filter_is_a_column() -> None:
    csv = "inputs.0.format={kind: csv, columns: [id, page, timestamp]}"
    oracle = "oracle={kind: filter, where: {path: status, one_of: [paid]}}"
    outputs = "outputs.0={topic: out, evidence: id, fields: {id: id, key: page, event_time: timestamp}}"
    said = "status is not a column of the format; use one of id, page, timestamp."
    assert problems(csv, oracle, outputs) == (f"c.yaml: oracle.where.path (from --set oracle): {said}",)


@pytest.mark.parametrize("assignment", NOT_BUILT_SENTENCES)
def test_a_setting_that_is_not_built_is_refused_with_one_sentence(assignment: str) -> None:
    assert problems(assignment) == (f"c.yaml: {NOT_BUILT_SENTENCES[assignment]}",)


@pytest.mark.parametrize("kind", sorted(unbuilt()))
def test_every_oracle_of_the_contract_is_built_or_refused(kind: str) -> None:
    said = f"c.yaml: oracle.kind (from --set oracle.kind): {kind} is not supported yet; use {KINDS}."
    assert problems(f"oracle.kind={kind}") == (said,)


RULES = {
    "oracle.kind=nope": (f"oracle.kind (from --set oracle.kind): 'nope' is not one of its values; use {KINDS}."),
    "metrics.port=1:30": "metrics.port (from --set metrics.port): '1:30' does not fit; write a whole number.",
    "inputs.0.fields.id=on": (
        "inputs[0].fields.id (from --set inputs.0.fields.id): True does not fit; write a path in quotes."
    ),
    "inputs.0.fields.id=5": "inputs[0].fields.id (from --set inputs.0.fields.id): 5 does not fit; write a path.",
    "outputs.0.fields.ids=no": (
        "outputs[0].fields.ids (from --set outputs.0.fields.ids): False does not fit; write a path in quotes."
    ),
    "inputs.0.fields.key=[on]": (
        "inputs[0].fields.key[0] (from --set inputs.0.fields.key): True does not fit; write a path in quotes."
    ),
    "inputs.0.fields.id={path: on}": (
        "inputs[0].fields.id[0].path (from --set inputs.0.fields.id): True does not fit; write a text in quotes."
    ),
    "state.path=": "state.path (from --set state.path): an empty value does not fit; write a path.",
    "timing.missing_after=1s": (
        "timing.missing_after (from --set timing.missing_after): 1s is below overdue_after 30s; "
        "raise missing_after or lower overdue_after."
    ),
    "timing.idle_aftr=3s": (
        "timing.idle_aftr (from --set timing.idle_aftr): it is not a known key; did you mean idle_after."
    ),
    "timing.idle_after=3": (
        "timing.idle_after (from --set timing.idle_after): 3 is not a duration; "
        "write a number with ms, s, m, h or d, as in 30s."
    ),
    "oracle.size=0s": "oracle.size (from --set oracle.size): it is zero; write a duration above zero.",
    "oracle.offset=60s": (
        "oracle.offset (from --set oracle.offset): 1m is not below the size; write an offset below 1m."
    ),
    "oracle.time_zone=Mars/Olympus": (
        "oracle.time_zone (from --set oracle.time_zone): 'Mars/Olympus' is not a known time zone; "
        "write an IANA name such as Europe/Berlin."
    ),
    "oracle={kind: tumbling_window, size: 1d, time_zone: Europe/Berlin, closed: right}": (
        "oracle.closed (from --set oracle): closed: right is not supported for windows on the wall clock of a time "
        "zone; write left, or the time zone UTC."
    ),
    "oracle={kind: sliding_window, size: 1d, slide: 1h, time_zone: Europe/Berlin}": (
        "oracle.slide (from --set oracle): the clock of Europe/Berlin has skipped 1h: windows could share a start; "
        "write a longer slide, or the time zone UTC if no window has to begin at local midnight."
    ),
    "outputs.0.fields={key: page, window_start: w, ids: [{path: a, input: click}]}": (
        "outputs[0].fields.ids (from --set outputs.0.fields): inputs with id spaces of their own are not "
        "supported yet for "
        "this oracle; leave input out."
    ),
    "outputs.0.topic=click": (
        "outputs[0].topic (from --set outputs.0.topic): topic click is already used in "
        "inputs[0].topic; use each topic only once."
    ),
    "outputs.0.fields={key: page, ids: a}": (
        "outputs[0].fields.window_start (from --set outputs.0.fields): oracle tumbling_window needs it, "
        "since the order of results does not show their windows once one is lost; name the path of the window's start "
        "in a result; if no field has it, let the engine write it into the value or the key: window_start of Flink "
        "SQL, window.start of Spark, key.window().start() of Kafka Streams."
    ),
    "outputs.0.fields={key: page, window_start: w}": (
        "outputs[0].fields.ids (from --set outputs.0.fields): evidence ids needs it; "
        "name the path of the ids in a result; if results state a number or a sum instead, write evidence: values."
    ),
    "outputs.0.evidence=id": (
        "outputs[0].fields.id: evidence id needs it; name the path of the id in a result; if results state a number or "
        "a sum instead, write evidence: values."
    ),
    "inputs.0.fields.id={path: id, unit: ms}": (
        "inputs[0].fields.id (from --set inputs.0.fields.id): it has a unit or a pattern and is not a "
        "time; write its path alone."
    ),
    "inputs.0.fields.event_time={path: t, pattern: YYYY-MM-dd}": (
        "inputs[0].fields.event_time.pattern (from --set inputs.0.fields.event_time): YYYY-MM-dd: YYYY cannot be read; "
        "Y is the year of a week: write yyyy."
    ),
    "inputs.0.fields.event_time={path: t, pattern: yyyy-MM-dd XXX, time_zone: Europe/Berlin}": (
        "inputs[0].fields.event_time.time_zone (from --set inputs.0.fields.event_time): the texts have an offset by "
        "the pattern; leave it out."
    ),
    "inputs.0.fields.event_time={path: t, time_zone: Europe/Berlin}": (
        "inputs[0].fields.event_time.time_zone (from --set inputs.0.fields.event_time): only a pattern needs it; leave "
        "it out, or write a pattern."
    ),
    "inputs.0.tombstone=delete": (
        "inputs[0].tombstone (from --set inputs.0.tombstone): only rows of a table are deleted; also write table: true."
    ),
    "inputs.0.operations=[update]": (
        f"inputs[0].operations (from --set inputs.0.operations): the records are not changes; write envelope: "
        f"{' or '.join(ENVELOPES)}, or leave it out."
    ),
    "inputs.0.fields.id=$envelope.lsn": (
        f"inputs[0].fields.id (from --set inputs.0.fields.id): the topic has no envelope; write envelope: "
        f"{' or '.join(ENVELOPES)}."
    ),
    "outputs.0.envelope=debezium": ("outputs[0].emission: a change replaces the row before it; write cumulative."),
    "inputs.0={topic: i, envelope: maxwell, format: {kind: csv, columns: [data]}, fields: {id: a, key: a, "
    "event_time: a}}": (
        "inputs[0].fields.id (from --set inputs.0): data.a is not a column of the format; use one of data."
    ),
    "inputs.0.fields.key=[a, b]": (
        "outputs[0].fields.key: it has 1 field and the key of inputs[0] has 2; give every key the "
        "same number of fields."
    ),
    "inputs=[]": "inputs (from --set inputs): it is empty; give at least one entry.",
    "state.retention=1m": (
        "state.retention (from --set state.retention): 1m is not above timing.missing_after; "
        "raise it, since a verdict needs the facts for that long."
    ),
    "kafka.bootstrap_servers=broker": (
        "kafka.bootstrap_servers (from --set kafka.bootstrap_servers): 'broker' is not a broker; "
        "write host:port, several joined by commas."
    ),
    "kafka.options.group.id=mine": (
        "kafka.options: group.id cannot be set here; leave it out, since the sidecar joins no group."
    ),
    "guarantee=twice": (
        "guarantee (from --set guarantee): 'twice' is not one of its values; "
        "use at_most_once, at_least_once or exactly_once."
    ),
    "metrics.port=99999": (
        "metrics.port (from --set metrics.port): 99999 does not fit; input should be less than or equal to 65535."
    ),
    "inputs.0.topic=a b": (
        "inputs[0].topic (from --set inputs.0.topic): 'a b' is not a topic name; "
        "use up to 249 letters, digits, dots, _ and -."
    ),
    "inputs.0.fields.id=a..b": (
        "inputs[0].fields.id[0].path (from --set inputs.0.fields.id): 'a..b' is not a path; "
        "write names joined by dots, as in user.id."
    ),
}


@pytest.mark.parametrize("assignment", RULES)
def test_each_broken_rule_has_its_own_sentence(assignment: str) -> None:
    assert problems(assignment) == (f"c.yaml: {RULES[assignment]}",)


BESIDE_IDS = "outputs.0.fields={key: page, window_start: windowStart, ids: clickIds, values: {clicks: n}}"
OF_VALUES = {
    (
        "oracle.values={clicks: count}",
    ): "outputs[0].fields.values: it is missing; name exactly clicks, as oracle.values does.",
    (BESIDE_IDS,): (
        "oracle.values: results state values, and it is missing; write each name and its aggregate: {clicks: count}."
    ),
    (BESIDE_IDS, "oracle={kind: distinct, size: 1m, values: {clicks: count}}"): (
        "oracle.values (from --set oracle): values beside ids are not supported yet for this oracle; leave it out."
    ),
    ("outputs.0.fields={key: page, ids: clickIds}", "oracle={kind: running_aggregate, values: {clicks: count}}"): (
        "oracle.values (from --set oracle): values beside ids are not supported yet for this oracle; "
        "leave it out, or use evidence values."
    ),
    (BESIDE_IDS, "oracle.values={clicks: count}", "oracle.having={clicks: {above: 1}}"): (
        "oracle.having (from --set oracle.having): having is supported only for tumbling and sliding windows "
        "whose results state values, "
        "without emission incremental; leave it out."
    ),
}
OF_BOUNDS = {
    "oracle.having={n: {above: 1}}": (
        "oracle.having.n (from --set oracle.having): oracle.values has no such value; use one of clicks."
    ),
    "oracle.having={clicks: {}}": (
        "oracle.having.clicks.above (from --set oracle.having): a bound is at_least or above; write one of the two."
    ),
    "oracle.having={clicks: {above: 1, at_least: 2}}": (
        "oracle.having.clicks.above (from --set oracle.having): a bound is at_least or above; write one of the two."
    ),
}


@pytest.mark.parametrize("assignments", OF_VALUES)
def test_values_beside_ids_have_their_own_sentences(assignments: tuple[str, ...]) -> None:
    assert problems(*assignments) == (f"c.yaml: {OF_VALUES[assignments]}",)


@pytest.mark.parametrize("assignment", OF_BOUNDS)
def test_bounds_of_results_have_their_own_sentences(assignment: str) -> None:
    assert problems(assignment, example="counts") == (f"c.yaml: {OF_BOUNDS[assignment]}",)


PAIRS = (
    "late=[]",
    "inputs.0.fields={key: page, event_time: timestamp}",
    "inputs.1.fields={key: page, event_time: timestamp}",
    "outputs.0={topic: output, evidence: values, fields: {key: page, window_start: at, values: {pairs: n, paid: t}}}",
    "oracle.values={pairs: count, paid: sum(left.amount)}",
)
OF_PAIRS = {
    ("oracle.values={paid: sum(left.amount)}", "outputs.0.fields.values={paid: t}"): (
        "oracle.values (from --set oracle.values): values of a join need count; "
        "add the number of pairs, as in {pairs: count}."
    ),
    ("oracle.values={pairs: count, paid: sum(amount)}",): (
        "oracle.values (from --set oracle.values): amount is not a field of a side that results name; "
        "write left.FIELD or right.FIELD."
    ),
    ("oracle.join=semi", "oracle.values={pairs: count, paid: sum(right.amount)}"): (
        "oracle.values (from --set oracle.values): right.amount is not a field of a side that results name; "
        "write left.FIELD."
    ),
    ("oracle.values={pairs: count, paid: sum_mod64(left.amount)}",): (
        "oracle.values (from --set oracle.values): sum_mod64 is not supported by joins; use sum."
    ),
    ("late=[{topic: aside, fields: {key: page, event_time: timestamp}}]",): (
        "late[0].input (from --set late): it must name the input of these events (one of click and update); set it, "
        "and use a separate topic for each input."
    ),
    ("oracle.having={pairs: {above: 1}}",): (
        "oracle.having (from --set oracle.having): having is supported only for tumbling and sliding windows "
        "whose results state values, without emission incremental; leave it out."
    ),
    ("inputs.0.explode={}",): (
        "inputs[0].explode (from --set inputs.0.explode): words are counted only in values, for a key of one field and "
        "without joins, late or rejected topics; leave it out."
    ),
    ("inputs.0.fields.id=id",): (
        "inputs[0].fields.id (from --set inputs.0.fields.id): evidence values does not use it; leave it out."
    ),
    ("outputs.0.evidence=ids", "outputs.0.fields.ids=[{path: c, input: click}, {path: u, input: update}]"): (
        "oracle.values (from --set oracle.values): values beside ids are not supported yet for this oracle; "
        "leave it out, or use evidence values."
    ),
}


@pytest.mark.parametrize("assignments", OF_PAIRS)
def test_values_of_a_join_have_their_own_sentences(assignments: tuple[str, ...]) -> None:
    assert problems(*PAIRS, *assignments, example="join") == (f"c.yaml: {OF_PAIRS[assignments]}",)


def test_results_of_a_join_may_state_values() -> None:
    config = loads(EXAMPLES["join"], "/etc", PAIRS, {})
    assert [config.oracle.seen_from(topic).stated.paths for topic in ("click", "update")] == [("amount",), ()]
    assert config.oracle.spaces(config.inputs) == {}


def test_a_bound_on_a_value_that_may_fall_is_refused() -> None:
    values = "{clicks: count, paid: sum(amount)}"
    (problem,) = problems(
        f"oracle.values={values}",
        "outputs.0.fields.values={clicks: count, paid: paid}",
        "oracle.having={paid: {above: 10}}",
        example="counts",
    )
    assert "a further event may take this value below the bound; leave it out" in problem


def test_different_values_of_a_running_aggregate_are_refused() -> None:
    stated = "outputs.0.fields.values={words: $value}"
    (problem,) = problems("oracle.values={words: distinct(word)}", stated, example="kafka-streams-count")
    assert "the number of different values of a running aggregate is not supported yet" in problem


def test_sums_over_ids_have_no_tolerance() -> None:
    stated = "outputs.0.fields.values={clicks: count, ids: {path: ids, tolerance: 1}}"
    (problem,) = problems("oracle.values={clicks: count, ids: sum_mod64(id)}", stated, example="counts")
    assert "outputs[0].fields.values.ids.tolerance" in problem
    assert problem.endswith("a sum modulo 2^64 is exact; leave it out.")


@pytest.mark.parametrize("text", ["sum(crc32(id))", "sum_mod64(sha1(id))", "sum_mod64(crc32())", "sum_mod32(id)"])
def test_an_unknown_sum_over_ids_names_the_known_ones(text: str) -> None:
    (problem,) = problems(f"oracle.values={{clicks: '{text}'}}", example="counts")
    assert f"{text!r} is not an aggregate" in problem
    assert "PATH may be crc32(PATH) or md5(PATH) or xxhash64(PATH)" in problem


COLLAPSING = ("inputs.0.fields.id=id", "inputs.0.duplicates=collapse")


@pytest.mark.parametrize("other", ["late=[{topic: aside, fields: {key: page, event_time: timestamp}}]",
                                   "oracle.having={clicks: {above: 1}}",
                                   "inputs.0.explode={}"])  # fmt: skip
def test_repeats_without_ids_in_results_are_refused_where_they_are_not_judged(other: str) -> None:
    (problem,) = problems(*COLLAPSING, other, example="counts")
    assert "collapse is not supported yet for these results without ids; use count, or evidence with ids" in problem


def test_results_may_state_how_many_different_ids_there_are() -> None:
    evidence = evidence_of(loads(EXAMPLES["counts"], "/etc", COLLAPSING, {}).oracle)
    assert evidence.names_events
    assert not evidence.fingerprints_decide


def test_only_sums_over_ids_look_up_ids_of_events() -> None:
    (problem,) = problems("inputs.0.fields.id=id", example="counts")
    assert "evidence values does not use it; leave it out" in problem
    sums = ["oracle.values={clicks: count, ids: sum_mod64(id)}", "outputs.0.fields.values={clicks: n, ids: s}"]
    assert evidence_of(loads(EXAMPLES["counts"], "/etc", ["inputs.0.fields.id=id", *sums], {}).oracle).names_events


OF_A_JOIN = {
    "oracle={kind: windowed_join, left: click, right: update, size: 1m}": (
        "oracle.join (from --set oracle): oracle windowed_join needs it; add it."
    ),
    "oracle={kind: windowed_join, join: left, left: click, size: 1m}": (
        "oracle.right (from --set oracle): oracle windowed_join needs it; add it."
    ),
    "oracle={kind: tumbling_window, left: click, size: 1m}": (
        "oracle.left (from --set oracle): oracle tumbling_window does not use it; "
        "leave it out, or use interval_join or windowed_join."
    ),
    "oracle.join=outer": (
        "oracle.join (from --set oracle.join): 'outer' is not one of its values; use inner, left or semi."
    ),
    "oracle.right=click": (
        "oracle.right (from --set oracle.right): a join of an input with itself is not supported yet; name the "
        "other input."
    ),
    "oracle.right=updates": (
        "oracle.right (from --set oracle.right): updates is not an input topic; use one of click, update."
    ),
    "inputs.2={topic: third, fields: {id: id, key: page, event_time: timestamp}}": (
        "inputs: a join of more than two inputs is not supported yet; keep click and update only."
    ),
    "outputs.0.fields.ids=[clickIds, updateIds]": (
        "outputs[0].fields.ids (from --set outputs.0.fields.ids): the input of the ids at clickIds must be "
        "one of click and update; write {path: clickIds, input: TOPIC}."
    ),
    "outputs.0.fields.ids=[{path: clickIds, input: click}]": (
        "outputs[0].fields.ids (from --set outputs.0.fields.ids): the ids of update are missing; "
        "add {path: ..., input: update}."
    ),
    "outputs.0={topic: output, evidence: id, fields: {key: page, window_start: w, id: clickId}}": (
        "outputs[0].evidence (from --set outputs.0): a join's results cannot have evidence id; use ids."
    ),
    "inputs.1.fields={key: page, event_time: timestamp}": (
        "inputs[1].fields.id (from --set inputs.1.fields): it is missing; name the path of the event's id; "
        "if results carry no ids, write evidence: values."
    ),
    "late.1.fields={key: page, event_time: timestamp}": (
        "late[1].fields.id (from --set late.1.fields): it is missing; name the path of the event's id; "
        "if results carry no ids, write evidence: values."
    ),
    "late.1.input=null": (
        "late[1].input (from --set late.1.input): it must name the input of these events (one of click and update); "
        "set it, and use a separate topic for each input."
    ),
    "rejected=[{topic: dead, input: other, fields: {id: id, key: page, event_time: timestamp}}]": (
        "rejected[0].input (from --set rejected): it must name the input of these events (one of click and update); "
        "set it, and use a separate topic for each input."
    ),
}


@pytest.mark.parametrize("assignment", OF_A_JOIN)
def test_an_incomplete_join_names_the_missing_setting(assignment: str) -> None:
    assert problems(assignment, example="join") == (f"c.yaml: {OF_A_JOIN[assignment]}",)


def test_refusals_of_sessions_and_interval_joins_have_a_reason() -> None:
    sessions = "oracle={kind: session_window, gap: 1m, values: {clicks: count}}"
    (problem,) = problems(sessions, "outputs.0.emission=cumulative", example="counts")
    assert "a later result of a session names another start or end, so which results it replaces is not" in problem
    joined = "oracle={kind: interval_join, join: inner, left: click, right: update, after: 1m, values: {pairs: count}}"
    output = "outputs.0={topic: o, evidence: values, fields: {key: page, event_time: at, values: {pairs: n}}}"
    (problem,) = problems(joined, output, "late=[]", example="join")
    assert problem == (
        "c.yaml: outputs[0].evidence (from --set outputs.0): the pairs of an interval join depend on the time of each "
        "event, and no number or sum over a cell shows them; use ids."
    )


def test_windows_in_several_outputs_are_all_cumulative() -> None:
    output = "topic: other, evidence: values, fields: {key: page, window_start: at, values: {clicks: n}}"
    loads(
        EXAMPLES["counts"],
        "/etc",
        ["outputs.0.emission=cumulative", f"outputs.1={{emission: cumulative, {output}}}"],
        {},
    )
    (problem,) = problems("outputs.0.emission=cumulative", f"outputs.1={{{output}}}", example="counts")
    assert "emission cumulative for only some outputs is not supported yet; give every output the same" in problem


OF_ONE_EVENT = {
    "oracle.values={n: count}": (
        "oracle.values (from --set oracle.values): a result of one event states no count; "
        "write same(PATH) for each field that a result repeats."
    ),
    "oracle.values={n: same(amount), m: same( amount )}": (
        "oracle.values (from --set oracle.values): two values are the same field; name each field once."
    ),
    "outputs.0.fields.values={n: {path: amount, tolerance: 1}}": (
        "outputs[0].fields.values.n.tolerance (from --set outputs.0.fields.values): a repeated field is exact; "
        "leave it out."
    ),
    "outputs.0.fields.values={m: amount}": (
        "outputs[0].fields.values (from --set outputs.0.fields.values): it names m; "
        "name exactly n, as oracle.values does."
    ),
    "oracle={kind: tumbling_window, size: 1m, values: {n: same(amount)}}": (
        "oracle.values (from --set oracle): same(PATH) needs results of one event each; "
        "leave it out, or use passthrough, map or filter."
    ),
    "inputs.0.duplicates=collapse": (
        "inputs[0].duplicates (from --set inputs.0.duplicates): repeated events cannot be recognised without ids; "
        "use count, or set inputs[0].fields.id."
    ),
    "oracle.having={n: {above: 1}}": (
        "oracle.having.n (from --set oracle.having): a further event may take this value below the bound; leave it out."
    ),
}
REPEATED = (
    "late=[]",
    "inputs.0.fields={key: page, event_time: timestamp}",
    "oracle={kind: map, values: {n: same(amount)}}",
    "outputs.0={topic: output, evidence: values, fields: {key: page, event_time: at, values: {n: amount}}}",
)


@pytest.mark.parametrize("assignment", OF_ONE_EVENT)
def test_results_of_one_event_have_their_own_sentences(assignment: str) -> None:
    assert problems(*REPEATED, assignment) == (f"c.yaml: {OF_ONE_EVENT[assignment]}",)


def test_a_repeated_field_needs_results_of_one_event() -> None:
    stated = "outputs.0.fields.values={clicks: n, paid: amount}"
    (problem,) = problems("oracle.values={clicks: count, paid: same(amount)}", stated, example="counts")
    assert problem.endswith(
        "same(PATH) needs results of one event each; leave it out, or use passthrough, map or filter."
    )


def test_a_result_of_one_event_need_not_repeat_a_field() -> None:
    loads(EXAMPLES["clickstream"], "/etc", REPEATED, {})
    fields = "outputs.0.fields={key: page, event_time: at}"
    config = loads(EXAMPLES["clickstream"], "/etc", (*REPEATED, "oracle={kind: map}", fields), {})
    assert evidence_of(config.oracle).fingerprints_decide


OF_A_FILTER = {
    "oracle={kind: filter}": "oracle.where (from --set oracle): oracle filter needs it; add it.",
    "oracle={kind: passthrough, where: {path: status, one_of: [paid]}}": (
        "oracle.where (from --set oracle): oracle passthrough does not use it; leave it out, or use filter."
    ),
    "oracle={kind: map, size: 10s}": (
        "oracle.size (from --set oracle): oracle map does not use it; "
        "leave it out, or use distinct, sliding_window, tumbling_window or windowed_join."
    ),
    "oracle.bucket=0s": "oracle.bucket (from --set oracle.bucket): it is zero; write a duration above zero.",
    "oracle.where=status": (
        "oracle.where (from --set oracle.where): 'status' does not fit; write a mapping of keys to values."
    ),
    "oracle.where={path: status}": (
        "oracle.where.one_of (from --set oracle.where): it is missing; "
        "write one_of, none_of, equals, at_least, above, at_most, below, matches or exists."
    ),
    "oracle.where={}": (
        "oracle.where.path (from --set oracle.where): it is missing; name a field, or write all, any or not."
    ),
    "oracle.where={path: status, equals: paid, not: {path: total, above: 5}}": (
        "oracle.where.equals (from --set oracle.where): path is given already; leave one of the two out."
    ),
    "oracle.where={path: status, matches: '['}": (
        "oracle.where.matches (from --set oracle.where): '[' is not a regular expression: unterminated character set "
        "at position 0; correct it."
    ),
    "oracle.where={all: [{path: status, exists: true}, {path: customer.country, equals: DE}]}": (
        "oracle.where.all[1].path (from --set oracle.where): customer.country is inside customer, which the key of "
        "inputs[0] reads as a single value; name paths that do not contain each other."
    ),
    "outputs.0.where={path: order.by, equals: us}": (
        "outputs[0].where.path (from --set outputs.0.where): order.by is inside order, which the id reads as a single "
        "value; name paths that do not contain each other."
    ),
    "inputs.0.fields.id=[order, line]": (
        "outputs[0].fields.id: it has 1 field and the id of inputs[0] has 2; give every id the same number of fields."
    ),
    "oracle.where={path: status, one_of: []}": (
        "oracle.where.one_of (from --set oracle.where): it is empty; give at least one entry."
    ),
    "oracle.where={path: status, one_of: paid}": (
        "oracle.where.one_of (from --set oracle.where): it is not a list; "
        "write a list of values, as in [paid, refunded]."
    ),
    "oracle.where={path: status, one_of: [paid, null]}": (
        "oracle.where.one_of (from --set oracle.where): an empty value is not a scalar; "
        "write texts, numbers, true or false."
    ),
    "oracle.where={path: status, one_of: [[paid]]}": (
        "oracle.where.one_of (from --set oracle.where): a list is not a scalar; write texts, numbers, true or false."
    ),
    "oracle.where={path: status, one_of: [paid], below: 5}": (
        "oracle.where.below (from --set oracle.where): one_of is given already; leave one of the two out."
    ),
    "oracle.where={path: total, at_least: many}": (
        "oracle.where.at_least (from --set oracle.where): 'many' is not a number; write a number, as in 10 or 0.5."
    ),
    "oracle.where={path: total, at_least: true}": (
        "oracle.where.at_least (from --set oracle.where): True is not a number; write a number, as in 10 or 0.5."
    ),
    "oracle.where={path: total, at_least: .inf}": (
        "oracle.where.at_least (from --set oracle.where): inf is not finite, or is too large or too small to compare; "
        "write a number, as in 10 or 0.5."
    ),
    "oracle.where={path: total, at_least: 5, below: 5}": (
        "oracle.where.below (from --set oracle.where): 5 is not greater than at_least (5); raise it."
    ),
    "oracle.where.path=$timestamp": (
        "oracle.where.path (from --set oracle.where.path): $timestamp is not a property of an event; "
        "name a field of the value, $key or $header.NAME."
    ),
    "oracle.where.path=a..b": (
        "oracle.where.path (from --set oracle.where.path): 'a..b' is not a path; write names joined by dots, as in "
        "user.id."
    ),
    "oracle.where.path=customer.country": (
        "oracle.where.path (from --set oracle.where.path): customer.country is inside customer, which the key of "
        "inputs[0] reads as a single value; name paths that do not contain each other."
    ),
    "oracle.where.nope=1": (
        "oracle.where.nope (from --set oracle.where.nope): it is not a known key; "
        "use one of path, one_of, none_of, equals, at_least, above, at_most, below, matches, exists, all, any, not."
    ),
    "outputs.0.fields={key: customer, id: order}": (
        "outputs[0].fields.event_time (from --set outputs.0.fields): oracle filter needs it; "
        "name the path of the event's time in a result."
    ),
    "outputs.0.fields={key: customer, id: order, window_start: w}": (
        "outputs[0].fields.window_start (from --set outputs.0.fields): oracle filter does not use it; "
        "leave it out, and set event_time to the path of the event's time."
    ),
    "outputs.0.fields={key: customer, id: order, event_time: t, window_end: w}": (
        "outputs[0].fields.window_end (from --set outputs.0.fields): oracle filter does not use it; "
        "leave it out, and set event_time to the path of the event's time."
    ),
    "outputs.0.fields={key: customer, id: order, event_time: $offset}": (
        "outputs[0].fields.event_time (from --set outputs.0.fields): $offset is not a time; "
        "use $timestamp, or a field that holds a time."
    ),
    "oracle={kind: tumbling_window, size: 10s}": (
        "outputs[0].fields.event_time: oracle tumbling_window does not use it; "
        "leave it out, and set window_start to the path of the window's start."
    ),
}


@pytest.mark.parametrize("assignment", OF_A_FILTER)
def test_an_invalid_filter_is_refused_with_the_valid_form(assignment: str) -> None:
    assert problems(assignment, example="filter") == (f"c.yaml: {OF_A_FILTER[assignment]}",)


@pytest.mark.parametrize(
    ("at", "unit"), [("{path: t, unit: s}", "s"), ("$timestamp", "ms"), ("{path: t, pattern: yyyyMMddHHmm}", "m")]
)
def test_a_bucket_is_a_multiple_of_the_unit_of_a_results_time(at: str, unit: str) -> None:
    fields = f"outputs.0.fields={{key: customer, id: order, event_time: {at}}}"
    said = "0.5ms is not a multiple of the unit of outputs[0].fields.event_time; write a multiple of 1"
    assert problems("oracle.bucket=0.5ms", fields, example="filter") == (
        f"c.yaml: oracle.bucket (from --set oracle.bucket): {said}{unit}.",
    )


def test_offsets_are_no_ids_of_several_topics_or_partitions() -> None:
    said = "each input has the same offsets, and all inputs share their ids; name a field that identifies the event."
    fields = "fields: {id: $offset, key: page, event_time: at}"
    assert problems(f"inputs=[{{topic: a, {fields}}}, {{topic: b, {fields}}}]") == (
        f"c.yaml: inputs[0].fields.id (from --set inputs): {said}",
    )
    counts = {"click": 2}
    one, many = (loads(EXAMPLES["clickstream"], ".", given, {}) for given in ([], ["inputs.0.fields.id=$offset"]))
    assert list(ids_that_repeat(one, counts)) == []
    assert list(ids_that_repeat(many, {"click": 1})) == []
    [(topic, problem, fix)] = ids_that_repeat(many, counts)
    assert (topic, problem) == ("click", "inputs[0].fields.id is $offset, and the 2 partitions of click repeat offsets")
    assert fix.startswith("add $partition to inputs[0].fields.key")
    keyed = "inputs.0.fields={id: $offset, key: [page, $partition], event_time: timestamp}"
    answers = ["outputs.0.fields.key=[page, at]", "late.0.fields.key=[page, at]"]
    placed = loads(EXAMPLES["clickstream"], ".", [keyed, *answers], {})
    assert list(ids_that_repeat(placed, counts)) == []


def test_the_end_of_a_window_of_one_size_is_enough() -> None:
    ends = "outputs.0.fields={key: page, window_end: windowEnd, ids: clickIds}"
    assert loads(EXAMPLES["clickstream"], ".", [ends], {}).oracle.result_span_us == 60_000_000
    for oracle in ("{kind: session_window, gap: 5s}", "{kind: tumbling_window, size: 1d, time_zone: Europe/Berlin}"):
        [problem] = problems(ends, f"oracle={oracle}")
        assert problem.startswith("c.yaml: outputs[0].fields.window_start (from --set outputs.0.fields): oracle ")


def test_a_join_does_not_collapse_repeats() -> None:
    said = "collapse is not supported for a join, which counts an id once per cell anyway; leave it out."
    [problem] = problems("inputs.0.duplicates=collapse", "inputs.1.duplicates=collapse", example="join")
    assert problem == f"c.yaml: inputs[0].duplicates (from --set inputs.0.duplicates): {said}"


INTERVALS = (
    "oracle={kind: interval_join, join: inner, left: click, right: update, after: 5s}",
    "outputs.0.fields={key: page, event_time: t, ids: [{path: c, input: click}, {path: u, input: update}]}",
)
OF_AN_INTERVAL_JOIN = {
    "inputs.0.envelope=canal": (
        "inputs[0].envelope (from --set inputs.0.envelope): several events of one record are not supported yet for an "
        "interval join; use another oracle."
    ),
    "inputs.1.missing_key=owed": (
        "inputs[1].missing_key (from --set inputs.1.missing_key): this meaning of an absent key is not supported yet "
        "for this oracle; use undecodable."
    ),
    "oracle.before=-6s": (
        "oracle.before (from --set oracle.before): no right event is both at least 6s and at most 5s later than a left "
        "one; let before and after add up to 0 or more."
    ),
    "oracle.until=$offset": (
        "oracle.until (from --set oracle.until): $offset is not a time; use $timestamp, or a field that holds a time."
    ),
    "oracle.until=timestamp.end": (
        "oracle.until (from --set oracle.until): timestamp.end is inside timestamp, which the event_time reads as a "
        "single value; name paths that do not contain each other."
    ),
    "oracle.bucket=0.5ms": (
        "oracle.bucket (from --set oracle.bucket): 0.5ms is not a multiple of the unit of "
        "outputs[0].fields.event_time; write a multiple of 1ms."
    ),
}


@pytest.mark.parametrize("assignment", OF_AN_INTERVAL_JOIN)
def test_an_interval_join_refuses_what_it_cannot_judge(assignment: str) -> None:
    times = ["outputs.0.fields.event_time={path: t, unit: ms}"]
    assert problems(*INTERVALS, *times, assignment, example="join") == (f"c.yaml: {OF_AN_INTERVAL_JOIN[assignment]}",)


ENRICHED = (
    "oracle={kind: enrichment, table: {topic: rows, fields: {key: $key, event_time: $timestamp}}, values: {tier: t}}",
    "outputs.0.fields={key: page, event_time: t, ids: a, values: {tier: t}}",
)
OF_AN_ENRICHMENT = {
    "oracle.table.fields={id: id, key: $key, event_time: $timestamp}": (
        "oracle.table.fields.id (from --set oracle.table.fields): a row is found by its key; leave it out."
    ),
    "oracle.table.fields={key: [$key, page], event_time: $timestamp}": (
        "oracle.table.fields.key (from --set oracle.table.fields): it has 2 fields and the key of inputs[0] has 1; "
        "name the fields of the key of the events."
    ),
    "oracle.table.format={kind: csv, columns: [level]}": (
        "oracle.values.tier (from --set oracle): t is not a column of the format; use one of level."
    ),
    "oracle.table.topic=click": (
        "oracle.table.topic (from --set oracle.table.topic): topic click is already used in inputs[0].topic; use each "
        "topic only once."
    ),
    "oracle.table.format=avro": (
        "oracle.table.format (from --set oracle.table.format): its records name schemas of a registry, and there is "
        "none; write schema_registry.url."
    ),
    "oracle.values={tier: same(level)}": (
        "oracle.values.tier (from --set oracle.values): same(level) is a function, and results state a field of a row "
        "as it is; write the path of the field."
    ),
    "oracle.join=inner": (
        "oracle.behind (from --set oracle): with join inner and no bound, a key may be without a row at any time, and "
        "no event owes a result; write how late a row may be used."
    ),
    "oracle.values={tier: a.}": (
        "oracle.values.tier (from --set oracle.values): 'a.' is not a path; write names joined by dots, as in user.id."
    ),
    "outputs.0.fields.values={tier: {path: tier, tolerance: 0.1}}": (
        "outputs[0].fields.values.tier.tolerance (from --set outputs.0.fields.values): a field of a row is stated as "
        "it is; leave it out."
    ),
    "outputs.0.fields.values={level: level}": (
        "outputs[0].fields.values (from --set outputs.0.fields.values): it names level; name exactly tier, as "
        "oracle.values does."
    ),
}


@pytest.mark.parametrize("assignment", OF_AN_ENRICHMENT)
def test_an_enrichment_refuses_what_it_cannot_judge(assignment: str) -> None:
    found = problems(*ENRICHED, assignment)
    assert found == (f"c.yaml: {OF_AN_ENRICHMENT[assignment]}",)


def test_an_enrichment_needs_ids() -> None:
    fields = "outputs.0.fields={key: page, event_time: t, values: {tier: t}}"
    said = "oracle enrichment needs the ids of events; write evidence: id."
    found = problems(*ENRICHED, "outputs.0.evidence=values", fields)
    assert found == (f"c.yaml: outputs[0].evidence (from --set outputs.0.evidence): {said}",)


def test_two_values_of_an_enrichment_may_be_a_field_named_count() -> None:
    both = ["oracle.values={tier: count, other: count}", "outputs.0.fields.values={tier: tier, other: other}"]
    config = loads(EXAMPLES["clickstream"], "/etc", [*ENRICHED, *both], {}, source="c.yaml")
    assert config.oracle.values == {"tier": "count", "other": "count"}


MATCHED = (
    "inputs.0.explode=null",
    "outputs.0.format=json",
    "oracle={kind: rule_match, rules: 9, selectivity: 0.5, values: {words: count}}",
    "inputs.0.format={kind: raw, fields: {head: {offset: 0, type: bytes, size: 16}, at: {offset: 16, type: int64}}}",
    "inputs.0.fields={key: head, event_time: {path: at, unit: ms}}",
    "outputs.0.fields={key: $key, values: {words: count}}",
)
OF_A_RULE_MATCH = {
    "inputs.0.fields.key=at": (
        "inputs[0].fields.key (from --set inputs.0.fields.key): rules match the first 16 bytes of a record; name a "
        "field of format raw, as in head: {offset: 0, type: bytes, size: 16}."
    ),
    "inputs.0.explode={}": (
        "inputs[0].explode (from --set inputs.0.explode): a key is matched as a whole; leave it out."
    ),
    "oracle.rules=null": (
        "oracle.rules (from --set oracle.rules): it is not known which rules there are; write rules."
    ),
    "oracle.selectivities=0.5=2": (
        "oracle.selectivities (from --set oracle.selectivities): they say how many rules there are, and their shares; "
        "leave out rules, selectivity and zipf."
    ),
}


@pytest.mark.parametrize("assignment", OF_A_RULE_MATCH)
def test_rules_refuse_what_they_cannot_match(assignment: str) -> None:
    found = problems(*MATCHED, assignment, example="kafka-streams-word-count")
    assert found == (f"c.yaml: {OF_A_RULE_MATCH[assignment]}",)


def test_rules_need_values() -> None:
    given = [*MATCHED, "oracle.values={}", "outputs.0.evidence=ids", "inputs.0.fields.id=at"]
    given.append("outputs.0.fields={key: $key, ids: a}")
    said = "matches are counted only in values, without late or rejected topics; write values."
    [problem] = problems(*given, example="kafka-streams-word-count")
    assert problem == f"c.yaml: outputs[0].evidence (from --set outputs.0.evidence): {said}"


def test_distinct_refuses_to_collapse_repeats_twice() -> None:
    said = "oracle distinct drops repeated ids anyway; leave it out."
    [problem] = problems("oracle={kind: distinct, size: 1m}", "inputs.0.duplicates=collapse")
    assert problem == f"c.yaml: inputs[0].duplicates (from --set inputs.0.duplicates): {said}"


def test_a_late_topic_of_one_input_needs_a_join() -> None:
    said = "inputs with id spaces of their own are not supported yet for this oracle; leave input out."
    assert problems("late.0.input=click") == (f"c.yaml: late[0].input (from --set late.0.input): {said}",)


RUNNING = ("oracle={kind: running_aggregate}", "outputs.0.fields={key: page, ids: a}")
OF_A_RUNNING_AGGREGATE = {
    "outputs.0.fields={key: page, window_start: w, ids: a}": (
        "outputs[0].fields.window_start (from --set outputs.0.fields): oracle running_aggregate does not use it; "
        "leave it out."
    ),
    "outputs.0.fields={key: page, window_end: w, ids: a}": (
        "outputs[0].fields.window_end (from --set outputs.0.fields): oracle running_aggregate does not use it; "
        "leave it out."
    ),
    "outputs.0={topic: output, emission: cumulative, evidence: id, fields: {key: page, id: a}}": (
        "outputs[0].evidence (from --set outputs.0): with emission cumulative, a result replaces the earlier ones of "
        "its key, so it needs all ids; use evidence ids, or emission final."
    ),
    "outputs.1={topic: other, emission: cumulative, fields: {key: page, ids: a}}": (
        "outputs[1].emission (from --set outputs.1): emission cumulative for only some outputs is not supported yet; "
        "give every output the same emission."
    ),
    "timing.late_policy=drop": (
        "timing.late_policy (from --set timing.late_policy): late policy drop is not supported for a running "
        "aggregate, "
        "which has no windows that close; write report."
    ),
    "outputs.0.fields={key: page, ids: [{path: a, input: click}]}": (
        "outputs[0].fields.ids (from --set outputs.0.fields): inputs with id spaces of their own are not "
        "supported yet for "
        "this oracle; leave input out."
    ),
}


def test_an_absent_key_that_the_oracle_cannot_judge_is_refused() -> None:
    said = "this meaning of an absent key is not supported yet for this oracle; use undecodable"
    place = "c.yaml: inputs[0].missing_key (from --set inputs.0.missing_key):"
    assert problems(*RUNNING, "inputs.0.missing_key=skip") == (f"{place} {said} or owed.",)
    loads(EXAMPLES["clickstream"], "/etc", [*RUNNING, "inputs.0.missing_key=owed"], {})
    for kind in ("skip", "owed"):
        assert problems(f"inputs.0.missing_key={kind}", example="join") == (f"{place} {said}.",)
        loads(EXAMPLES["clickstream"], "/etc", [f"inputs.0.missing_key={kind}"], {})


@pytest.mark.parametrize("assignment", OF_A_RUNNING_AGGREGATE)
def test_settings_that_a_running_aggregate_cannot_have_are_refused(assignment: str) -> None:
    assert problems(*RUNNING, assignment) == (f"c.yaml: {OF_A_RUNNING_AGGREGATE[assignment]}",)


RUNNING_VALUES = ("outputs.0.emission=cumulative", "outputs.0.evidence=values", "inputs.0.fields.id=null")
EVERY_TENTH = {
    "ids": (),
    "no number of events": (
        *RUNNING_VALUES, "oracle.values={total: sum(amount)}", "outputs.0.fields={key: page, values: {total: t}}",
        "late=[]", "guarantee=exactly_once",
    ),
    "a late topic": (
        *RUNNING_VALUES, "oracle.values={clicks: count}", "outputs.0.fields={key: page, values: {clicks: n}}",
        "late=[{topic: late, fields: {id: null, key: page, event_time: $timestamp}}]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("given", EVERY_TENTH.values(), ids=list(EVERY_TENTH))
def test_results_after_every_so_many_events_need_their_number(given: tuple[str, ...]) -> None:
    said = "only the number of events in a result shows which of them owe one; leave it out."
    assert problems(*RUNNING, "oracle.every=10", *given) == (f"c.yaml: oracle.every (from --set oracle.every): {said}",)


def test_results_of_a_running_aggregate_may_be_cumulative() -> None:
    for emission in ("final", "incremental", "cumulative"):
        config = loads(EXAMPLES["clickstream"], "/etc", (*RUNNING, f"outputs.0.emission={emission}"), {})
        assert config.oracle.reads.replaces == (emission == "cumulative")


def test_an_error_from_the_environment_names_the_variable() -> None:
    said = (
        "c.yaml: timing.tick (from environment variable STREAMPROOF__TIMING__TICK): 'soon' is not a duration; "
        "write a number with ms, s, m, h or d, as in 30s."
    )
    assert problems(STREAMPROOF__TIMING__TICK="soon") == (said,)


def test_each_of_several_problems_has_a_sentence() -> None:
    assert len(problems("timing.tick=0s", "metrics.port=x", "nonsense=1")) == 3


def test_no_error_shows_the_value_of_an_option() -> None:
    for assignment in (
        "kafka.options={sasl.password: [hunter2]}",
        "spark.options={x: {a: hunter2}}",
        "kafka.options=hunter2",
    ):
        assert "hunter2" not in "".join(problems(assignment))


def test_the_reference_is_current() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == render()


def test_the_pages_mark_every_refused_setting_and_command() -> None:
    reference = render().splitlines()
    for setting, refused in refusals().items():
        assert f"| `{setting}` | {refused} |" in reference
        # The refused values of `oracle.kind` are in the row `oracle`.
        key = setting.removesuffix(".kind").rpartition(".")[2]
        marked = [row for row in reference if row.startswith(f"| `{key}` |") and row.endswith(f" {NOT_ALL} |")]
        assert marked, setting
    contract = (ROOT / "docs" / "CONTRACT.md").read_text(encoding="utf-8").splitlines()
    for command in UNBUILT_COMMANDS:
        assert any(f"streamproof {command.command} " in row and "**not supported yet**" in row for row in contract), (
            command
        )


def test_refused_settings_are_listed_in_one_table_only() -> None:
    sources = [*(ROOT / "validator" / "config").glob("*.py"), *(ROOT / "validator" / "settings").glob("*.py")]
    said = re.compile(r'[(=,]\s*f?"[^"\n]*not supported')
    assert {path.name for path in sources if said.search(path.read_text(encoding="utf-8"))} == {
        "built.py",
        "problems.py",
    }


def test_every_package_ships_its_types_and_its_files() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    shipped = settings["package-data"]["*"]
    packages = [name.rstrip("*") for name in settings["packages"]["find"]["include"]]
    for package in packages:
        assert (ROOT / package / "py.typed").is_file(), package
    files = [path for package in packages for path in (ROOT / package).rglob("*") if path.is_file()]
    others = [path for path in files if path.suffix not in (".py", ".pyc")]
    assert [path for path in others if not any(path.match(pattern) for pattern in shipped)] == []


def test_a_set_aside_change_is_an_event_if_it_is_one_on_an_input() -> None:
    changes = "inputs.0.envelope=debezium", "inputs.0.operations=[create, update]", "late.0.envelope=debezium"
    assert problems(*changes) == (
        "c.yaml: late[0].operations: it lacks update, which the inputs have; write [create, update].",
    )
    assert loads(EXAMPLES["clickstream"], "/etc", (*changes, "late.0.operations=[create, update]"), {}).late


def test_an_absent_key_has_no_words() -> None:
    given = problems("inputs.0.missing_key=owed", example="kafka-streams-word-count")
    assert given == (
        "c.yaml: inputs[0].missing_key (from --set inputs.0.missing_key): an absent text has no words; write skip.",
    )
