"""The windows that sampled results may be of: their size, distance, alignment and zone, or the gap of sessions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

from validator.model.zones import zone as zone_of
from validator.oracles.passthrough import BUCKET_US
from validator.settings.durations import format_duration, parse_duration

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
USUAL: Final = (
    *(n * SECOND // 10 for n in (1, 2, 5)),
    *(n * SECOND for n in (1, 2, 3, 5, 10, 15, 20, 30)),
    *(n * MINUTE for n in (1, 2, 3, 5, 10, 15, 20, 30)),
    *(n * HOUR for n in (1, 2, 3, 4, 6, 8, 12)),
    *(n * DAY for n in (1, 7)),
)
"""Sizes of windows that engineers choose, in microseconds."""
ZONES: Final = (
    "Europe/London", "Europe/Berlin", "Europe/Helsinki", "Europe/Istanbul", "Asia/Kolkata", "Asia/Shanghai",
    "Asia/Tokyo", "Australia/Sydney", "America/Sao_Paulo", "America/New_York", "America/Chicago", "America/Denver",
    "America/Los_Angeles",
)  # fmt: skip
"""The zones that are tried."""
_MULTIPLES: Final = (2, 3, 4, 5, 6, 10, 12, 15, 20, 24, 30, 60)
_QUARTER: Final = 15 * MINUTE
_FARTHEST_ZONE: Final = 14 * HOUR
_OUTLIERS: Final = 0.02
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Claim(NamedTuple):
    """A result that names an event: instants of the event, and of the start and end of the window, in microseconds."""

    event: tuple[int, int]
    at: int
    start: int
    end: int | None
    result: int


@dataclass(frozen=True)
class Guess:
    """Parameters of an oracle, as in the file. ``label``: for people. ``doubts``: sentences."""

    oracle: Mapping[str, Any]
    label: str
    doubts: tuple[str, ...] = ()
    uses_end: bool = True
    may_collapse: bool = True
    """Whether the inputs may have `duplicates: collapse`."""

    @property
    def adjacent_us(self) -> int | None:
        """The length of the windows, if they are adjacent."""
        return parse_duration(self.oracle["size"]) if self.oracle["kind"] == "tumbling_window" else None

    @property
    def said(self) -> str:
        """The size of the windows, for people."""
        slide = self.oracle.get("slide")
        return f"{self.oracle.get('size')}" + (f" every {slide}" if slide else "")


def spread(claims: Sequence[Claim]) -> tuple[int, int]:
    """The least and the largest time from a start to an event, without a few outliers."""
    distances = sorted(claim.at - claim.start for claim in claims)
    few = int(_OUTLIERS * len(distances))
    return distances[few], distances[-1 - few]


def step_of(starts: Sequence[int]) -> int:
    """The largest time of which all distances between starts are multiples; 0 if there is one start."""
    distinct = sorted(set(starts))
    return math.gcd(*(later - earlier for earlier, later in pairwise(distinct))) if len(distinct) > 1 else 0


def sizes_before(claims: Sequence[Claim], ends: Sequence[int]) -> Iterator[int]:
    """Yield the lengths that windows may have of which results name only the ``ends``, the likeliest first.
    ``claims``: of ends as if they were starts; empty if results name no events."""
    step = step_of(ends)
    if not claims:
        yield from (step * number for number in (1, *_MULTIPLES[:5]) if step)
        yield from (size for size in USUAL if not step)
        return
    longest = -spread(claims)[0]
    of_event: dict[tuple[int, int], set[int]] = defaultdict(set)
    for claim in claims:
        of_event[claim.event].add(claim.start)
    overlapping = step + max(max(of) - min(of) for of in of_event.values())
    usual = [size for size in USUAL if size >= longest][:2]
    yield from dict.fromkeys(size for size in (overlapping, *usual) if size and size >= longest)


def size_named(spans: Sequence[int | None]) -> int | None:
    """The distance between start and end that nearly all results have."""
    given = Counter(span for span in spans if span is not None and span > 0)
    if not given:
        return None
    size, times = given.most_common(1)[0]
    return size if times >= 0.9 * len(spans) else None


def of_claims(claims: Sequence[Claim]) -> Iterator[Guess]:
    """Yield the windows that results with ids may be of, the likeliest first."""
    least, most = spread(claims)
    step = step_of([claim.start for claim in claims])
    named = size_named([None if claim.end is None else claim.end - claim.start for claim in claims])
    starts: dict[tuple[int, int], set[int]] = defaultdict(set)
    for claim in claims:
        starts[claim.event].add(claim.start)
    overlap = sum(len(of) > 1 for of in starts.values()) >= 0.1 * len(starts)
    if least < 0:
        return
    after = size_after_last(claims)
    is_session = after is not None if named is not None or after is not None else 0 < step <= most
    if not overlap and is_session and begins_with_an_event(claims):
        yield from _sessions(claims)
    if overlap and step:
        longest = max(max(of) - min(of) for of in starts.values()) + step
        yield from (_sliding(size, step, claims[0].start) for size in dict.fromkeys((named or longest, longest)))
        return
    on_boundary = any(claim.at - claim.start == (named or step) for claim in claims)
    closed = "right" if least > 0 and on_boundary else "left"
    if named is None or named > step:
        yield from _zoned(claims, named)
    sizes = list(_sizes(named, step, most, closed))
    yield from (_tumbling(size, claims[0].start, closed) for size in sizes[:1])
    if not overlap and named is None and have_several_events(claims) and begins_with_an_event(claims):
        yield from _sessions(claims)
    yield from (_tumbling(size, claims[0].start, closed) for size in sizes[1:])
    if named is not None and 0 < step < named:
        yield _sliding(named, step, claims[0].start)


def of_starts(starts: Sequence[int], ends: Sequence[int | None]) -> Iterator[Guess]:
    """Yield the windows that results without ids may be of, the likeliest first."""
    step = step_of(starts)
    named = size_named([None if end is None else end - start for start, end in zip(starts, ends, strict=True)])
    for size in dict.fromkeys(filter(None, (named, step))):
        if named is None or size == named:
            yield _tumbling(size, starts[0], "left")
    if named is not None and 0 < step < named:
        yield _sliding(named, step, starts[0])
    if named is None and step:
        yield from (_sliding(step * n, step, starts[0]) for n in _MULTIPLES)
        yield from (_tumbling(size, starts[0], "left") for size in reversed(USUAL) if size < step and step % size == 0)
    if not step and named is None:
        yield from (_tumbling(size, starts[0], "left") for size in USUAL)


def _sizes(named: int | None, step: int, most: int, closed: str) -> Iterator[int]:
    """Sizes of adjacent windows, the likeliest first; then half and twice the first one, to be rejected."""
    longest = most - 1 if closed == "right" else most
    fitting = [size for size in USUAL if size > longest]
    dividing = [size for size in reversed(USUAL) if longest < size < step and step % size == 0]
    likely = [size for size in (named, step) if size and size > longest]
    usual = [size for size in likely if size == named or size in USUAL or size % DAY == 0]
    found = list(dict.fromkeys([*usual, *dividing[:2], *likely, *([] if likely else fitting[:1])]))
    yield from found
    if found:
        yield from (size for size in (found[0] * 2, found[0] // 2) if size and size not in found)


def _tumbling(size: int, start: int, closed: str) -> Guess:
    offset = start % size
    oracle: dict[str, Any] = {"kind": "tumbling_window", "size": format_duration(size)}
    doubts = list(_unusual("size", size))
    if offset:
        oracle["offset"] = format_duration(offset)
        if size % HOUR == 0:
            doubts.append(
                f"The windows begin {format_duration(offset)} after midnight UTC. If they follow the wall clock of a "
                "time zone, write oracle.time_zone instead of the offset: their starts change with daylight saving."
            )
    if closed == "right":
        oracle["closed"] = "right"
    label = f"windows of {format_duration(size)}" + (f" with offset {format_duration(offset)}" if offset else "")
    return Guess(oracle, label + (", closed right" if closed == "right" else ""), tuple(doubts))


def _sliding(size: int, slide: int, start: int) -> Guess:
    oracle = {"kind": "sliding_window", "size": format_duration(size), "slide": format_duration(slide)}
    if start % slide:
        oracle["offset"] = format_duration(start % slide)
    label = f"windows of {oracle['size']} every {oracle['slide']}"
    return Guess(oracle, label, (*_unusual("size", size), *_unusual("slide", slide)))


def _unusual(name: str, size: int) -> Iterator[str]:
    if size in USUAL or (size % DAY == 0):
        return
    text = f"A {name} of {format_duration(size)} is unusual."
    factors = {1_000: "milliseconds read as seconds", 60: "minutes read as hours, or a few windows without results"}
    nearer = next((f"{format_duration(size // by)}: {why}" for by, why in factors.items() if size / by in USUAL), None)
    yield f"{text} It would be {nearer}, if a unit is wrong." if nearer else text


def begins_with_an_event(claims: Sequence[Claim]) -> bool:
    """Whether nearly each result names the time of its first event as its start, as those of sessions do."""
    first: dict[int, int] = {}
    start = {claim.result: claim.start for claim in claims}
    for claim in claims:
        first[claim.result] = min(claim.at, first.get(claim.result, claim.at))
    return sum(first[row] == start[row] for row in first) >= 0.9 * len(first)


def have_several_events(claims: Sequence[Claim]) -> bool:
    """Whether results name events of several times."""
    times: dict[int, set[int]] = defaultdict(set)
    for claim in claims:
        times[claim.result].add(claim.at)
    return any(len(of) > 1 for of in times.values())


def size_after_last(claims: Sequence[Claim]) -> int | None:
    """How long after its last event nearly each result ends; None if that differs, or no result names its end."""
    last: dict[int, int] = {}
    ends = {claim.result: claim.end for claim in claims}
    for claim in claims:
        last[claim.result] = max(claim.at, last.get(claim.result, claim.at))
    found = Counter(None if (end := ends[row]) is None else end - at for row, at in last.items())
    after, times = found.most_common(1)[0]
    return after if after is not None and after >= 0 and times >= 0.9 * len(last) else None


def _sessions(claims: Sequence[Claim]) -> Iterator[Guess]:
    """Sessions: the gap is what ends lie after the last event, or the least usual one above the longest pause."""
    times: dict[int, list[int]] = defaultdict(list)
    for claim in claims:
        times[claim.result].append(claim.at)
    pauses = [later - earlier for of in times.values() for earlier, later in pairwise(sorted(of))]
    longest = max(pauses, default=0)
    # Kafka Streams names the last event as the end.
    if (after := size_after_last(claims) or 0) >= max(longest, 1):
        yield _session(after, ())
        return
    gap = next((size for size in USUAL if size >= max(longest, 1)), None)
    if gap is not None:
        doubt = (
            f"The gap is a guess: the sample has pauses of up to {format_duration(longest)} within a session, and no "
            "result names the end of its session plus the gap."
        )
        yield _session(gap, (doubt,))


def _session(gap: int, doubts: tuple[str, ...]) -> Guess:
    label = f"sessions with a gap of {format_duration(gap)}"
    return Guess({"kind": "session_window", "gap": format_duration(gap)}, label, doubts)


def _zoned(claims: Sequence[Claim], named: int | None) -> Iterator[Guess]:
    """Days of a zone whose clock changed within the sample."""
    starts = sorted({claim.start for claim in claims})
    steps = Counter(later - earlier for earlier, later in pairwise(starts))
    if not steps or (size := named or steps.most_common(1)[0][0]) % HOUR or len(steps) == 1:
        return
    found: list[tuple[int, str]] = []
    for zone in ZONES:
        offsets = {(start + offset_us(zone, start)) % size for start in starts}
        if len(offsets) == 1 and len({offset_us(zone, start) for start in starts}) > 1:
            found.append((offsets.pop(), zone))
    # Zones that change their clocks together differ in the offset only. Days begin at midnight.
    for offset, zone in sorted(found, key=lambda it: it[0] > 0)[:1]:
        oracle = {"kind": "tumbling_window", "size": format_duration(size), "time_zone": zone}
        if offset:
            oracle["offset"] = format_duration(offset)
        said = f"Other time zones may have changed their clocks on the same day as {zone}."
        yield Guess(oracle, f"windows of {format_duration(size)} in {zone}", (said,), uses_end=False)


def on_wall_clock(claims: Sequence[Claim]) -> Iterator[Guess]:
    """Yield the windows of results that write their starts as times on the clock of a zone."""
    zones = list(_wall_time_zones(claims)) if claims else []
    if not zones:
        return
    ahead = zones[0][1]
    moved = [claim._replace(start=claim.start - ahead, end=None) for claim in claims]
    for guess in of_claims(moved):
        yield _on_clock([zone for zone, _ in zones], ahead, guess, claims[0].start)


def of_starts_on_a_clock(starts: Sequence[int], ends: Sequence[int | None], first: int, last: int) -> Iterator[Guess]:
    """Yield as `of_starts`, of results that may write times on the clock of a zone: the zones with whose clocks the
    most windows are about events come first. ``first``, ``last``: times of the events."""
    zones: dict[int, list[str]] = {0: []}
    for zone in ZONES:
        if (ahead := offset_us(zone, first)) == offset_us(zone, last):
            zones.setdefault(ahead, []).append(zone)
    step = step_of(starts)
    within = {ahead: sum(first - step < start - ahead <= last for start in starts) for ahead in zones}
    for ahead in sorted(zones, key=lambda it: (-within[it], it != 0)):
        moved = [start - ahead for start in starts]
        guesses = of_starts(moved, [None if end is None else end - ahead for end in ends])
        if not ahead:
            yield from guesses
        elif within[ahead]:
            yield from (_on_clock(zones[ahead], ahead, guess, starts[0]) for guess in guesses)


def _on_clock(zones: Sequence[str], ahead: int, guess: Guess, start: int) -> Guess:
    """These windows on the clock of the first zone. ``start``: one of them, as results write it."""
    zone, *others = zones
    oracle = {name: value for name, value in guess.oracle.items() if name != "offset"}
    period = oracle.get("slide", oracle.get("size"))
    if period is not None and (offset := start % parse_duration(period)):
        oracle["offset"] = format_duration(offset)
    oracle |= {"time_zone": zone, "named": "wall_time"}
    more = f" So are those of {', '.join(others)}." if others else ""
    doubt = f"The starts of windows are {format_duration(abs(ahead))} off UTC, like the clock of {zone}.{more}"
    return Guess(oracle, f"{guess.label} on the clock of {zone}", (doubt,), uses_end=False)


def joined(windows: Guess, left: str, right: str, *, join: str) -> Guess:
    """Two inputs, joined in these windows. ``join``: the parameter of this name."""
    sides = {"kind": "windowed_join", "join": join, "left": left, "right": right}
    oracle = {**sides, **{name: value for name, value in windows.oracle.items() if name not in ("kind", "slide")}}
    return replace(windows, oracle=oracle, label=f"{join} join in {windows.label}", may_collapse=False)


def within(
    before: int, after: int, left: str, right: str, *, join: str, doubts: tuple[str, ...], until: object = None
) -> Guess:
    """Two inputs, joined in pairs whose right event is from ``before`` earlier to ``after`` later, and not after the
    time in the field ``until`` of the left one."""
    bounds = {name: format_duration(time) for name, time in (("before", before), ("after", after)) if time}
    oracle: dict[str, Any] = {"kind": "interval_join", "join": join, "left": left, "right": right, **bounds}
    if until is not None:
        oracle["until"] = until
    if before + after > BUCKET_US:
        oracle["bucket"] = format_duration(-(-(before + after) // SECOND) * SECOND)
    label = f"{join} join of {right} from {format_duration(-before)} to {format_duration(after)} after {left}"
    return Guess(oracle, label, doubts, may_collapse=False)


def copying(where: Mapping[str, Any] | None = None, *, is_changed: bool = True) -> Guess:
    """One result for each event, or for those for which the condition ``where`` holds."""
    if where is not None:
        return Guess({"kind": "filter", "where": dict(where)}, f"one result per event, if {where['path']} fits")
    return Guess({"kind": "map" if is_changed else "passthrough"}, "one result per event")


def running() -> Guess:
    """One result per key, without windows."""
    doubt = "No field of the results is a time of their events, so each event is expected in any result of its key."
    return Guess({"kind": "running_aggregate"}, "a running aggregate", (doubt,), may_collapse=False)


def _wall_time_zones(claims: Sequence[Claim]) -> Iterator[tuple[str, int]]:
    """Yield the zones on whose clock the starts may be written, and how far the clock is ahead of UTC."""
    least, most = spread(claims)
    ahead = -(least // _QUARTER) * _QUARTER
    if ahead and abs(ahead) <= _FARTHEST_ZONE and most - least < (step_of([it.start for it in claims]) or DAY):
        yield from ((zone, ahead) for zone in ZONES if all(offset_us(zone, it.at) == ahead for it in claims[:100]))


def offset_us(zone: str, instant_us: int) -> int:
    """How far the clock of a zone is ahead of UTC."""
    at = (_EPOCH + timedelta(microseconds=instant_us)).astimezone(zone_of(zone))
    offset = at.utcoffset()
    assert offset is not None, "a zone has an offset at every time"
    return round(offset.total_seconds()) * SECOND
