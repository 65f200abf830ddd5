"""The loads of operations beyond tumbling windows: events, and the results of a correct engine.

``python -m bench.operations SERVERS NAME EVENTS`` writes one of them as fast as possible, and prints the seconds as
JSON. Pages, windows and names are those of `bench.writer`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bench.writer import WINDOW_MS, iso, producer_of, put

PAGES: Final = 6
INSTANTS_PER_WINDOW: Final = 5_000
SLIDES: Final = 4
_STEP_MS: Final = WINDOW_MS // INSTANTS_PER_WINDOW
_EVENT: Final = "fields: {id: id, key: page, event_time: timestamp}"
_BOTH: Final = "ids: [{path: clickIds, input: click}, {path: updateIds, input: update}]"
_WINDOW: Final = "key: page, window_start: windowStart"
_SIDES: Final = "join: inner, left: click, right: update"


@dataclass(frozen=True)
class Operation:
    """What the results are, as the sidecar's settings. ``inputs``: the topics; an instant has an event of each page on
    each, on the second topic a little later. ``overlapping``: windows that hold an event. ``at_once``: a result is the
    event, or the pair of events, of one instant; else a window. ``passed``: the first pages, whose events have results.
    """

    oracle: str
    fields: str
    inputs: tuple[str, ...] = ("click",)
    overlapping: int = 1
    at_once: bool = False
    passed: int = PAGES

    def config(self) -> Mapping[str, str]:
        """The sections of the sidecar's configuration."""
        topics = ", ".join(f"{{topic: {topic}, {_EVENT}}}" for topic in self.inputs)
        return {"inputs": topics, "output": f"fields: {{{self.fields}}}", "oracle": self.oracle}


OPERATIONS: Final[Mapping[str, Operation]] = {
    "passthrough": Operation("kind: passthrough", "key: page, event_time: windowStart, ids: clickIds", at_once=True),
    "map": Operation("kind: map", "key: page, event_time: windowStart, ids: clickIds", at_once=True),
    "filter": Operation(
        "kind: filter, where: {path: page, one_of: [/page-0, /page-1, /page-2]}",
        "key: page, event_time: windowStart, ids: clickIds",
        at_once=True,
        passed=3,
    ),
    "sliding_window": Operation(
        f"kind: sliding_window, size: {WINDOW_MS}ms, slide: {WINDOW_MS // SLIDES}ms",
        f"{_WINDOW}, ids: clickIds",
        overlapping=SLIDES,
    ),
    "windowed_join": Operation(
        f"kind: windowed_join, {_SIDES}, size: {WINDOW_MS}ms", f"{_WINDOW}, {_BOTH}", ("click", "update")
    ),
    "interval_join": Operation(
        f"kind: interval_join, {_SIDES}, after: {_STEP_MS - 1}ms, bucket: {WINDOW_MS}ms",
        f"key: page, event_time: windowStart, {_BOTH}",
        ("click", "update"),
        at_once=True,
    ),
}


def write(servers: str, of: Operation, events: int) -> float:
    """Write events and results. Return the seconds."""
    producer = producer_of(servers)
    names = [json.dumps(f"/page-{number}") for number in range(PAGES)]
    began = time.monotonic()
    for topic, value, key in _records(of, names, events // (PAGES * len(of.inputs))):
        put(producer, topic, value, key)
    producer.flush()
    return time.monotonic() - began


def _records(of: Operation, names: list[str], instants: int) -> Iterator[tuple[str, str, str]]:
    """Topic, value and key of each record. All windows have results."""
    slide_ms = WINDOW_MS // of.overlapping
    # Per slide, page and input: the ids of the slides that an open window holds, the newest last.
    held: list[list[list[list[str]]]] = []
    for instant in range(instants):
        at_ms = instant * _STEP_MS
        if at_ms % slide_ms < _STEP_MS:
            if held and not of.at_once:
                yield from _windows(of, names, held, at_ms // slide_ms * slide_ms)
            fresh: list[list[list[str]]] = [[[] for _ in of.inputs] for _ in names]
            held = [*held, fresh][-of.overlapping :]
        stamps = [iso(at_ms + side * _STEP_MS // 2) for side in range(len(of.inputs))]
        for place, name in enumerate(names):
            number = str(1 + instant * PAGES + place)
            for side, topic in enumerate(of.inputs):
                yield topic, f'{{"id":{number},"timestamp":"{stamps[side]}","page":{name}}}', name
                held[-1][place][side].append(number)
            if of.at_once and place < of.passed:
                ids = ",".join(f'"{topic}Ids":[{number}]' for topic in of.inputs)
                yield "output", f'{{"page":{name},"windowStart":"{stamps[0]}",{ids}}}', name
    end_ms = -(-instants * _STEP_MS // slide_ms) * slide_ms
    for back in range(0 if of.at_once else of.overlapping):
        yield from _windows(of, names, held[-of.overlapping + back :], end_ms + back * slide_ms)


def _windows(
    of: Operation, names: list[str], held: list[list[list[list[str]]]], end_ms: int
) -> Iterator[tuple[str, str, str]]:
    """The results of the windows with this end, of the slides ``held``."""
    start = iso(end_ms - WINDOW_MS)
    for place, name in enumerate(names):
        lists = ",".join(
            f'"{topic}Ids":[{",".join(number for slide in held for number in slide[place][side])}]'
            for side, topic in enumerate(of.inputs)
        )
        yield "output", f'{{"page":{name},"windowStart":"{start}",{lists}}}', name


if __name__ == "__main__":
    print(json.dumps({"seconds": write(sys.argv[1], OPERATIONS[sys.argv[2]], int(sys.argv[3]))}), flush=True)
