"""Draws targets by a selector and a seed, within the blast radius."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from faults.blast_radius import distinct, footprint_of, parts, sharing
from faults.config import FaultConfig
from faults.errors import FaultRefused
from faults.parameters import NO_PARAMETERS, AnyParameters, PodParameters
from faults.spec import Selector
from faults.targets import LocalProcess, Target
from validator.model.wording import plural

NODE_LOSS: Final = "node_loss"
_SHARED: Final = ("machine", "topic")
"""Types of targets that two faults of a group may hit, since neither fault replaces or heals the other."""


@dataclass(frozen=True)
class Selection:
    """The targets of a fault, and those of them that the configuration asks for explicitly."""

    kind: str
    names: tuple[str, ...]
    """Names of the targets, in the order of the file."""
    replicas: frozenset[str]
    """The targets of the same type with the selector's labels. All of them are hit only if ``asked`` has them."""
    asked: frozenset[str]
    """The targets that are requested explicitly: by name, ``all`` or ``leader``. For a node loss, the whole host."""
    units: int
    """Number of separate objects that are hit. A pod counts as one object."""


def select(
    config: FaultConfig,
    kind: str,
    target_type: str,
    selector: Selector,
    draw: random.Random,
    parameters: AnyParameters = NO_PARAMETERS,
    others: Sequence[Selection] = (),
) -> Selection:
    """The targets that a fault of ``kind`` hits. Draws no target that ``others``, the group's other faults, hit.

    Raises FaultRefused if no target or fewer than ``pick`` match, or if a target would be hit twice.
    :func:`check_radius` checks the upper limits.
    """
    held = [footprint_of(other.kind, config.targets[name]) for other in others for name in other.names]

    def is_hit(name: str) -> bool:
        target = config.targets[name]
        return target.type not in _SHARED and any(map(footprint_of(kind, target).overlaps, held))

    if selector.input is False and not any(target.input for target in config.targets.values()):
        raise FaultRefused(
            f"{kind}: input: false excludes targets with input: true, but there are none; set input: true for each "
            "consumer of the input, or name the target to hit."
        )
    replicas = {
        name: target
        for name, target in config.targets.items()
        if target.type == target_type and selector.labels.items() <= target.labels.items()
    }
    matching = {name: target for name, target in replicas.items() if selector.input in (None, target.input)}
    if selector.name is not None:
        if selector.name not in matching:
            raise FaultRefused(f"{kind}: targets: has no {target_type} target named {selector.name}; fix the name.")
        picked = [selector.name]
    elif not matching:
        raise FaultRefused(f"{kind}: targets: has no {target_type} target with {_wanted(selector)}; fix the selector.")
    elif kind == NODE_LOSS:
        picked = []
    elif selector.pick == "leader":
        picked = [_leader(kind, matching, is_hit)]
    else:
        picked = _drawn(kind, matching, is_hit, selector.pick, draw)
    if kind == NODE_LOSS:
        lost = _on_lost_hosts(config, matching, selector, draw)
        picked = list(distinct(kind, {name: config.targets[name] for name in lost}))
    names = tuple(name for name in config.targets if name in picked)
    twice = [name for name in names if is_hit(name)]
    if twice:
        raise FaultRefused(f"{kind}: {', '.join(twice)} would be hit twice in one group; use separate entries.")
    asked: frozenset[str] = frozenset()
    if selector.name is not None:
        asked = frozenset(names)
    elif selector.pick in ("all", "leader"):
        asked = frozenset(matching).intersection(names)
    units = _units(kind, len(names), parameters, is_limited=config.limits.targets_at_once is not None)
    return Selection(kind, names, frozenset(replicas), asked, units)


def _wanted(selector: Selector) -> str:
    wanted = [f"{key}: {value}" for key, value in selector.labels.items()]
    if selector.input is not None:
        wanted.append(f"input: {str(selector.input).lower()}")
    return ", ".join(wanted) or "any name or labels"


def check_radius(config: FaultConfig, selections: Sequence[Selection]) -> None:
    """Raise FaultRefused if faults that are active at one time hit too many targets, or all replicas although not all
    are asked for explicitly."""
    # Two names of one resource are hit together, whichever is drawn.
    hit = {name for s in selections for name in sharing(s.kind, config.targets, s.names)}
    asked = {name for s in selections for name in sharing(s.kind, config.targets, s.asked)}
    said = " and ".join(dict.fromkeys(selection.kind for selection in selections))
    for replicas in [*(selection.replicas for selection in selections), *_losses(config, selections)]:
        if replicas <= hit and not replicas <= asked:
            names = ", ".join(name for name in config.targets if name in replicas)
            raise FaultRefused(f"{said} would hit all replicas ({names}); write pick: all, or a name, if you mean it.")
    most, units = config.limits.targets_at_once, sum(selection.units for selection in selections)
    if most is not None and units > most:
        raise FaultRefused(f"{said} would hit {units} targets, and limits.targets_at_once is {most}.")


def _losses(config: FaultConfig, selections: Sequence[Selection]) -> Iterator[frozenset[str]]:
    """Replicas that a node loss may hit besides those selected: targets with the type and labels of a lost target."""
    for selection in selections:
        for lost in selection.names if selection.kind == NODE_LOSS else ():
            like = config.targets[lost]
            if lost not in selection.replicas:
                alike = (n for n, t in config.targets.items() if (t.type, t.labels) == (like.type, like.labels))
                yield frozenset(alike)


def _units(kind: str, targets: int, parameters: AnyParameters, *, is_limited: bool) -> int:
    if not isinstance(parameters, PodParameters) or not is_limited:
        return targets
    if parameters.pods == "one":
        return targets
    if isinstance(parameters.pods, int):
        return targets * parameters.pods
    raise FaultRefused(
        f"{kind}: limits.targets_at_once is set, and only the cluster knows how many pods {parameters.pods} are; "
        "give a number of pods."
    )


def _leader(kind: str, targets: Mapping[str, Target], is_hit: Callable[[str], bool]) -> str:
    marked = [name for name, target in targets.items() if target.leader]
    leaders = [name for name in marked if not is_hit(name)]
    if len(leaders) != 1:
        left = " that no other fault of the group hits" if len(leaders) < len(marked) else ""
        said = f"found {', '.join(leaders)}" if leaders else "found none"
        raise FaultRefused(f"{kind}: pick: leader needs one target with leader: true{left}; {said}.")
    return leaders[0]


def _drawn(
    kind: str, targets: Mapping[str, Target], is_hit: Callable[[str], bool], pick: str | int, draw: random.Random
) -> list[str]:
    """Draws ``pick`` separate targets. Of a process group and its single processes, only one is drawn."""
    separate = distinct(kind, targets)
    free: dict[str, list[str]] = {}
    for name in separate:
        alone = [] if pick == "all" else parts(kind, targets, name)
        if choices := [one for one in (name, *alone) if not is_hit(one)]:
            free[name] = choices
    count = _count(pick, len(separate))
    if count > len(free):
        left = " and that no other fault of the group hits" if len(free) < len(separate) else ""
        matches = plural(len(free), "target that matches", "targets that match")
        raise FaultRefused(f"{kind}: pick: {pick} is more than the {matches}{left}.")
    drawn = draw.sample(list(free), count)
    if count == len(free):
        # To spare a replica, one process is drawn instead of its whole group, if the process is itself a target.
        free = {name: [one for one in choices if one != name] or choices for name, choices in free.items()}
    return [free[name][0] if len(free[name]) == 1 else draw.choice(free[name]) for name in drawn]


def _count(pick: str | int, of: int) -> int:
    if isinstance(pick, int):
        return pick
    if pick == "one":
        return 1
    return of if pick == "all" else max(1, math.ceil(of * int(pick.removesuffix("%")) / 100))


def _on_lost_hosts(
    config: FaultConfig, matching: Mapping[str, Target], selector: Selector, draw: random.Random
) -> list[str]:
    chosen = {selector.name: matching[selector.name]} if selector.name is not None else matching
    processes = [t for t in config.targets.values() if isinstance(t, LocalProcess)]
    # A host takes input if any of its processes does.
    barred = {t.host for t in processes if t.input} if selector.input is False else set()
    found = (t.host for t in chosen.values() if isinstance(t, LocalProcess) and t.host and t.host not in barred)
    hosts = list(dict.fromkeys(found))
    if not hosts and barred:
        raise FaultRefused(f"{NODE_LOSS}: all matching hosts consume input; leave out input: false, or name a target.")
    if not hosts:
        raise FaultRefused(f"{NODE_LOSS}: no target that matches has a host; set host of such a target.")
    lost: list[str]
    if selector.pick == "leader":
        leaders = [t.host for t in chosen.values() if isinstance(t, LocalProcess) and t.leader and t.host]
        if len(set(leaders)) != 1:
            raise FaultRefused(f"{NODE_LOSS}: pick: leader needs one host with a target that has leader: true.")
        lost = leaders[:1]
    else:
        count = _count(selector.pick, len(hosts))
        if count > len(hosts):
            matches = plural(len(hosts), "host that matches", "hosts that match")
            raise FaultRefused(f"{NODE_LOSS}: pick: {selector.pick} is more than the {matches}.")
        lost = draw.sample(hosts, count)
    return [n for n, t in config.targets.items() if isinstance(t, LocalProcess) and t.host in lost]
