"""From a selector and a seed to targets, within the blast radius."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from faults.config import FaultConfig, Selector
from faults.errors import FaultRefused
from faults.targets import LocalProcess, Target

NODE_LOSS = "node_loss"


def select(config: FaultConfig, kind: str, target_type: str, selector: Selector, draw: random.Random) -> list[str]:
    """The names of the targets that a fault of ``kind`` hits, in the order of the file.

    Raises FaultRefused where nothing matches, or where more would be hit than was asked for.
    """
    matching = {
        name: target
        for name, target in config.targets.items()
        if target.type == target_type and selector.labels.items() <= target.labels.items()
    }
    if selector.name is not None:
        if selector.name not in matching:
            raise FaultRefused(f"{kind}: there is no {target_type} target named {selector.name}; see targets: .")
        picked = [selector.name]
    elif not matching:
        labels = ", ".join(f"{key}: {value}" for key, value in selector.labels.items()) or "any label"
        raise FaultRefused(f"{kind}: there is no {target_type} target with {labels}; see targets: .")
    elif kind == NODE_LOSS:
        picked = []
    else:
        picked = _picked(kind, list(matching), matching, selector, draw)
    if kind == NODE_LOSS:
        picked = _on_lost_hosts(config, matching, selector, draw)
    is_asked = selector.name is not None or selector.pick in ("all", "leader")
    if not is_asked and set(matching) <= set(picked):
        raise FaultRefused(
            f"{kind}: it would hit all replicas ({', '.join(matching)}); write pick: all, or a name, if you mean it."
        )
    most = config.limits.targets_at_once
    if most is not None and len(picked) > most:
        raise FaultRefused(f"{kind}: it would hit {len(picked)} targets, and limits.targets_at_once is {most}.")
    return [name for name in config.targets if name in picked]


def _picked(
    kind: str, names: list[str], targets: Mapping[str, Target], selector: Selector, draw: random.Random
) -> list[str]:
    if selector.pick == "leader":
        leaders = [name for name in names if targets[name].leader]
        if len(leaders) != 1:
            said = f"{', '.join(leaders)} are" if leaders else "none is"
            raise FaultRefused(f"{kind}: pick: leader needs one target with leader: true; {said}.")
        return leaders
    count = _count(selector.pick, len(names))
    if count > len(names):
        raise FaultRefused(f"{kind}: pick: {selector.pick} is more than the {len(names)} targets that match.")
    return draw.sample(names, count)


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
    hosts = list(dict.fromkeys(t.host for t in chosen.values() if isinstance(t, LocalProcess) and t.host))
    if not hosts:
        raise FaultRefused(f"{NODE_LOSS}: no target that matches has a host; give it one under targets: .")
    lost: list[str]
    if selector.pick == "leader":
        leaders = [t.host for t in chosen.values() if isinstance(t, LocalProcess) and t.leader and t.host]
        if len(set(leaders)) != 1:
            raise FaultRefused(f"{NODE_LOSS}: pick: leader needs one host with a target that has leader: true.")
        lost = leaders[:1]
    else:
        count = _count(selector.pick, len(hosts))
        if count > len(hosts):
            raise FaultRefused(f"{NODE_LOSS}: pick: {selector.pick} is more than the {len(hosts)} hosts that match.")
        lost = draw.sample(hosts, count)
    return [n for n, t in config.targets.items() if isinstance(t, LocalProcess) and t.host in lost]
