"""Users' YAML: a document that could grow, loop or take minutes is refused in one sentence with status 2, within a
second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import config as faults
from generator import config as generator
from validator.cli.main import main
from validator.config.document import parse_value
from validator.config.load import load, loads
from validator.model.documents import DocumentRefused, line_of, parse, read
from validator.model.references import EXPANDED_MAX, FILE_BYTES_MAX, ReferencesUnresolved, expanded, variables_in
from validator.settings.errors import ConfigError

pytestmark = pytest.mark.unit

BOMB = "a0: &a0 [lol, lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
HARMFUL = {
    "a bomb of aliases": (BOMB, "more than 10,000 keys and values"),
    "a ladder of aliases": ("a0: &a0 []\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 40)), "levels"),
    "an anchor that holds itself": ("a: &a [*a]", "line 1, column 8: alias *a is undefined or contains itself"),
    "an anchor that is its own key": ("a: &a {*a : b}", "alias *a"),
    "an alias without an anchor": ("a: *b", "alias *b"),
    "an anchor said twice": ("a: &a b\nc: &a [*a]", "line 2, column 4: anchor &a occurs twice"),
    "a merge key": ("b:\n  <<: {c: 1}", "line 2, column 3: merge keys (<<) are not accepted"),
    "a list of merges": ("<<: [{a: 1}, {b: 2}]", "merge keys"),
    "a key said twice": ("a: 1\nb: {c: 1, 'c': 2}", "line 2, column 11: key 'c' occurs twice"),
    "a key that is no text": ("1: a", "a key is not text"),
    "a key that is a list": ("? [a, b]\n: c", "a key is not text"),
    "brackets": ("a: " + "[" * 10_000, "levels of nesting"),
    "braces": ("a: " + "{a: " * 10_000, "levels of nesting"),
    "dashes": ("a:\n  " + "- " * 10_000 + "b", "levels of nesting"),
    "indentation": ("".join(" " * depth + "a:\n" for depth in range(600)), "levels of nesting"),
    "an object of Python": ("a: !!python/object/apply:os.system [id]", "tags (!) are not accepted"),
    "a tag of one's own": ("a: !vault secret", "tags (!)"),
    "a set": ("a: !!set {b}", "tags (!)"),
    "a large text": ("a: " + "b" * 300_000, "more than 256 KiB"),
    "many values": ("a: [" + "1," * 100_000 + "1]", "more than 10,000 keys and values"),
    "an escape beyond all characters": ('a: "\\UFFFFFFFF"', "line 1, column "),
    "a version of YAML without end": ("%YAML " + "9" * 9_000 + ".1\n---\na: 1", "line 1, column "),
    "a number without digits": ("a: 1\nb: 0x_", "line 2, column 4: a number that is not valid"),
    "a control character": ("a: 1\nb: \x07", "line 2, column 4: a character that YAML does not allow (U+0007)"),
    "an octal number of YAML 1.1": ("a: 1\nport: 017", "line 2, column 7: a number with a leading zero"),
    "a key that is octal": ("-0_17: a", "a number with a leading zero"),
    "half a character": ('a: "\\ud800"', "NUL or a surrogate"),
    "a NUL": ('a: "\\0"', "NUL or a surrogate"),
    "two documents": ("a: 1\n---\nb: 2", "found another document"),
    "no YAML": ("a: [", "line 1, column 5"),
}  # fmt: skip
COMMANDS = {
    "validator": ("config", "check"),
    "generator": ("generate",),
    "faults": ("faults", "plan"),
    "campaign": ("campaign", "--dry-run"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("harm", HARMFUL)
def test_every_command_refuses_what_could_grow_or_loop_in_one_sentence_within_a_second(
    harm: str, command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, said = HARMFUL[harm]
    file = tmp_path / "given.yaml"
    file.write_text(text, encoding="utf-8")
    main([*command, str(tmp_path / "absent.yaml")])  # the imports of the command do not count
    capsys.readouterr()
    begin = time.process_time()
    status = main([*command, str(file)])
    took = time.process_time() - begin
    lines = capsys.readouterr().err.splitlines()
    assert (status, len(lines)) == (2, 1), lines
    assert said in lines[0]
    assert str(file) in lines[0]
    assert len(lines[0]) < 1000
    assert took < 1.0


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_names_the_line_of_what_it_refuses(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "given.yaml"
    file.write_text("# a comment\n\nnonsense: 1\n", encoding="utf-8")
    assert main([*command, str(file)]) == 2
    assert f"{file}, line 3: " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a: " + "9" * 200_000, "a: " + "1:" * 100_000 + "1", "a: 2026-01-01T00:00:00Z"])
def test_long_numbers_and_times_stay_text(text: str) -> None:
    begin = time.process_time()
    assert parse(text) == {"a": text.removeprefix("a: ")}
    assert time.process_time() - begin < 1.0


@pytest.mark.parametrize("text", ["1:30", "-1:30", "+190:20:30", "1:30.5", "08", "0o17", "1e3"])
def test_numbers_of_other_versions_of_yaml_stay_text(text: str) -> None:
    assert parse(f"a: {text}") == {"a": text}


def test_a_leading_zero_in_a_text_stays() -> None:
    assert parse("a: {b: 017}\nc: '017'", texts=[("a",)]) == {"a": {"b": "017"}, "c": "017"}
    assert parse("[0, 10, 0.5, 0x1F, -0]") == [0, 10, 0.5, 31, 0]


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("a",), 1),
        (("b", "c"), 3),
        (("b", "c", "absent"), 3),
        (("list", 1, "e"), 6),
        (("list", 2), 4),
        (("options", "x", "y"), 8),
        (("absent",), 1),
    ],
)
def test_the_line_of_a_place_is_that_of_its_deepest_part(place: tuple[str | int, ...], line: int | None) -> None:
    text = "a: 1\nb:\n  c: {d: 2}\nlist:\n- d\n- e: 5\noptions:\n  x.y: 3\n"
    assert line_of(text, place) == line


def test_plain_yaml_is_read_unchanged() -> None:
    text = "a: {b: [1, 2.5, true, ~, x], 'c d': \"e\\n\"}\nf: |\n  g\n  h\n'<<': quoted\n"
    assert parse(text) == {"a": {"b": [1, 2.5, True, None, "x"], "c d": "e\n"}, "f": "g\nh\n", "<<": "quoted"}
    shared = parse("a: &a {b: [1]}\nc: *a\nd: [*a, &s text, *s]\n")
    assert shared == {"a": {"b": [1]}, "c": {"b": [1]}, "d": [{"b": [1]}, "text", "text"]}
    assert shared["a"]["b"] is not shared["c"]["b"]
    assert parse("[" * 32 + "]" * 32)
    with pytest.raises(DocumentRefused):
        parse("[" * 33 + "]" * 33)


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(DocumentRefused, match="more than 256 KiB"):
        read(Path("/dev/zero"))


def test_overrides_of_any_depth_and_content_are_bounded() -> None:
    deep = ".".join(["a"] * 5_000)
    for given in ({"assignments": [f"{deep}=1"]}, {"environment": {f"STREAMPROOF__{deep.replace('.', '__')}": "1"}}):
        with pytest.raises(ConfigError, match="more than 32 levels") as refused:
            loads("a: 1", "/etc", **{"environment": {}, **given})  # type: ignore[arg-type]
        assert len(str(refused.value)) < 300
    # A password may look like a YAML alias.
    assert parse_value("*hunter2") == "*hunter2"


def test_references_cannot_expand_without_bound(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x" * FILE_BYTES_MAX)
    (tmp_path / "larger").write_text("x" * (FILE_BYTES_MAX + 1))
    many = ["${A}" * 200] * 200
    begin = time.process_time()
    with pytest.raises(ReferencesUnresolved, match="more than 8,388,608 characters") as refused:
        expanded({"a": many}, {"A": "y" * 100_000}, tmp_path)
    assert len(refused.value.found) == 1
    assert time.process_time() - begin < 1.0
    with pytest.raises(ReferencesUnresolved, match="more than 8,388,608 characters"):
        expanded(["${file:large}"] * (EXPANDED_MAX // FILE_BYTES_MAX + 1), {}, tmp_path)
    for endless, why in (("larger", "1,048,576 bytes"), ("/dev/zero", "is not a regular file")):
        with pytest.raises(ReferencesUnresolved, match=rf"a: file .* {why}"):
            expanded({"a": f"${{file:{endless}}}"}, {}, tmp_path)
    # The value of a variable is not expanded again.
    assert expanded(["${A}-$${A}"], {"A": "${A}${A}"}, tmp_path) == ["${A}${A}-${A}"]


@pytest.mark.parametrize("read_file", [load, generator.load, faults.load])
def test_every_file_names_the_line_of_a_reference_without_a_value(
    read_file: Callable[[Path], object], tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("topics:\n- a\n- b: '${ABSENT_1}'\n\nkafka: {options: {sasl.password: '${ABSENT_2}'}}\n")
    with pytest.raises(Exception, match="is not set") as refused:
        read_file(file)
    assert str(refused.value).splitlines() == [
        f"{file}, line 3: topics[1].b: environment variable ABSENT_1 is not set; set it.",
        f"{file}, line 5: kafka.options.sasl.password: environment variable ABSENT_2 is not set; set it.",
    ]


def test_a_problem_of_an_override_names_the_override(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("kafka: {bootstrap_servers: 'b:1'}\nlimit: {events: 5}\n")
    with pytest.raises(ConfigError, match=r": kafka\.bootstrap_servers \(from --set kafka\.bootstrap_servers\): "):
        load(file, ["kafka.bootstrap_servers=${ABSENT}"])
    for given in ("x", "${ABSENT}"):
        with pytest.raises(generator.GeneratorConfigError, match=r": limit\.events \(from --set limit\.events\): "):
            generator.load(file, [f"limit.events={given}"])


def test_variables_in_lists_the_references_of_a_document() -> None:
    document = {"a": ["${USER_1} and ${PASSWORD}", {"b": "$${NONE} ${file:x} ${not one}"}], "c": 1}
    assert variables_in(document) == {"USER_1", "PASSWORD"}
