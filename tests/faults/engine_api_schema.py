"""Checks requests and answers against the description of one version of Docker's API.

The facts are in ``engine_api_schema.json``, which ``engine_api_facts.py`` extracts from the published descriptions. The
descriptions' schemas are open: an engine ignores unknown fields, and may send more than is described. Here both sides
must match the description exactly, since an ignored field is a fault that does not happen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from tests.faults.engine_api_facts import WRITTEN, Version

_FACTS: dict[str, Any] = json.loads(WRITTEN.read_text(encoding="utf-8"))
SAID_LATE: dict[tuple[str, str], Version] = {
    ("GET /_ping", "header.200.Api-Version"): (1, 28),
    ("GET /containers/{id}/json", "answer.200.NetworkSettings.Networks"): (1, 32),
    ("GET /containers/{id}/json", "answer.200.State.Health"): (1, 39),
    ("POST /networks/{id}/connect", "consumes"): (1, 35),
}
"""Facts that already held at API 1.25 (moby v1.13.1: api/server/middleware/version.go, api/types/types.go,
api/server/httputils/httputils.go) -> the first version that describes them. Earlier versions use that description."""
SEEN: dict[tuple[str, str], Version] = {
    ("POST /containers/{id}/pause", "answer.409"): (1, 41),
    ("POST /containers/{id}/start", "answer.409"): (1, 41),
}
"""Answers that a real engine gives and no version describes -> the version in which they were seen, assumed to be
the first."""
_JSON_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", type(None): "null"}


@dataclass(frozen=True)
class _Fact:
    type: str
    is_required: bool
    is_nullable: bool
    allowed: tuple[str, ...]
    """All allowed values, if the description lists them."""


@dataclass(frozen=True)
class Operation:
    """A call as described by one version."""

    name: str
    _facts: Mapping[str, _Fact]
    _contents: Mapping[str, tuple[str, ...]]

    def has_status(self, status: int) -> bool:
        """Return whether the call may answer with the status."""
        return f"answer.{status}" in self._facts

    def of_request(self, query: str, content_type: str | None, body: object) -> list[str]:
        """Return how the request differs from the description; ``body`` is None without a body."""
        pairs = parse_qsl(query, keep_blank_values=True)
        given = [f"query.{name}" for name, _ in pairs]
        found = [f"{name}: given twice" for name in sorted({*given}) if given.count(name) > 1]
        found += [problem for name, text in pairs for problem in self._of_text(f"query.{name}", text)]
        found += [f"{name}: is missing" for name in self._required("query.") if name not in given]
        if body is None:
            return found + [f"{name}: is missing" for name in self._required("body") if "." not in name]
        if "body" in self._facts and content_type not in self._contents["consumes"]:
            found.append(f"Content-Type: {content_type} is not described")
        return found + list(self._of_json("body", body, is_ours=True))

    def of_answer(self, status: int, headers: Mapping[str, str], content_type: str | None, body: object) -> list[str]:
        """Return how the answer differs from the description; ``body`` is None without a body."""
        if not self.has_status(status):
            return [f"answer.{status}: is not described"]
        found = [p for name, text in headers.items() for p in self._of_text(f"header.{status}.{name}", text)]
        if body is None:
            return found
        if (content_type or "").partition(";")[0] not in self._contents["produces"]:
            found.append(f"Content-Type: {content_type} is not described")
        return found + list(self._of_json(f"answer.{status}", body, is_ours=False))

    def _required(self, prefix: str) -> list[str]:
        return [name for name, fact in self._facts.items() if name.startswith(prefix) and fact.is_required]

    def _of_text(self, name: str, text: str) -> list[str]:
        fact = self._facts.get(name)
        if fact is None:
            return [f"{name}: is not described"]
        form = {"integer": r"-?[0-9]+", "boolean": r"true|false|0|1"}.get(fact.type, r".*")
        return [] if re.fullmatch(form, text) else [f"{name}: {text!r} is no {fact.type}"]

    def _of_json(self, name: str, value: object, *, is_ours: bool) -> Iterator[str]:
        fact, kind = self._facts.get(name), _JSON_TYPES.get(type(value), "number")
        if fact is None:
            yield f"{name}: is not described"
        elif kind == "null" and (fact.is_nullable or (not is_ours and fact.type in ("array", "object"))):
            return  # null is a nil slice or map of Go: the examples of 1.24 have it instead of an empty list or object
        elif kind != fact.type:
            yield f"{name}: {json.dumps(value)} is no {fact.type}"
        elif fact.allowed and value not in fact.allowed:
            yield f"{name}: {json.dumps(value)} is none of {', '.join(fact.allowed)}"
        elif isinstance(value, list):
            for part in value:
                yield from self._of_json(f"{name}[]", part, is_ours=is_ours)
        elif isinstance(value, dict):
            for missing in self._required(f"{name}."):
                if "." not in (own := missing.removeprefix(f"{name}.")) and own not in value:
                    yield f"{missing}: is missing"
            is_map = f"{name}{{}}" in self._facts
            for key, part in value.items():
                yield from self._of_json(f"{name}{{}}" if is_map else f"{name}.{key}", part, is_ours=is_ours)


def operation(version: Version, method: str, path: str) -> Operation | None:
    """Return the call of this method and path (without version); None if the version does not describe it."""
    for name, described in _operations(version).items():
        its_method, template = name.split(" ")
        if its_method == method and re.fullmatch(re.sub(r"\\{\w+\\}", "[^/?]+", re.escape(template)), path):
            return described
    return None


@cache
def _operations(version: Version) -> dict[str, Operation]:
    assert version in VERSIONS, f"no description of {version}"
    made = {}
    for name, facts in _FACTS["operations"].items():
        said: dict[str, str] = {}
        for of, kinds in facts.items():
            late = [since for (call, part), since in SAID_LATE.items() if call == name and _is_in(of, part)]
            at = max(version, *late) if late else version
            for what, ranges in kinds.items():
                if any(first <= at <= last for first, last in _ranges(ranges)):
                    said[of] = what
        for (call, part), since in SEEN.items():
            if call == name and version >= since:
                said |= {part: "object", f"{part}.message!": "string"}
        contents = {of: tuple(said.pop(of).split("|")) for of in sorted({"consumes", "produces"} & {*said})}
        read = {of.removesuffix("!"): _read(what, is_required=of.endswith("!")) for of, what in said.items()}
        made[name] = Operation(name, read, contents)
    return made


def _is_in(name: str, part: str) -> bool:
    return re.match(rf"{re.escape(part)}(?![A-Za-z])", name) is not None


def _read(what: str, *, is_required: bool) -> _Fact:
    kind, *words = what.split(" ")
    allowed = [word.removeprefix("enum=").split("|") for word in words if word.startswith("enum=")]
    return _Fact(kind, is_required, "nullable" in words, tuple(allowed[0]) if allowed else ())


def _ranges(text: str) -> list[tuple[Version, Version]]:
    def version(shown: str) -> Version:
        major, minor = shown.split(".")
        return int(major), int(minor)

    pairs = [part.split("-") for part in text.split(", ")]
    return [(version(first), version(last)) for first, last in pairs]


VERSIONS: tuple[Version, ...] = tuple(
    (first[0], minor) for first, last in _ranges(_FACTS["versions"]) for minor in range(first[1], last[1] + 1)
)
"""The described versions, oldest first."""
