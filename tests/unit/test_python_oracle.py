"""The oracle `python`: a class of the user computes the keys of events."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from validator.codecs.batches import EventBatches
from validator.codecs.columns import UNOWED
from validator.codecs.one_record import Record, Undecodable, Unexamined
from validator.codecs.plain_events import RECORD_SCHEMA
from validator.config.load import loads
from validator.config.model import Config
from validator.settings.errors import InvalidConfigError
from validator.state import identity
from validator.stream.decode import Reader, event_reader
from validator.stream.stage import Stage

PAGE = (Path(__file__).parents[2] / "docs" / "oracles" / "python.md").read_text()
[RULES] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[SETTINGS] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
HEAD = "pipeline: p\nguarantee: exactly_once\nkafka: {bootstrap_servers: 'b:9092'}\nstate: {path: state}\n"
OTHERS = """
from validator.oracles.session_window import SessionWindow

class Any(Python, TumblingWindow):
    def key(self, fields):
        return {"text": "a", "number": 7, "float": 1.50, "true": True, "none": None, "list": ["a"], "pair": ("a", "b"),
                "null": "[null]", "object": {}, "half": chr(0xD800), "long": "x" * 20_000}[fields[0]]

class Gaps(Python, SessionWindow):
    def key(self, fields):
        return fields[0] if fields[0] == "text" else None

class Plain(Python, TumblingWindow):
    pass

class Lacking(Python):
    pass

class NoOracle:
    pass
"""
ONE_FIELD = ("inputs.0.fields.key=country", "oracle={kind: python, class: 'others:Any', size: 15s, values: {n: count}}")
COUNT = ("outputs.0.fields.values={n: n}",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's file, and others."""
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "others.py").write_text(RULES + OTHERS)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'")
    return tmp_path


def config(folder: Path, *assignments: str) -> Config:
    return loads(HEAD + SETTINGS, folder, assignments, {}, source="c.yaml")


def reader_of(setup: Config, *, with_arrow: bool = True) -> Reader:
    """The reader of the input, with Arrow or by the rule alone."""
    reader = event_reader(setup.inputs[0], setup.oracle, 0, "auto", limits=setup.limits)
    assert isinstance(reader.batches, EventBatches)
    assert reader.batches.plain is not None
    return reader if with_arrow else replace(reader, batches=replace(reader.batches, plain=None))


def batch(values: list[dict[str, Any]]) -> pa.RecordBatch:
    numbers = range(len(values))
    columns = [[json.dumps(value).encode() for value in values], [0 for _ in numbers], list(numbers), [5] * len(values)]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )


def facts(setup: Config, values: list[dict[str, Any]], *, with_arrow: bool = True) -> list[dict[str, Any]]:
    """The fact rows of some records."""
    stage = Stage([reader_of(setup, with_arrow=with_arrow)], 2**61, with_first_event=True)
    found = pa.concat_tables(stage.facts(0, iter([batch(values)]))).to_pylist()
    return sorted(found, key=lambda row: (row["status"], row["window_start_us"] or 0, row["key"] or "", str(row)))


def clicks(seed: int) -> list[dict[str, Any]]:
    """Clicks with their region, which an independent function computes; a few that count lack a field."""
    chance, regions = Random(seed), {"de": "emea", "us": "amer"}
    found: list[dict[str, Any]] = []
    for _ in range(3_000):
        country, plan = chance.choice(["de", "us", "jp", "\u00e9"]), chance.choice(["free", "paid"])
        at = f"2026-01-01T10:{chance.randrange(60):02}:{chance.randrange(60):02}Z"
        click = {"country": country, "plan": plan, "at": at, "region": regions.get(country, "other")}
        if plan == "paid" and chance.random() < 0.02:
            del click[chance.choice(["at", "country", "plan"])]
        elif chance.random() < 0.05:
            # Arrow leaves this time to the rule.
            click["at"] = "20260101T100000Z"
        found.append(click)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_class_gives_the_facts_of_the_built_in_oracle_for_the_same_rule(folder: Path, seed: int) -> None:
    by_class = config(folder)
    built_in = config(
        folder,
        "inputs.0.fields.key=region",
        "oracle={kind: tumbling_window, size: 15s, values: {clicks: count}, where: {path: plan, equals: paid}}",
    )
    values = [click for click in clicks(seed) if "country" in click]
    assert facts(by_class, values) == facts(by_class, values, with_arrow=False)
    rows, wanted = facts(by_class, values), facts(built_in, values)
    assert [row for row in rows if row["status"] != UNOWED] == [row for row in wanted if row["status"] != UNOWED]
    skipped, others = ([row for row in found if row["status"] == UNOWED] for found in (rows, wanted))
    assert sum(row["records"] for row in skipped) == sum(row["records"] for row in others) > 1_000
    assert {row["newest_event_time_us"] for row in (*skipped, *others)} == {None}
    plain = config(folder, *COUNT, ONE_FIELD[1].replace("Any", "Plain"), "inputs.0.fields.key=region")
    unconditional = config(
        folder, *COUNT, "oracle={kind: tumbling_window, size: 15s, values: {n: count}}", "inputs.0.fields.key=region"
    )
    assert facts(plain, values) == facts(unconditional, values)


def test_what_a_class_returns_is_a_key_or_makes_the_record_undecodable(folder: Path) -> None:
    setup = config(folder, *COUNT, *ONE_FIELD)
    answers = {
        "text": "a",
        "number": "7",
        "float": "1.5",
        "true": "true",
        "none": "[null]",
        "list": "a",
        "long": "has 20000 bytes, above limits.key_bytes",
        "pair": "makes oracle.class return 2 fields; the key of a result has 1",
        "null": "makes oracle.class return the text that stands for an absent key",
        "object": "makes oracle.class return a field that is not a text, a number or a boolean",
        "half": "makes oracle.class return a field that holds half of a surrogate pair, which is not a character",
        "nothing": "makes oracle.class raise KeyError",
    }
    values = [{"country": name, "at": "2026-01-01T10:00:00Z"} for name in answers]
    decoder = reader_of(setup).decoder
    for value, wanted in zip(values, answers.values(), strict=True):
        found = decoder.decode(Record(json.dumps(value).encode()))
        if isinstance(found, Undecodable):
            assert (found.field, found.path, found.reason) == ("key", "country", wanted)
            assert isinstance(found, Unexamined) == wanted.startswith("has")
        else:
            assert (found.key, found.is_skipped) == (wanted, wanted == "[null]")  # type: ignore[union-attr]
    assert facts(setup, values * 3) == facts(setup, values * 3, with_arrow=False)
    sessions = config(
        folder,
        *("inputs.0.fields.key=country", "outputs.0.fields.values={n: n}"),
        "oracle={kind: python, class: 'others:Gaps', gap: 15s, values: {n: count}}",
    )
    refused = reader_of(sessions).decoder.decode(Record(json.dumps(values[1]).encode()))
    assert isinstance(refused, Undecodable)
    assert refused.reason == "makes oracle.class return None, which it may only with windows that do not merge"
    assert facts(sessions, values) == facts(sessions, values, with_arrow=False)


def test_a_set_aside_event_without_a_key_is_in_the_cell_of_the_events_that_owe_nothing(folder: Path) -> None:
    late = "late=[{topic: late, fields: {key: [country, plan], event_time: at}}]"
    setup = config(folder, late)
    event = {"country": "de", "plan": "free", "at": "2026-01-01T10:00:00Z"}
    of_late = Stage([event_reader(setup.late[0], setup.oracle, 0, "auto")], 2**61, with_first_event=False)
    [set_aside] = pa.concat_tables(of_late.facts(0, iter([batch([event])]))).to_pylist()
    [skipped] = facts(setup, [event])
    assert (set_aside["key"], set_aside["window_start_us"]) == (skipped["key"], skipped["window_start_us"])
    assert (set_aside["contributions"], skipped["contributions"]) == (1, 0)


def test_a_worker_runs_the_text_of_the_class_without_its_file(folder: Path) -> None:
    reader = reader_of(config(folder))
    pickled = folder / "reader"
    # As Spark does. It pickles functions in another way than Python.
    pickled.write_bytes(cloudpickle.dumps(reader))
    (folder / "rules.py").unlink()
    program = (
        "import pickle, sys; from validator.codecs.one_record import Record\n"
        "reader = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(reader.decoder.decode(Record(sys.argv[2].encode())).key, reader.oracle.size, reader.oracle.reads)"
    )
    event = '{"country": "de", "plan": "paid", "at": "2026-01-01T10:00:00Z"}'
    done = subprocess.run(
        [sys.executable, "-c", program, pickled, event], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split()[:2] == ["emea", "15000000"]
    assert f"{reader.oracle.reads}" in done.stdout


def test_a_state_continues_with_the_same_text_and_parameters_only(folder: Path) -> None:
    (folder / "state").mkdir()
    identity.check_or_write(folder / "state", config(folder))
    assert identity.check_or_write(folder / "state", config(folder)) == frozenset()
    with pytest.raises(identity.StateMismatch, match=r"oracle\.regions\.us was"):
        identity.check_or_write(folder / "state", config(folder, "oracle.regions={de: emea}"))
    (folder / "rules.py").write_text(RULES.replace('"other"', '"rest"'))
    with pytest.raises(identity.StateMismatch, match=r'oracle\.class_text was "\w{64}" and is "\w{64}" now'):
        identity.check_or_write(folder / "state", config(folder))


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        (("oracle={kind: python}",), "oracle.class (from --set oracle): oracle python needs it; write MODULE:CLASS, "),
        (("oracle.class=rules",), "oracle.class (from --set oracle.class): 'rules' does not name a class; write "),
        (
            ("oracle.class=nowhere:A",),
            "there is no file nowhere.py in FOLDER, and no module nowhere is installed; write the file there, or ",
        ),
        (
            ("oracle.class=broken:A",),
            "FOLDER/broken.py cannot be imported: ModuleNotFoundError: No module named 'nothing_of_this_name'; ",
        ),
        (
            ("oracle.class=latin:A",),
            "oracle.class (from --set oracle.class): latin cannot be imported: UnicodeDecodeError",
        ),
        (
            ("oracle.class=rules:Python",),
            "Python is defined in validator.oracles.python; write validator.oracles.python:",
        ),
        (("oracle.class=no.such:A",), "there is no file no/such.py in FOLDER, and no module no.such is installed; "),
        (
            ("oracle.class=others:Absent",),
            "a class that extends validator.oracles.python.Python is needed; FOLDER/others.py has no class Absent; ",
        ),
        (("oracle.class=others:NoOracle",), "NoOracle does not extend it; write class NoOracle(Python, "),
        (
            ("oracle.class=others:Lacking",),
            "oracle.class (from --set oracle.class): Lacking lacks assigned, ends_us, grid_us, latest_reaches_us, ",
        ),
        (
            ("oracle.region={}",),
            "oracle.region (from --set oracle.region): the class rules:ByRegion has no such parameter; use one of ",
        ),
        (("oracle.size=15",), "oracle.size (from --set oracle.size): 15 is not a duration; "),
        (
            (*ONE_FIELD, *COUNT, "inputs.0.explode={}"),
            "words are not counted where the class of the oracle computes keys; leave it out",
        ),
        (
            ("outputs.1={topic: b, evidence: values, fields: {key: [a, b], window_start: c, values: {clicks: n}}}",),
            "outputs[1].fields.key (from --set outputs.1): it has 2 fields and the key of outputs[0] has 1; ",
        ),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(folder: Path, assignments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        config(folder, *assignments)
    [found] = caught.value.problems
    assert problem.replace("FOLDER", str(folder)) in found
