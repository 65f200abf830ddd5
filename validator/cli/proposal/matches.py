"""What the records of inputs and outputs have in common: the ids that results name, and the fields of the key."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Final, NamedTuple

from validator.cli.proposal.columns import Columns
from validator.codecs.one_record import joined
from validator.settings.explode import SEPARATORS, Explode
from validator.settings.formats.guesses import ENOUGH

FEW: Final = 3
"""Fewer matches than this show nothing."""
_LINKS: Final = 4_000
"""Links that are compared field by field."""
_FIELDS_MOST: Final = 3
"""Fields of an input that are tried as the id."""
_EVENTS_OF_ID: Final = 10
"""Number of events that may share an id."""
_SHARED_MOST: Final = 5_000
"""Ids in lists that are compared with those that events share."""
_HITS: Final = 0.3
"""Share of the ids of results, or of the events if these are fewer, that must be those of the other side."""


class Link(NamedTuple):
    """An event that a result names. ``source``: number of its input. ``event``, ``result``: rows."""

    source: int
    event: int
    result: int


@dataclass(frozen=True)
class Named:
    """How results name events. ``paths``: of the lists of ids, or of the one id. ``owners``: number of the input of
    each list, if each input has its own id space; else empty. ``ids``: path of the id of each input."""

    evidence: str
    paths: tuple[str, ...]
    owners: tuple[int, ...]
    ids: tuple[str, ...]
    links: tuple[Link, ...]
    content: tuple[str, ...] = ()
    """If no field identifies an event: the fields that do so together."""


@dataclass(frozen=True)
class KeyField:
    """A field of a result, and the field with the same value of each input."""

    result: str
    events: tuple[str, ...]
    values: int
    """Number of different values in the results."""


def named_in_lists(inputs: Sequence[Columns], output: Columns) -> Iterator[Named]:
    """Yield how lists of a result may name the events."""
    found: list[tuple[str, list[tuple[str, tuple[Link, ...]] | None]]] = []
    for path, items in output.lists.items():
        rows = [(text, row) for row, of in enumerate(items) for text in of or ()]
        per_input = [_best(one, number, rows) for number, one in enumerate(inputs)]
        if any(per_input):
            found.append((path, per_input))
    if len(inputs) == 2 and len(found) >= 2:
        yield from _joined(inputs, output, found)
    lists = _disjoint(output, [path for path, of in found if all(of)])
    if lists:
        links = [link for path, of in found if path in lists for one in of if one is not None for link in one[1]]
        ids = [one[0] for one in dict(found)[lists[0]] if one is not None]
        yield Named("ids", lists, (), tuple(ids), tuple(links))
    if len(inputs) == 1:
        yield from _named_by_shared_ids(inputs[0], output)


def with_ids_of_fields(one: Columns, output: Columns) -> Columns:
    """The same columns, and one with the ids of several fields of which lists of results have many. Its path is those
    of the fields, separated by commas."""
    for items in output.lists.values():
        ids = {text for of in items for text in of or ()}
        parts = [json.loads(text) for text in ids if text.startswith('["')]
        width = len(parts[0]) if parts else 0
        if width < 2 or len(parts) < len(ids) or any(len(of) != width for of in parts):
            continue
        fields = [_fields_with(one, {of[place] for of in parts}) for place in range(width)]
        ways = {way: _joined_column(one, way) for way in product(*fields) if len(set(way)) == width}
        hits = {way: len(ids.intersection(filter(None, column))) for way, column in ways.items()}
        best = max(hits, key=lambda way: hits[way], default=None)
        if best is not None and hits[best] >= _HITS * min(len(ids), len(one.records)):
            of_fields = {",".join(best): ways[best]}
            return replace(one, texts={**one.texts, **of_fields}, scalars={**one.scalars, **of_fields})
    return one


def _fields_with(one: Columns, values: set[str]) -> list[str]:
    """The fields that may have these values, the likeliest first."""
    shared = {path: len(values.intersection(filter(None, column))) for path, column in one.texts.items()}
    having = [path for path, number in shared.items() if number >= _HITS * len(values)]
    return sorted(having, key=lambda path: (-looks_like_id(path), -shared[path], len(path)))[:_FIELDS_MOST]


def _joined_column(one: Columns, paths: Sequence[str]) -> list[str | None]:
    rows = zip(*(one.texts[path] for path in paths), strict=True)
    return [None if None in row else joined(list(row)) for row in rows]


def _named_by_shared_ids(one: Columns, output: Columns) -> Iterator[Named]:
    """Yield how a list may name events whose ids are those of several of them, of users for example."""
    for path, items in output.lists.items():
        rows = [(text, row) for row, of in enumerate(items) for text in of or ()][:_SHARED_MOST]
        for id_, links in _fitting(one, 0, rows, least=1 / _EVENTS_OF_ID)[:_FIELDS_MOST]:
            yield Named("ids", (path,), (), (id_,), links)


def _best(one: Columns, number: int, rows: Sequence[tuple[str, int]]) -> tuple[str, tuple[Link, ...]] | None:
    """The field of an input that has the most of the ids, and its links."""
    return next(iter(_fitting(one, number, rows)), None)


def _fitting(
    one: Columns, number: int, rows: Sequence[tuple[str, int]], least: float = 0.5
) -> list[tuple[str, tuple[Link, ...]]]:
    """The fields of an input that have many of the ids, the best first, and their links. ``least``: as in
    `_identifying`."""
    found: list[tuple[tuple[float, ...], str, tuple[Link, ...]]] = []
    for path, at in _identifying(one, least).items():
        links = tuple(Link(number, event, row) for text, row in rows for event in at.get(text, ()))
        # Numbers of one field may be among those of another one: of users among those of orders.
        hits = sum(text in at for text, _ in rows)
        share = min(1.0, hits / max(1, min(len(rows), len(one.records))))
        if len(links) < min(FEW, len(rows)) or share < _HITS:
            continue
        rank = (round(share, 1), looks_like_id(path), len(at), -len(path))
        found.append((rank, path, links))
    return [(path, links) for _, path, links in sorted(found, key=lambda it: it[0], reverse=True)]


def _identifying(one: Columns, least: float = 0.5) -> dict[str, dict[str, list[int]]]:
    """The fields of which many values differ, at least this share: path -> value -> its rows."""
    found = {}
    for path, column in one.texts.items():
        at: dict[str, list[int]] = defaultdict(list)
        for row, text in enumerate(column):
            if text is not None:
                at[text].append(row)
        present = sum(map(len, at.values()))
        is_number = not any(isinstance(value, (bool, float)) for value in one.scalars[path])
        if is_number and present >= ENOUGH * len(column) and len(at) >= least * present:
            found[path] = at
    return found


def looks_like_id(path: str) -> int:
    """How much the name of a field looks like that of an id."""
    name = path.rpartition(".")[2].lower()
    return 2 if name in ("id", "$key") else 1 if name.endswith(("id", "uuid", "key", "number")) else 0


def _joined(
    inputs: Sequence[Columns],
    output: Columns,
    found: Sequence[tuple[str, list[tuple[str, tuple[Link, ...]] | None]]],
) -> Iterator[Named]:
    """Yield the assignment of two lists to two inputs with which the fields of events and results agree best."""
    best: tuple[float, Named] | None = None
    for (first, of_first), (second, of_second) in combinations(found, 2):
        for owners in ((0, 1), (1, 0)):
            left, right = of_first[owners[0]], of_second[owners[1]]
            if left is None or right is None:
                continue
            ids = (left[0], right[0]) if owners == (0, 1) else (right[0], left[0])
            one = Named("ids", (first, second), owners, ids, (*left[1], *right[1]))
            named_alike = sum(
                _common_prefix(path, inputs[owner].topic) for path, owner in zip(one.paths, owners, strict=True)
            )
            rank = _agreement(inputs, output, one) + named_alike / 1_000
            if best is None or rank > best[0]:
                best = rank, one
    # Lists whose ids are in the inputs anyhow: only a result that needs both sides shows a join.
    if best is not None and all(all(output.lists[path][row] for path in best[1].paths[:1]) for row in _rows(best[1])):
        yield best[1]


def _rows(named: Named) -> set[int]:
    return {link.result for link in named.links}


def _common_prefix(path: str, topic: str) -> int:
    name = path.rpartition(".")[2].lower()
    return next((n for n in range(min(len(name), len(topic)), 0, -1) if name[:n] == topic[:n].lower()), 0)


def _agreement(inputs: Sequence[Columns], output: Columns, named: Named) -> float:
    fields = key_fields(inputs, output, named.links, named.ids, named.paths, least=0.0)
    return max((share for _, share in fields), default=0.0)


def keys_of_lists(inputs: Sequence[Columns], output: Columns, named: Named) -> list[tuple[KeyField, float]]:
    """As `key_fields`, of results with lists of ids. In a join the id of one input may be the key: that of an order,
    which is joined with its payments."""
    times = {time.path for time in output.times}
    found = key_fields(inputs, output, named.links, named.ids, (*named.paths, *times))
    for number in range(0 if found else len(named.owners)):
        but = [id_ if other != number else "" for other, id_ in enumerate(named.ids)]
        found += key_fields(inputs, output, named.links, but, (*named.paths, *times))
    return found


def _disjoint(output: Columns, paths: Sequence[str]) -> tuple[str, ...]:
    """Those lists that do not repeat the ids of an earlier one."""
    kept: list[str] = []
    seen: set[str] = set()
    for path in paths:
        items = {text for of in output.lists[path] for text in of or ()}
        if 2 * len(items & seen) < len(items):
            kept.append(path)
            seen |= items
    return tuple(kept)


def named_alone(inputs: Sequence[Columns], output: Columns) -> Iterator[Named]:
    """Yield how a field of a result may name its one event, the likeliest first."""
    found: list[tuple[tuple[float, ...], Named]] = []
    times = {time.path for time in output.times}
    for path, at in _identifying(output).items():
        rows = [(text, row) for text, of in at.items() for row in of]
        per_input = [_best(one, number, rows) for number, one in enumerate(inputs)]
        chosen = [one for one in per_input if one is not None]
        if len(chosen) == len(inputs):
            links = tuple(link for _, links in chosen for link in links)
            rank = looks_like_id(path), len(at), len({link.result for link in links}), path not in times, -len(path)
            found.append((rank, Named("id", (path,), (), tuple(id_ for id_, _ in chosen), links)))
    yield from (named for _, named in sorted(found, key=lambda it: it[0], reverse=True)[:3])


def named_of_one_input(inputs: Sequence[Columns], output: Columns) -> Iterator[tuple[int, Named]]:
    """Yield how a field of a result may name its one event of one input, with the number of this input."""
    for path, at in _identifying(output).items():
        rows = [(text, row) for text, of in at.items() for row in of]
        ids = [max(_identifying(one), key=lambda it: (looks_like_id(it), -len(it)), default=None) for one in inputs]
        for number, one in enumerate(inputs):
            found = _best(one, number, rows)
            named = [found[0] if found and other == number else id_ for other, id_ in enumerate(ids)]
            if found is not None and None not in named:
                yield number, Named("id", (path,), (), tuple(filter(None, named)), found[1])


def named_by_content(inputs: Sequence[Columns], output: Columns) -> Iterator[Named]:
    """Yield how the fields that results repeat identify an event together."""
    common = [
        path
        for path in output.texts
        if all(path in one.texts and one.share(path) >= ENOUGH for one in (*inputs, output))
        and all(set(output.texts[path]) <= set(one.texts[path]) for one in inputs)
    ]
    common = [path for path in common if not path.startswith("$")]
    if not common:
        return
    of_result: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for row, values in enumerate(zip(*(output.texts[path] for path in common), strict=True)):
        of_result[values].append(row)
    links = [
        Link(number, event, row)
        for number, one in enumerate(inputs)
        for event, values in enumerate(zip(*(one.texts[path] for path in common), strict=True))
        for row in of_result.get(values, ())
    ]
    named = {link.result for link in links}
    if len(named) >= max(FEW, ENOUGH * len(output.records)) and 2 * len(of_result) >= len(output.records):
        id_ = max(common, key=lambda path: len(set(output.texts[path])))
        yield Named("id", (id_,), (), (id_,) * len(inputs), tuple(links), tuple(common))


def key_fields(
    inputs: Sequence[Columns],
    output: Columns,
    links: Sequence[Link],
    but: Sequence[str],
    but_of_result: Sequence[str],
    least: float = ENOUGH,
) -> list[tuple[KeyField, float]]:
    """The fields of a result that equal a field of the events that it names, with the share of equal ones, which is at
    least ``least``. ``but``: id of each input. ``but_of_result``: fields of the evidence."""
    some = links[:: max(1, len(links) // _LINKS)]
    found = []
    for path, column in output.texts.items():
        if path in but_of_result or output.share(path) < _HITS:
            continue
        of_inputs: list[tuple[str, float]] = []
        for number, one in enumerate(inputs):
            mine = [link for link in some if link.source == number]
            equal = [
                (name, sum(texts[link.event] == column[link.result] for link in mine) / max(1, len(mine)))
                for name, texts in one.texts.items()
                if name != but[number]
            ]
            equal = [entry for entry in equal if entry[1] > least]
            if not mine or not equal:
                break
            of_inputs.append(max(equal, key=lambda it: (round(it[1], 2), *_likeness(it[0], path))))
        else:
            values = len({text for text in column if text is not None})
            paths = tuple(name for name, _ in of_inputs)
            found.append((KeyField(path, paths, values), min(share for _, share in of_inputs)))
    return found


def key_fields_by_values(inputs: Sequence[Columns], output: Columns, but: Sequence[str]) -> list[KeyField]:
    """The fields of a result whose values are values of a field of every input. ``but``: fields of a result that are
    times or values."""
    found = []
    for path, column in output.texts.items():
        values = {text for text in column if text is not None}
        if path in but or output.share(path) < _HITS:
            continue
        of_inputs = []
        for one in inputs:
            times = {time.path for time in one.times}
            counted = {name: Counter(texts) for name, texts in one.texts.items() if name not in times}
            # The sample of events may be shorter than that of the results.
            having = [
                name
                for name, known in counted.items()
                if len(values & known.keys()) >= ENOUGH * max(1, min(len(values), len(known)))
            ]
            if not having:
                break
            of_inputs.append(max(having, key=lambda name: (_likeness(name, path), -len(counted[name]))))
        else:
            found.append(KeyField(path, tuple(of_inputs), len(values)))
    return found


def words_of_text(inputs: Sequence[Columns], output: Columns, count: str) -> list[tuple[KeyField, Explode]]:
    """The fields of a result whose values are the words of a text of every input, and how the text is split: the best
    first."""
    found = []
    for path, column in output.texts.items():
        values = {text for text in column if text is not None}
        if path == count or path in {time.path for time in output.times} or output.share(path) < _HITS:
            continue
        for name, at, case in product(inputs[0].texts, SEPARATORS, ("as_is", "lower")):
            words = Explode.model_validate({"at": at, "case": case})
            texts = {text for one in inputs for text in one.texts.get(name, ()) if text is not None}
            known = {word for text in texts for word in words.words(text)}
            if not known <= texts and len(values & known) >= ENOUGH * max(FEW, min(len(values), len(known))):
                key = KeyField(path, (name,) * len(inputs), len(values))
                found.append((len(values ^ known), key, words))
    return [(key, words) for _, key, words in sorted(found, key=lambda it: it[0])]


def _likeness(name: str, path: str) -> tuple[bool, bool, int]:
    alike = name.rpartition(".")[2].lower() == path.rpartition(".")[2].lower()
    return alike, not name.startswith("$"), -len(name)


def chosen_key(fields: Sequence[KeyField], inputs: Sequence[Columns]) -> tuple[KeyField, ...]:
    """The fields of the key: those that differ between results, each field of the events once; else one of them."""
    best: dict[tuple[tuple[str | None, ...], ...], KeyField] = {}
    for field in sorted(fields, key=lambda it: _likeness(it.events[0], it.result), reverse=True):
        values = tuple(tuple(one.texts[path]) for one, path in zip(inputs, field.events, strict=True))
        best.setdefault(values, field)
    varying = tuple(field for field in best.values() if field.values > 1)
    return varying or tuple(best.values())[:1]
