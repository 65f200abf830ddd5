"""A proposal as the text of a configuration file, with what was found, what is in doubt, and what was rejected."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from validator.cli.proposal.proposal import Proposal
from validator.model.terminal import plain

_WIDTH: Final = 118
_SECTIONS: Final = ("kafka", "schema_registry", "oracle", "timing", "state")


def text_of(proposal: Proposal, sampled: str) -> str:
    """The text of the file. ``sampled``: what was read, as a clause."""
    return "\n".join(plain(line) for line in _lines(proposal, sampled)) + "\n"


def _lines(proposal: Proposal, sampled: str) -> Iterator[str]:
    yield from _wrapped(f"Proposed by `streamproof config init` from {sampled}.")
    yield from _wrapped(proposal.proof)
    for title, sentences in (
        ("Doubts, to settle before a verdict counts:", proposal.doubts),
        ("Rejected:", proposal.rejected),
    ):
        if sentences:
            yield "#"
            yield f"# {title}"
            for sentence in sentences:
                yield from _wrapped(sentence, "- ")
    document = proposal.document
    yield f"pipeline: {_flow(document['pipeline'])}    # label of every metric"
    claims = "what the pipeline claims: at_most_once | at_least_once | exactly_once"
    yield f"guarantee: {document['guarantee']}    # {claims}"
    for name in _SECTIONS[:2]:
        if name in document:
            yield f"{name}: {_flow(document[name])}"
    for name in [name for name in ("inputs", "outputs", "late", "rejected") if name in document]:
        yield f"{name}:"
        for entry in document[name]:
            yield from _entry(entry, proposal.comments if name == "outputs" else {})
    for name in _SECTIONS[2:]:
        if name in document:
            yield f"{name}: {_flow(document[name])}" + _remark(name, document)


def _remark(name: str, document: Mapping[str, Any]) -> str:
    if name == "timing" and "max_disorder" in document[name]:
        return "    # the disorder of the sampled events, rounded up"
    return "    # relative to this file" if name == "state" else ""


def _entry(entry: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    yield f"  - topic: {_flow(entry['topic'])}"
    for name, value in entry.items():
        if name not in ("topic", "fields"):
            yield f"    {name}: {_flow(value)}" + _comment(comments, name)
    yield "    fields:"
    for name, value in entry["fields"].items():
        yield f"      {name}: {_flow(value)}" + _comment(comments, name)


def _comment(comments: Mapping[str, str], name: str) -> str:
    return f"    # {comments[name]}" if name in comments else ""


def _flow(value: Any) -> str:
    """A value in one line of YAML."""
    written: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return written.removesuffix("\n").removesuffix("...").strip()


def _wrapped(text: str, bullet: str = "") -> Sequence[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"# {bullet}",
        subsequent_indent="# " + " " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )
