"""Proposes a configuration from samples of the topics: the candidate that the sample proves best. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from validator.cli.proposal.aside import set_aside
from validator.cli.proposal.candidates import Candidate, candidates, envelope_of, with_emission
from validator.cli.proposal.changes import FURTHER, RESULTS, events_of
from validator.cli.proposal.columns import Columns, TopicSample, columns_of
from validator.cli.proposal.further import further_values
from validator.cli.proposal.lateness import lateness_of
from validator.cli.proposal.matches import FEW
from validator.cli.proposal.named_schemas import schemas_named
from validator.cli.proposal.proof import Proof, Prover
from validator.model.schemas import NO_SCHEMAS, Schemas
from validator.model.wording import plural
from validator.oracles.guesses import copying
from validator.settings.formats.guesses import are_places

_PROVEN: Final = 0.9
"""Least share of what must be right. The others may be the violations that the sidecar is to find."""
_LIKELY: Final = 0.5
_AFTER_PROOF: Final = 4
"""Candidates that are tried after one without an exception, so that the file can say what was rejected."""
_TRIED_MOST: Final = 100
"""Candidates of a group that are tried: the likely ones come first."""
_REJECTED_MOST: Final = 4
_NAMED_MOST: Final = 5


@dataclass(frozen=True)
class Proposal:
    """A configuration as in the file. ``proof``: what the sample proves, or that it proves nothing. ``doubts``,
    ``rejected``: sentences. ``comments``: field -> why it is there. ``share``: of what must be right, that is right."""

    document: Mapping[str, Any]
    is_proven: bool
    proof: str
    doubts: tuple[str, ...]
    rejected: tuple[str, ...]
    comments: Mapping[str, str]
    share: float = 0.0


Reading = tuple[Sequence[Columns], Sequence[Columns]]
"""The columns of the inputs and of the outputs."""


def propose(
    inputs: Sequence[TopicSample],
    outputs: Sequence[TopicSample],
    settings: Mapping[str, Any],
    schemas: Schemas = NO_SCHEMAS,
    aside: Mapping[str, Sequence[TopicSample]] | None = None,
) -> Proposal:
    """Return the configuration that the samples prove best. ``settings``: the parts of the file that do not depend on
    the samples. ``aside``: `late` and `rejected` -> their topics."""
    read = (*inputs, *outputs, *(one for of in (aside or {}).values() for one in of))
    prover = Prover({one.topic: one for one in read}, schemas)
    first: Proposal | None = None
    for alike in _readings(inputs, outputs, schemas):
        found = [_proposal(*one, settings, prover, aside or {}) for one in alike]
        proven = [one for one in found if one.is_proven]
        if proven:
            # Of the changes that may be events, those that explain the most results; of several ways, the first.
            return max(proven, key=lambda one: (round(prover.explained(one.document), 2), round(one.share, 2)))
        if not any(one.changes for one in alike[0][1]):
            first = first or found[0]
    assert first is not None, "there is at least one reading"
    return first


def _readings(
    inputs: Sequence[TopicSample], outputs: Sequence[TopicSample], schemas: Schemas
) -> Iterator[list[Reading]]:
    """Yield the columns of the topics: changes are first read as rows, then as values; lines are first cut by patterns,
    then taken as they are. Readings with other operations as events come together."""
    cut = [[columns_of(one, schemas) for one in of] for of in (inputs, outputs)]
    ways: list[list[list[list[Columns]]]] = []
    for of, is_input in zip(cut, (True, False), strict=True):
        found = [one.may_be for one in of if one.may_be is not None]
        operations = [] if not found else list(events_of(found)) if is_input else [RESULTS]
        ways.append([[[_rows(one, schemas, it) for one in of] for it in operations]] if found else [])
        ways[-1].append([of])
        if any(one.format != one.plain_format for one in of):
            ways[-1].append([[columns_of(one.sample, schemas, replace(one, format=one.plain_format)) for one in of]])
    for of_inputs, of_outputs in product(*ways):
        yield list(product(of_inputs, of_outputs))


def _rows(one: Columns, schemas: Schemas, operations: frozenset[str]) -> Columns:
    """The rows of a topic's changes, if it has some."""
    if one.may_be is None:
        return one
    return columns_of(one.sample, schemas, one, replace(one.may_be, operations=operations))


def _proposal(
    of_inputs: Sequence[Columns],
    of_outputs: Sequence[Columns],
    settings: Mapping[str, Any],
    prover: Prover,
    aside: Mapping[str, Sequence[TopicSample]],
) -> Proposal:
    tried: list[tuple[Candidate, Proof]] = []
    best: tuple[Candidate, Proof] | None = None
    doubts = (*_unreadable((*of_inputs, *of_outputs), prover.schemas), *_of_patterns((*of_inputs, *of_outputs)))
    of_operations = tuple(_of_operations(of_inputs))
    too_short = "The sample has no window whose events are all in it: it may be too short. Try more with --records."
    if all(one.records for one in (*of_inputs, *of_outputs)):
        for group in candidates(of_inputs, of_outputs, settings):
            proven = list(_proven(group, prover, settings))
            better = max(proven, key=_rank, default=None)
            if better is not None and (best is None or _rank(better) > _rank(best)):
                best, tried = better, proven
            # Results that name ids of events are about them, even if the sample shows violations.
            of_events = best is not None and (best[0].is_by_ids or best[0].has_unequal_key)
            if best is not None and (_is_proven(best[1]) or (of_events and best[1].share >= _LIKELY)):
                break
    if best is None:
        document = {**settings, **_guess(of_inputs, of_outputs)}
        why = "Nothing is proven: the sample shows no connection between events and results. The file is a guess."
        return Proposal(document, False, why, (*doubts, *of_operations), (), {})
    candidate, proof = best
    # Every change of a table counts.
    doubts += () if any("table" in one for one in candidate.document["inputs"]) else of_operations
    is_proven = _is_proven(proof) and candidate.refuted is None
    if is_proven and "values" in candidate.document["oracle"]:
        candidate, proof = _with_further(candidate, proof, of_inputs, of_outputs, prover, settings)
    others, doubts_of_others = set_aside(of_inputs, aside, candidate.document, prover.schemas)
    candidate = replace(candidate, document={**candidate.document, **others})
    if is_proven:
        whole_document = {**settings, **candidate.document}
        timing, of_lateness = lateness_of(whole_document, prover.read(whole_document), prover.samples)
        doubts_of_others += of_lateness
        if timing:
            timing = {**candidate.document.get("timing", {}), **timing}
            candidate = replace(candidate, document={**candidate.document, "timing": timing})
    whole = prover.prove({**settings, **candidate.document})
    unread = 0 if whole is None else whole.unread
    text = candidate.claim.format(right=f"{proof.right:,}", of=f"{proof.of:,}")
    text = f"{text[:1].upper()}{text[1:]}." if is_proven else f"Not proven: {text}."
    if not proof.of and not all(one.sample.is_whole for one in of_inputs):
        doubts += (too_short,)
    doubts += () if candidate.refuted is None else (candidate.refuted,)
    doubts += (*doubts_of_others, *candidate.doubts, *_ties(best, tried), *_imperfect(proof, unread))
    return Proposal(
        {**settings, **_ordered(candidate.document)},
        is_proven,
        text,
        tuple(dict.fromkeys(doubts)),
        tuple(_rejected(best, tried)),
        candidate.comments,
        proof.share,
    )


def _with_further(
    candidate: Candidate,
    proof: Proof,
    inputs: Sequence[Columns],
    outputs: Sequence[Columns],
    prover: Prover,
    settings: Mapping[str, Any],
) -> tuple[Candidate, Proof]:
    """Add the further values that results state, each if it is right wherever the count is."""
    output = max(outputs, key=lambda one: len(one.records))
    for name, path, aggregate, tolerance in list(further_values(inputs, output, {**settings, **candidate.document})):
        for stated in (path, {"path": path, "tolerance": tolerance}):
            wider = _widened(candidate, name, stated, aggregate)
            found = prover.prove({**settings, **wider.document})
            if found is not None and found.of and found.share >= proof.share:
                candidate, proof = wider, found
                break
    return candidate, proof


def _widened(candidate: Candidate, name: str, stated: Any, aggregate: str) -> Candidate:
    """The same configuration with one more value of a result. ``stated``: its path, with a tolerance if it has one."""
    document = candidate.document
    oracle = {**document["oracle"], "values": {**document["oracle"]["values"], name: aggregate}}
    entries = [
        {**one, "fields": {**one["fields"], "values": {**one["fields"]["values"], name: stated}}}
        for one in document["outputs"]
    ]
    doubts = candidate.doubts
    if not isinstance(stated, str):
        doubts += (f"{stated['path']} is computed with floating-point numbers, so its tolerance is a guess.",)
    return replace(
        candidate,
        document={**document, "outputs": entries, "oracle": oracle},
        claim=candidate.claim.replace(" in {right}", f", {name} is {aggregate}, in {{right}}").replace(",,", ","),
        doubts=doubts,
    )


def _proven(
    group: Sequence[Candidate], prover: Prover, settings: Mapping[str, Any]
) -> Iterator[tuple[Candidate, Proof]]:
    left = min(len(group), _TRIED_MOST)
    for candidate in group:
        if left <= 0:
            return
        left -= 1
        proof = prover.prove({**settings, **candidate.document}, candidate.linked)
        if proof is None:
            continue
        if proof.grows:
            # SEMANTICS 4.29: read as `final`, the updates of a correct engine would be duplicates.
            updating = with_emission(candidate, "cumulative")
            proof_of_updates = prover.prove({**settings, **updating.document}, updating.linked)
            if proof_of_updates is not None:
                yield updating, proof_of_updates
                continue
            doubt = "Each result contains the one before it, and this version does not judge that for such results."
            yield replace(candidate, doubts=(*candidate.doubts, doubt)), proof
        else:
            yield candidate, proof
        if proof.right == proof.of >= FEW:
            left = min(left, _AFTER_PROOF)


def _rank(one: tuple[Candidate, Proof]) -> tuple[bool, float, int]:
    return _is_proven(one[1]), round(one[1].share, 3), one[1].of


def _is_proven(proof: Proof) -> bool:
    return proof.right >= FEW and proof.share >= _PROVEN


def _ties(best: tuple[Candidate, Proof], tried: Sequence[tuple[Candidate, Proof]]) -> Iterator[str]:
    labels = {
        one.label
        for one, proof in tried
        if one.label != best[0].label and proof.share >= best[1].share and 2 * proof.of > best[1].of
    }
    if labels:
        yield f"The sample fits as well with: {'; '.join(sorted(labels)[:_REJECTED_MOST])}."


def _imperfect(proof: Proof, unread: int) -> Iterator[str]:
    if wrong := proof.of - proof.right:
        verb = "does" if wrong == 1 else "do"
        yield f"{wrong:,} of {proof.of:,} {verb} not agree: violations, or a setting that is wrong. doctor shows one."
    for topic, (right, of) in proof.inputs.items():
        if not of:
            yield f"No event of {topic} is in a result."
        elif right < _PROVEN * of:
            yield f"Only {right:,} of {of:,} events of {topic} that results name are where this file expects them."
    if unread:
        verb = "does" if unread == 1 else "do"
        yield f"{plural(unread, 'sampled record')} {verb} not decode with this file. doctor shows one."


def _rejected(best: tuple[Candidate, Proof], tried: Sequence[tuple[Candidate, Proof]]) -> Iterator[str]:
    worse: dict[str, Proof] = {}
    for one, proof in sorted(tried, key=lambda it: -it[1].share):
        if proof.of and proof.share < best[1].share and one.label != best[0].label:
            worse.setdefault(one.label, proof)
    for label, proof in list(worse.items())[:_REJECTED_MOST]:
        yield f"{label}: {proof.right:,} of {proof.of:,}"


def _ordered(document: Mapping[str, Any]) -> dict[str, Any]:
    names = ("inputs", "outputs", "late", "rejected", "oracle", "timing")
    return {name: document[name] for name in names if name in document}


def _unreadable(topics: Sequence[Columns], schemas: Schemas) -> Iterator[str]:
    for one in topics:
        if not one.records:
            yield f"{one.topic} has no visible record with a value."
        elif one.format in (None, "bytes"):
            fix = f"if they are Avro or Protobuf, name a file with --schema {one.topic}=FILE; else write format"
            if one.sample.formats:
                fix = "the file of --schema does not fit them"
            elif named := schemas_named(one.sample, "value"):
                fix = _of_schemas(named, schemas)
            yield f"No format reads the values of {one.topic}: {fix}."


def _of_schemas(named: Sequence[int | str], schemas: Schemas) -> str:
    """Why values that name these schemas are not read."""
    if not all(one in schemas for one in named):
        return "name the registry with --registry"
    absent = [one for one in named if schemas[one] is None]
    some = ", ".join(map(str, (absent or named)[:_NAMED_MOST]))
    if absent:
        return f"the registry does not have schema {some}, which they name"
    return f"they name schema {some} of the registry, and are no values of it"


def _of_operations(inputs: Sequence[Columns]) -> Iterator[str]:
    for one in inputs:
        if one.changes is None or one.may_be is None:
            continue
        unowed = [name for name in FURTHER if name in one.may_be.operations - one.changes.operations]
        absent = [name for name in FURTHER if name not in one.may_be.operations]
        if unowed:
            yield f"The file says that no {' or '.join(unowed)} of {one.topic} owes a result: does it in the pipeline?"
        if absent:
            yield f"The sample has no {' or '.join(absent)} of {one.topic}: name it in operations if it owes a result."


def _of_patterns(topics: Sequence[Columns]) -> Iterator[str]:
    for one in topics:
        if one.format != one.plain_format:
            yield f"The pattern of {one.topic} is made from sampled lines: a line that does not match is undecodable."
        if one.format is not None and are_places(one.format):
            yield f"The fields of {one.topic} are places at which all sampled values have a text or a usual number."


def _guess(inputs: Sequence[Columns], outputs: Sequence[Columns]) -> dict[str, Any]:
    """A file that passes `config check`, with the fields that look most like an id, a key and a time."""

    def field_of(one: Columns, words: Sequence[str], otherwise: str) -> str:
        names = [path for path in one.texts if path not in {time.path for time in one.times}]
        named = [path for path in names if path.rpartition(".")[2].lower().endswith(tuple(words))]
        return next(iter((*named, *names)), otherwise)

    def entry(one: Columns, *, is_input: bool) -> dict[str, Any]:
        at: dict[str, Any] = {"id": field_of(one, ("id",), "$key"), "key": field_of(one, ("key",), "$key")}
        at["event_time"] = one.times[0].setting if one.times else "$timestamp"
        format_ = {} if one.format in (None, "json") else {"format": one.format}
        more = envelope_of(one) if is_input else {"evidence": "id"}
        return {"topic": one.topic, **format_, **more, "fields": at}

    return {
        "inputs": [entry(one, is_input=True) for one in inputs],
        "outputs": [entry(one, is_input=False) for one in outputs],
        "oracle": dict(copying().oracle),
    }
