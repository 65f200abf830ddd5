"""Bounded reading of a user's YAML as plain data. Every configuration file of the project is read by this module.

A small part of YAML is accepted: mappings with unique text keys, lists and plain values. Merge keys and tags are
refused. Size, depth and number of values are bounded, so that reading takes less than a second. An alias counts as
everything that it stands for, so a short text cannot become a large or endless value. Times and numbers of base 60 stay
text, and numbers with a leading zero are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

import yaml

BYTES_MAX: Final = 256 * 1024
"""Largest size of a file."""
DEPTH_MAX: Final = 32
"""Largest number of nested mappings and lists."""
VALUES_MAX: Final = 10_000
"""Largest number of keys, values, mappings and lists in one document."""
_CHARACTERS_OF_A_VALUE: Final = 1_000
"""A longer text counts as several values, so that its aliases are bounded, too."""

_NUMBER_LENGTH_MAX: Final = 64
"""A longer plain value is text, because converting a million digits takes minutes."""
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-9]+)+(?:\.[0-9_]*)?")
"""A plain value that is text, although it is a number in YAML 1.1: `1:30` would be 90."""
_OCTAL: Final = re.compile("[-+]?0[0-7_]+")
"""A plain value that is refused unless a text is required: `017` is 15 in YAML 1.1 and 17 in YAML 1.2."""
_OCTAL_TAG: Final = "tag:streamproof,2026:octal"
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_TIMESTAMP_TAG: Final = "tag:yaml.org,2002:timestamp"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_NO_TEXT: Final = re.compile("[\x00\ud800-\udfff]")
_SHOWN_LENGTH: Final = 60

KeyPath = tuple[str, ...]
"""Keys from the outermost mapping inwards; empty: the document itself."""
Place = tuple[str | int, ...]
"""Keys and positions of lists, from the outermost inwards."""
KAFKA_OPTIONS: Final[KeyPath] = ("kafka", "options")
"""Place of the Kafka client options in a configuration file of the project."""


class DocumentRefused(ValueError):
    """A text is not accepted as a document. ``problem`` is the reason, ``place`` is ``line 3, column 7`` or empty."""

    def __init__(self, problem: str, mark: Any = None) -> None:
        self.problem = problem
        self.place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
        super().__init__(f"{self.place}: {problem}" if self.place else problem)


class _Loader(yaml.SafeLoader):
    """A SafeLoader with this module's bounds. It composes nodes while it scans, so it stops at the first excess."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {  # type: ignore[misc]  # PyYAML keeps it on the class
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0
        self._depth = 0
        self._deepest = 0
        self._anchored: dict[str, tuple[int, int]] = {}
        """Number of values and of levels of each complete anchor."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        anchor: str | None = event.anchor
        if self.check_event(yaml.AliasEvent):
            if anchor not in self._anchored:
                raise DocumentRefused(f"alias *{_shown(anchor)} is undefined or contains itself", event.start_mark)
            self._count(*self._anchored[anchor], event.start_mark)
            return super().compose_node(parent, index)
        if anchor in self.anchors:
            raise DocumentRefused(f"anchor &{_shown(anchor)} occurs twice", event.start_mark)
        if event.tag is not None:
            raise DocumentRefused("tags (!) are not accepted", event.start_mark)
        values, depth, deepest = self._values, self._depth, self._deepest
        self._deepest = depth
        self._depth += isinstance(event, yaml.CollectionStartEvent)
        length = len(event.value) if isinstance(event, yaml.ScalarEvent) else 0
        self._count(1 + length // _CHARACTERS_OF_A_VALUE, 0, event.start_mark)
        node = super().compose_node(parent, index)
        if anchor is not None:
            self._anchored[anchor] = (self._values - values, self._deepest - depth)
        self._depth, self._deepest = depth, max(deepest, self._deepest)
        return node

    def _count(self, values: int, levels: int, mark: Any) -> None:
        """Count ``values`` that are nested ``levels`` deep at this place, once for each use."""
        self._values += values
        self._deepest = max(self._deepest, self._depth + levels)
        if self._values > VALUES_MAX:
            raise DocumentRefused(f"more than {VALUES_MAX:,} keys and values", mark)
        if self._deepest > DEPTH_MAX:
            raise DocumentRefused(f"more than {DEPTH_MAX} levels of nesting", mark)

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            if len(value) > _NUMBER_LENGTH_MAX or _BASE_60.fullmatch(value):
                implicit = (False, True)
            elif _OCTAL.fullmatch(value):
                return _OCTAL_TAG
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's
        try:
            return super().construct_object(node, deep)
        except DocumentRefused:
            raise
        except (ValueError, OverflowError):
            # PyYAML's conversions of numbers do not check what they convert: `0x_`.
            raise DocumentRefused("a number that is not valid", node.start_mark) from None

    def construct_octal(self, node: yaml.ScalarNode) -> NoReturn:
        raise DocumentRefused(
            "a number with a leading zero is octal in some versions of YAML: write it without the zero, or in quotes "
            "as a text",
            node.start_mark,
        )

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if _NO_TEXT.search(value):
            raise DocumentRefused("a character that no text may contain (NUL or a surrogate)", node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE_TAG:
                raise DocumentRefused("merge keys (<<) are not accepted", key_node.start_mark)
            key = self.construct_object(key_node, deep=True) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise DocumentRefused("a key is not text, write it in quotes", key_node.start_mark)
            if key in seen:
                raise DocumentRefused(f"key {_shown(key)!r} occurs twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_constructor(_OCTAL_TAG, _Loader.construct_octal)


def _shown(name: object) -> str:
    return str(name)[:_SHOWN_LENGTH]


def text_value(text: str) -> str:
    """Return a text setting as it was given. A quoted text is unquoted by the rules of YAML."""
    if text.strip()[:1] not in ("'", '"'):
        return text
    try:
        value = parse(text)
    except DocumentRefused:
        return text
    return value if isinstance(value, str) else text


def parse(text: str, *, texts: Iterable[KeyPath] = ()) -> Any:
    """Return the value of the YAML ``text``. Raises `DocumentRefused`.

    ``texts``: places of mappings whose values are texts. An unquoted value there is the text as written, never a
    number, true, false or null. An empty value is null.
    """
    if len(text.encode(errors="surrogatepass")) > BYTES_MAX:
        raise DocumentRefused(f"more than {BYTES_MAX // 1024} KiB")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            for place in texts:
                node = _with_texts(node, place)
            return None if node is None else _unshared(loader.construct_document(node))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise DocumentRefused(error.problem or "not valid YAML", error.problem_mark) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n"), error.position - before.rfind("\n") - 1
        problem = f"a character that YAML does not allow (U+{ord(text[error.position]):04X})"
        raise DocumentRefused(problem, yaml.Mark("", 0, line, column, None, 0)) from None
    except DocumentRefused:
        raise
    except (ValueError, OverflowError):
        # Nor does its scanner: "\UFFFFFFFF".
        raise DocumentRefused("an escape sequence or a number that is not valid", loader.get_mark()) from None


def line_of(text: str, place: Iterable[str | int]) -> int | None:
    """Return the line, from 1, of the deepest part of ``place`` that a document which `parse` accepts has: that of the
    whole document if it has no part of it. None if the document is empty."""
    loader = _Loader(text)
    try:
        node: Any = loader.get_single_node()
    finally:
        loader.dispose()
    line = None if node is None else node.start_mark.line + 1
    steps = list(place)
    for at, step in enumerate(steps):
        found = None
        if isinstance(node, yaml.MappingNode):
            # The keys of options have dots.
            keys = {step, ".".join(map(str, steps[at:]))}
            found = next(((key, value) for key, value in node.value if key.value in keys), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = (node.value[step], node.value[step])
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def at_line(source: str, text: str, place: Iterable[str | int]) -> str:
    """Return ``source``, the name of a file, with the line of a place in its ``text``."""
    line = line_of(text, place)
    return source if line is None else f"{source}, line {line}"


def spell(place: Place) -> str:
    """Return ``place`` as the docs write it: ``inputs[0].fields.id``."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def at_setting(source: str, text: str, place: Place, origins: Mapping[Place, str]) -> str:
    """Return ``source`` and a place in its ``text``: with the line, or with the override that set it.

    ``origins``: place -> the override that set it.
    """
    spelled = spell(place) or "as a whole"
    origin = next((origins[place[:n]] for n in range(len(place), 0, -1) if place[:n] in origins), None)
    if origin is not None:
        return f"{source}: {spelled} (from {origin})"
    return f"{at_line(source, text, place)}: {spelled}"


def _with_texts(node: yaml.Node | None, place: KeyPath) -> yaml.Node | None:
    """Return ``node`` with the plain values of the mapping at ``place`` as texts. Parts of ``node`` that aliases share
    with other places are not changed."""
    if not isinstance(node, yaml.MappingNode):
        return node
    below = [
        (key, _as_text(value) if not place else _with_texts(value, place[1:]) if key.value == place[0] else value)
        for key, value in node.value
    ]
    return yaml.MappingNode(node.tag, below, node.start_mark, node.end_mark)


def _as_text(node: yaml.Node) -> yaml.Node:
    if not isinstance(node, yaml.ScalarNode) or not node.value:
        return node
    return yaml.ScalarNode(_TEXT_TAG, node.value, node.start_mark, node.end_mark)


def texts_within(texts: Iterable[KeyPath], place: KeyPath) -> Collection[KeyPath]:
    """Return ``texts`` relative to ``place``, for a document that is the value there."""
    return [one[len(place) :] for one in texts if one[: len(place)] == place]


def _unshared(value: Any) -> Any:
    """Return ``value`` without shared parts, so that a change at one place does not change another."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def read(path: Path) -> str:
    """Return the text of a file for `parse`. Raises OSError, and `DocumentRefused` if it is too large or not UTF-8."""
    with path.open("rb") as file:
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise DocumentRefused(f"more than {BYTES_MAX // 1024} KiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise DocumentRefused("not UTF-8 text") from None
