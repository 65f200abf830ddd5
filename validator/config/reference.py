"""The reference of the configuration, written from the model: ``python -m validator.config.reference FILE``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

from validator.config.schema import json_schema
from validator.oracles.kinds import refusals
from validator.settings.formats import kinds as formats

COLUMNS: Final = ("| key | value | default | meaning |", "|---|---|---|---|")

NOT_ALL: Final = "[Not all values](#not-supported-yet)."
"""Mark at a key some of whose values are refused."""

HEAD: Final = """\
# Configuration

<!-- Written by `python -m validator.config.reference docs/configuration.md`; a test keeps it current. -->

`streamproof config example clickstream` prints a file to start from, `config check FILE` the problems of a file,
`config schema` the JSON Schema that printed files name for editors.

- **Unknown keys are errors**, and so is a key that is written twice.
- **YAML** is limited to a plain subset: mappings with text keys, lists and values, at most 256 KiB, 32 levels and
  10,000 keys and values. An alias (`*name`) counts with its whole content. Merge keys (`<<`), tags (`!`), an anchor
  that contains itself and a number with a leading zero (`017`) are refused, and `1:30` is a text. The same applies to
  the files of `generate`, `faults` and `campaign`.
- **Options** of `kafka.options` and `spark.options` are texts: the client gets the text as written (`0123456`, `1e3`,
  `yes`), without surrounding quotes. An option without a value is refused; `""` is the empty text. The same applies to
  `kafka.options` in the files of `generate` and `faults`.
- **Durations** are a number with `ms`, `s`, `m`, `h` or `d`: `500ms`, `1.5h`. A bare `0` is accepted.
- **Fields** are dotted paths into a record's value, or `$key`, `$key.FIELD` (in the key), `$value` (the whole value),
  `$envelope.FIELD` (of a [change](formats.md#change-envelopes)), `$timestamp`, `$header.NAME`, `$offset`, `$partition`.
  A number is an index in an array (`$value.0`). If a time is a number, write `{path: ..., unit: s|ms|us|ns}`. Without a
  unit it is ISO 8601 text (no zone means UTC), a time by its type, or text of [a pattern](#what-decodes): `{path: ...,
  pattern: "dd-MM-yyyy HH:mm:ss", time_zone: Europe/Berlin}`.
- **Paths** of files are relative to the configuration file.
- **`${NAME}`** is replaced by an environment variable, **`${file:PATH}`** by the content of a file without its last
  line end (1 MiB at most, all together 8 MiB), in any text, after the YAML was parsed, and once. Use both for secrets.
  `$${` is a plain `${`. The value of an option whose name contains `password`, `passwd`,
  `pwd`, `passphrase`, `secret`, `jaas`, `key`, `token` or `credential` is shown as `***` everywhere.
- **Overrides**: the environment (`STREAMPROOF__TIMING__IDLE_AFTER=5s`) overrides the file, and `--set
  timing.idle_after=5s` overrides both. Values are YAML. For options and settings that are texts, the value is the
  given text without surrounding quotes. List positions count from 0 (`--set inputs.0.topic=clicks`). Below
  `kafka.options` and `spark.options` the rest of the path is one key: `--set kafka.options.security.protocol=SSL`. In
  the environment, write `__` for each dot; the key is read in lower case.
"""

FORMATS: Final = """\
`format` is that of values, `key_format` that of keys; each is a name, or a mapping of its `kind` and its parameters,
as in `format: {kind: csv, columns: [id, page, at]}`. [formats.md](formats.md) has examples.\
"""

DECODING: Final = """\
## What decodes

A record decodes as a whole, or it is *undecodable*. An undecodable input makes the verdict `unknown`; an undecodable
result is a violation. Every decoder follows this table; `validator/codecs/one_record.py` implements it.

| part | decodes | is undecodable |
|---|---|---|
| value | one JSON object (RFC 8259) in UTF-8, with JSON's white space (space, tab, CR, LF) around it; an array or a \
scalar, if all fields begin with `$value` and no name | zero bytes; \
other bytes than UTF-8; a byte order mark; content after the value (`{...} junk`, two objects); \
`NaN`, `Infinity`; comments, single quotes, control characters in texts; `01`, `.5`, `+1`; more than 500 levels; a \
number of more than 1,000 characters |
| value, with `format: {kind: csv, ...}` | one line of fields (RFC 4180) in UTF-8, with LF, CR LF or no line end; \
an empty field is null, `""` an empty text; every other field is the text of its characters, white space included | \
zero bytes; other bytes than UTF-8; a byte order mark; more or fewer fields than `columns`; a second line; a quote \
inside a field that does not begin with one |
| value of another format | what its serializer writes ([formats.md](formats.md)) | zero bytes; bytes before or \
after it; bytes that no serializer writes |
| value, if no field is in it | any bytes; they are not read | zero bytes |
| null value | on an output: a tombstone, counted and ignored; with emission `cumulative` and a key that is in \
`$key` or headers, it withdraws the newest result of that key. On an input it is counted and ignored, if `tombstone` \
says so or the id is a field of the value | on other inputs, and on late and rejected topics |
| field | at its path through objects, and by index through arrays; names are compared by their characters \
(`\\u0041` is `A`) | absent, null; a name on its path that occurs more than once in one object. Repeated names \
elsewhere have no effect |
| `$key` | as a value of `key_format`; with `text`, the default, also empty | absent, null, other bytes |
| `$header.NAME` | UTF-8 text; of repeated headers the last one counts, as in Kafka's clients | absent, null, \
other bytes than UTF-8 |
| id | text, also `""`, `"[1]"` and `"{}"`; number; boolean (as `true`, `false`); bytes (as Base64). Of several \
fields, the JSON array of their texts (`["o1","7"]`); of `$value` above 64 bytes, `sha256:` and its digest | array, \
object, half of a surrogate pair; NaN, infinity |
| number as id or key | by its value: `1`, `1.0` and `1e0` are one id, `-0` is `0`, `0.50` is `0.5`; integers \
of any size \
are exact | more than 1,000 digits without an exponent |
| text as id or key | as it is: `"007"`, `"1.0"` and `"1e3"` are not numbers. Text `"1"` and number `1` are the \
same id and \
the same key, and so are `"true"` and `true` | half of a surrogate pair |
| key | as an id; of several fields, the list of them. Absent or null on an input with `missing_key: skip` or `owed`; \
on topics of answers, if any input has one of these. Such a key is shown as `[null]` | array, object; then also the \
text `[null]` |
| `ids` | array of ids, also empty; `$key` or `$header.NAME` that holds a JSON array; a field of CSV, cut at each \
`list_delimiter`. An id of several fields is an array of them, or an object with them in this order | null, absent, \
not an array; \
an item \
that is null, an array or an object |
| time of a type with a unit (Avro, Protobuf, windowed keys) | as it is; a date is its midnight, a local time is \
UTC | \
another unit in the configuration |
| time with a unit | number, or text of a JSON number (`"1767225600.25"`), exact. Fractions of a \
microsecond are rounded down, but up in event times with `closed: right` | boolean; text with white space, `+` or \
leading zeros; more than 2^62 microseconds from 1970 |
| field of a condition (`where`) | as a key; with a bound: a number, or text of a JSON number; with `exists`: \
anything | absent, null, array, object, unless other parts decide `all` or `any`; with a bound: any other text, \
boolean |
| `$timestamp` as a time | the record's timestamp | none (-1); more than 2^62 microseconds from 1970 |
| time with a pattern | text of exactly this form: `yyyy` or `uuuu`, `M`, `MM`, `MMM`, `MMMM`, `d`, `dd`, `E` to \
`EEEE` (English names; the day's name is not checked), `H`, `HH`, `h`, `hh` (without `a`: the first half of the day), \
`a`, `m`, `mm`, `s`, `ss`, `S` (up to nine), `X` to `XXX`, `x` to `xxx`, `Z`, and text in quotes. Without an offset, a \
time that occurs twice is the first one, and a time that a change of the clocks skips is later by what they skip | any \
other text |
| time without a unit | text in one of the forms below, in the proleptic Gregorian calendar, years 0000 to 9999 \
| number, \
boolean; any other text |

| form of a time | examples | written by |
|---|---|---|
| date, `T`, `t` or a space, `hh:mm:ss` | `2026-01-01T10:00:00`, `2026-01-01 10:00:00` | Java, Python, SQL |
| fraction of 1 to 9 digits, with a point or a comma | `10:00:00.5Z`, `10:00:00,123`, `10:00:00.1234567Z` | \
JavaScript, \
log4j, .NET `o`, Go `RFC3339Nano` |
| without seconds, or hours only | `2026-01-01T10:00Z`, `2026-01-01T10` | Java's `OffsetDateTime.toString()`, \
Python's \
`isoformat` |
| date only (midnight) | `2026-01-01` | `LocalDate`, `date.isoformat` |
| zone, with or without a space before it: none (UTC), `Z`, `z`, `UTC`, `GMT`, or `+hh`, `+hhmm`, `+hh:mm` up to \
18 hours | \
`2026-01-01 10:00:00 UTC`, `10:00:00.000+0000` | Jackson, Ruby, PostgreSQL, BigQuery |
| zone name in brackets after an offset (the offset counts) | `10:00:00+01:00[Europe/Paris]` | Java's `ZonedDateTime` |
| end of a day | `2026-01-01T24:00:00` | ISO 8601 |
| basic format, with a time | `20260101T100000Z`, `20260101T1000` | iCalendar, AWS |

Always refused: week and ordinal dates, `2026-01`, `2026-1-1`, `20260101`, `20260101T10` (basic format without
minutes), years with a sign or more than four digits, leap seconds (`23:59:60`), zone names without an offset, an offset
with a zone name that is not in brackets (`10:00:00 +0000 UTC`, Go's `Time.String`), white space around the text, times
without a date, RFC 1123 and local formats.

An input that some parsers accept and others refuse is undecodable.
"""


def render() -> str:
    """The reference as Markdown."""
    schema = json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    lines = [HEAD, "## Keys", ""]
    lines += _table(schema, definitions, "")
    first: dict[str, str] = {}
    for text, headings in _grouped(schema, definitions).items():
        heading = "`, `".join(_of_any_kind(headings))
        lines += ["", f"### `{heading}`", "", *_explained_once(text.split("\n"), headings[0], first)]
    lines += ["", *_formats(definitions), "", *DECODING.splitlines()]
    lines += ["", "## Not supported yet", "", "Each of these settings is refused with an error.", ""]
    lines += ["| setting | values |", "|---|---|"]
    lines += [f"| `{setting}` | {refused} |" for setting, refused in refusals().items()]
    return "\n".join(lines) + "\n"


def _of_any_kind(headings: list[str]) -> dict[str, None]:
    """The headings, with one in place of those that differ by the kind of oracle above their part."""
    return dict.fromkeys(re.sub(r"(?<=: )\w+(?=\.)", "KIND", heading) for heading in headings)


def _formats(definitions: dict[str, Any]) -> Iterator[str]:
    """The section of the formats, each with its parameters."""
    yield from ("## Formats", "", FORMATS)
    for kind, one in formats.built().items():
        definition = definitions.get(one.__name__, {"description": cleandoc(one.__doc__ or ""), "properties": {}})
        yield from ("", f"### Format `{kind}`", "", definition["description"])
        if one.model_fields:
            yield from ("", *_table(definition, definitions, ""))


def _grouped(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, list[str]]:
    """Text of a part -> its headings, so that parts with the same keys are on the page once."""
    grouped: dict[str, list[str]] = {}
    for heading, definition in _parts(schema, definitions, ""):
        text = "\n".join([definition["description"], *_table(definition, definitions, heading)])
        grouped.setdefault(text, []).append(heading)
    return grouped


def _explained_once(lines: list[str], heading: str, first: dict[str, str]) -> Iterator[str]:
    """A part without the rows that an earlier part has, and their keys. ``first``: row -> its first heading."""
    earlier: dict[str, list[str]] = {}
    if any(line.startswith("| `") and line not in first for line in lines):
        lines[lines.index(COLUMNS[0]) : lines.index(COLUMNS[0])] = [""]
    else:
        lines = [line for line in lines if line not in COLUMNS]
    for line in lines:
        part = first.setdefault(line, heading) if line.startswith("| `") else heading
        if part == heading:
            yield line
        else:
            earlier.setdefault(part, []).append(line.split(" | ")[0].removeprefix("| "))
    for part, keys in earlier.items():
        yield from ("", f"As in `{part}`: {', '.join(keys)}.")


def _parts(
    node: dict[str, Any], definitions: dict[str, Any], place: str, above: frozenset[str] = frozenset()
) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, rendered in node.get("properties", {}).items():
        for kind, one in rendered.get("discriminator", {}).get("mapping", {}).items():
            heading, parameters = f"{place}.{key}: {kind}" if place else f"{key}: {kind}", one.rsplit("/", 1)[-1]
            yield heading, definitions[parameters]
            yield from _parts(definitions[parameters], definitions, heading, above)
        name, listed = _part_of(rendered, definitions)
        # The head of the page describes the two models that are written as a path. A condition has conditions.
        if name is None or name in {"FieldPath", "IdsPath", "ValuePath"} | above | _format_models():
            continue
        below = f"{place}.{key}" if place else key
        heading = f"{below}[]" if listed else below
        yield heading, definitions[name]
        yield from _parts(definitions[name], definitions, heading, above | {name})


def _format_models() -> frozenset[str]:
    """The models with a section of their own."""
    return frozenset(one.__name__ for one in formats.built().values())


def _part_of(rendered: dict[str, Any], definitions: dict[str, Any]) -> tuple[str | None, bool]:
    for entry in (rendered, rendered.get("items", {}), *rendered.get("anyOf", ())):
        if "$ref" in entry:
            name = str(entry["$ref"]).rsplit("/", 1)[-1]
            if "properties" in definitions[name] or "anyOf" in definitions[name]:
                return name, entry is rendered.get("items")
    return None, False


def _mark(place: str, key: str) -> str:
    """A link to the refused values of a key, to append to its description; empty if there are none."""
    below = f"{place}.{key}" if place else key
    # The refused kinds of oracle are named once, at the key `oracle`.
    below = re.sub(r": \w+", "", below).replace("[]", "").replace("oracle.kind", "")
    named = (key, below, f"{below}.kind")
    return f" {NOT_ALL}" if any(setting in named for setting in refusals()) else ""


def _table(node: dict[str, Any], definitions: dict[str, Any], place: str) -> list[str]:
    required = set(node.get("required", ()))
    lines = list(COLUMNS)
    for key, rendered in node["properties"].items():
        if key == "kind":  # The heading of the part has it.
            continue
        default = "**required**" if key in required else _default(rendered)
        part = definitions.get(str(rendered.get("$ref", "")).rsplit("/", 1)[-1], {})
        description = str(rendered.get("description") or part.get("description", "")).replace("|", "\\|")
        description = " ".join(description.split()) + _mark(place, key)
        lines.append(f"| `{key}` | {_kind(rendered, definitions)} | {default} | {description} |")
    return lines


def _default(rendered: dict[str, Any]) -> str:
    default = rendered.get("default")
    if "default" not in rendered:
        return "see below" if "$ref" in rendered else "`{}`"
    if default is None:
        return "none"
    return f"`{default}`" if not isinstance(default, (list, tuple)) else f"`{list(default)}`"


def _kind(rendered: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in rendered:
        name = str(rendered["$ref"]).rsplit("/", 1)[-1]
        if "enum" in definitions[name]:
            return _kind(definitions[name], definitions)
        return {
            "FieldPath": "field",
            "IdsPath": "path (plain or `{path, input}`)",
            "ValuePath": "path (plain or `{path, tolerance}`)",
        }.get(name, "mapping")
    if "enum" in rendered and set(rendered["enum"]) <= set(formats.built()):
        return "[format](#formats)"
    if "enum" in rendered:
        return " \\| ".join(f"`{value}`" for value in rendered["enum"])
    if "const" in rendered:
        return f"`{rendered['const']}`"
    if "oneOf" in rendered:
        return "mapping"
    if "anyOf" in rendered:
        kinds = [_kind(entry, definitions) for entry in rendered["anyOf"] if entry.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if str(rendered.get("pattern", "")).endswith("(ms|s|m|h|d)$"):
        return "duration"
    if rendered.get("type") == "array":
        return f"list of {_kind(rendered['items'], definitions)}"
    named = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` \\| `false`",
        "object": "mapping",
    }
    return named.get(str(rendered.get("type")), "value")


def main(arguments: list[str]) -> int:
    """Write the reference to the file named by the only argument."""
    Path(arguments[0]).write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
