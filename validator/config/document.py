"""A configuration file as plain data: YAML in which each key is said once and times stay text."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from validator.config.errors import ConfigFileError

TIMESTAMP_TAG: Final = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """A SafeLoader that leaves times as text and refuses a key said twice (PyYAML keeps the last one silently)."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {  # type: ignore[misc]  # PyYAML keeps it on the class
        first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP_TAG]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    problem = f"key {key!r} is said twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)


def parse_value(text: str) -> Any:
    """``text`` as a YAML value, as overrides have it; a text that is no YAML stays as it is."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError:
        return text


def parse_document(text: str, source: str) -> dict[str, Any]:
    """The mapping that ``text`` holds; ``source`` names it in errors. Raises ConfigFileError."""
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ConfigFileError([f"{source}{where}: {error.problem}; mend the YAML there."]) from None
    except yaml.YAMLError as error:
        raise ConfigFileError([f"{source}: {' '.join(str(error).split())}; mend the YAML."]) from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigFileError(
            [f"{source}: it is no mapping of settings; see `streamproof config example clickstream`."]
        )
    return document


def read_document(path: Path) -> dict[str, Any]:
    """The mapping in the file at ``path``. Raises ConfigFileError if it cannot be read or is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigFileError([f"{path}: there is no such file; name an existing configuration."]) from None
    except UnicodeDecodeError:
        raise ConfigFileError([f"{path}: it is not UTF-8 text; name a YAML file."]) from None
    except OSError as error:
        raise ConfigFileError([f"{path}: it cannot be read ({error.strerror}); mend that or name another."]) from None
    return parse_document(text, str(path))
