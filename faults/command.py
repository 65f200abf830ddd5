"""The command ``streamproof faults``: plan, run, heal, list, proxy."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final, TypeGuard

import yaml

from faults.backends import chaos_mesh, docker, faketime, kubernetes, relay_namespace
from faults.backends.impairment import LinkStatus
from faults.backends.proxy import serve
from faults.catalogue import KINDS, UNSUPPORTED, UNSUPPORTED_BACKENDS
from faults.config import FaultConfig, load
from faults.errors import FaultConfigError
from faults.fault import Timeline
from faults.healing import heal_all
from faults.inventory import inventory
from faults.journal import Journal, names_in
from faults.runner import run as run_timeline
from faults.schedule import timeline
from faults.section import text_of
from faults.targets import ContainerTarget, LinkTarget, NamespaceTarget, PodsTarget, Target
from faults.topic import FaultsTopicWriter
from validator import __version__
from validator.model.signals import ending, set_from_handler
from validator.model.terminal import plain
from validator.model.wording import plural

_PASS: Final = 0
_INTERRUPTED: Final = 130
_CLOCK_WIDTH: Final = len("0:01:30.500")


def run(given: argparse.Namespace) -> int:
    """Run the action of ``given`` and return the exit status. Raises FaultError."""
    if given.render and given.action != "plan":
        raise FaultConfigError("faults: --render goes with plan, as in faults plan faults.yaml --render.")
    if given.action == "list":
        listed = None if given.config is None else load(given.config)
        _list(listed)
        if listed is not None:
            print(plain(f"Targets of {given.config}:"))
            for name, found in inventory(listed).items():
                print(plain(f"  {name}: {found}"))
        return _PASS
    if given.config is None:
        raise FaultConfigError(
            f"faults {given.action}: name the configuration, as in faults {given.action} faults.yaml."
        )
    config = load(given.config)
    if given.render:
        # Numbers instead of random ids, so that a seed always gives the same text.
        print(objects_of(timeline(config, given.seed, id_of=map(str, count(1)).__next__)))
        return _PASS
    actions = {"plan": _plan, "run": _run, "heal": _heal, "proxy": _proxy}
    return actions[given.action](config, given.seed)


def _list(config: FaultConfig | None) -> None:
    width = max(len(name) for name in [*KINDS, *(absent.name for absent in UNSUPPORTED), *UNSUPPORTED_BACKENDS]) + 2
    # Informative only: a target may name a Docker, a cluster or a libfaketime other than the default.
    of_types = {"container": _why_no_docker(config), "pods": kubernetes.why_not_here()}
    of_kinds = {"clock_skew": faketime.why_not_here()}
    reasons = {
        kind.name: kind.why_not_here or of_kinds.get(kind.name) or of_types.get(kind.target) for kind in KINDS.values()
    }
    print("Kinds of faults that are available on this host:")
    for kind in KINDS.values():
        if reasons[kind.name] is None:
            print(f"  {kind.name:<{width}}{kind.target:<11}{kind.summary}")
    print("Kinds of faults that are not available on this host:")
    for name, reason in reasons.items():
        if reason is not None:
            print(f"  {name:<{width}}{reason}")
    for absent in UNSUPPORTED:
        print(f"  {absent.name:<{width}}{absent.reason}")
    print("The only backend is local, for targets of all types. These names are not backends:")
    for name, reason in UNSUPPORTED_BACKENDS.items():
        print(f"  {name:<{width}}{reason}")


def _why_no_docker(config: FaultConfig | None) -> str | None:
    """Why Docker cannot be used at any socket of the targets (or at the default one); None if it can at one of them."""
    targets = () if config is None else config.targets.values()
    sockets = [target.socket for target in targets if isinstance(target, ContainerTarget)]
    reasons = [docker.why_not_here(socket) for socket in dict.fromkeys(sockets or [docker.SOCKET])]
    return None if None in reasons else reasons[0]


def _plan(config: FaultConfig, seed: int | None) -> int:
    print(shown(timeline(config, seed)))
    return _PASS


def shown(planned: Timeline) -> str:
    """The timeline as a table. Times count from the start, as if injecting and healing took no time."""
    title = f"plan {planned.plan}, seed {planned.seed}, {text_of(planned.seconds)}, plus the time for healing"
    rows: list[tuple[str, str]] = []
    at = 0.0
    for step in planned.steps:
        if step.wait_seconds:
            rows.append((_clock(at), f"{step.before} for {text_of(step.wait_seconds)}"))
        at += step.wait_seconds
        for after, fault in step.parts:
            given = fault.parameters.model_dump(mode="json", exclude_none=True)
            parameters_text = ", ".join(f"{name} {value}" for name, value in given.items())
            together = ", together" if step.others else ""
            shown_fault = f"{fault.kind} on {fault.target_names} for {_length(step.seconds_of(after, fault))}{together}"
            rows.append((_clock(at + after), shown_fault + (f" ({parameters_text})" if parameters_text else "")))
        at += step.seconds
    if planned.recovery_seconds:
        rows.append((_clock(at), f"recovery for {text_of(planned.recovery_seconds)}"))
    rows.append((_clock(planned.seconds), "end"))
    width = max(_CLOCK_WIDTH, *(len(clock) for clock, _ in rows))
    return "\n".join(plain(line) for line in [title, *(f"{clock:<{width}}  {what}" for clock, what in rows)])


def objects_of(planned: Timeline) -> str:
    """The Chaos Mesh objects of the plan's pod faults, as YAML. Raises FaultConfigError if there are none."""
    shown_objects = [
        plain(f"# {fault.name}: {fault.kind} on {name} for {_length(step.seconds_of(after, fault))}")
        + "\n"
        + yaml.safe_dump(chaos_mesh.rendered(fault, name, target), sort_keys=False)
        for step in planned.steps
        for after, fault in step.parts
        for name, target in fault.targets.items()
        if isinstance(target, PodsTarget)
    ]
    if not shown_objects:
        raise FaultConfigError(f"plan {planned.plan}: no fault of the plan hits pods, so there is no object to show.")
    return "---\n".join(shown_objects).rstrip()


def _length(seconds: float) -> str:
    return text_of(seconds) if seconds > 0 else "an instant"


def _clock(seconds: float) -> str:
    """Hours (also above 24), minutes and seconds."""
    minutes, thousandths = divmod(round(seconds * 1000), 60_000)
    rest = f"{thousandths // 1000:02}" + (f".{thousandths % 1000:03}" if thousandths % 1000 else "")
    return f"{minutes // 60}:{minutes % 60:02}:{rest}"


def _run(config: FaultConfig, seed: int | None) -> int:
    planned = timeline(config, seed, taken=names_in(config.state))
    started = time.monotonic()
    faults = sum(len(step.parts) for step in planned.steps)
    length = f"{plural(faults, 'fault')}, about {text_of(planned.seconds)}"
    print(f"streamproof {__version__}, plan {planned.plan}, seed {planned.seed}: {length}", flush=True)

    def say(line: str) -> None:
        _say(f"{time.monotonic() - started:8.1f} s  {line}")

    with _stopped_by_signals() as stop:
        run_timeline(config, planned, say, stop)
    if stop.is_set():
        say("stopped; all faults are healed")
        return _INTERRUPTED
    return _PASS


def _say(line: str) -> None:
    # A closed terminal or pipe must not interrupt healing or publishing.
    with suppress(OSError):
        print(plain(line), flush=True)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGINT and SIGHUP set. A second signal has no effect, since healing must be completed."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: set_from_handler(stop)) for number in ending()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heal(config: FaultConfig, _: int | None) -> int:
    with Journal.locked(config.state) as journal:
        topic = None if config.kafka is None else FaultsTopicWriter(config.kafka)
        if not journal.open_entries() and journal.unreadable_problem() is None:
            print("Nothing is broken: every fault in the journal is healed.")
        heal_all(journal, topic, config.limits, _say)
    for name, target in config.targets.items():
        # A namespace that a running proxy serves is kept, since its device is up.
        if _is_relayed(target) and relay_namespace.remove_if_ours(target.namespace):
            print(plain(f"{name}: removed the empty namespace {target.namespace} of a killed proxy."))
    return _PASS


def _is_relayed(target: Target) -> TypeGuard[NamespaceTarget]:
    return isinstance(target, NamespaceTarget) and target.relay is not None


def _proxy(config: FaultConfig, _: int | None) -> int:
    def ready(links: dict[str, LinkStatus]) -> None:
        for name, link in links.items():
            print(plain(f"{name}: {link.listen} leads to {link.upstream}"), flush=True)
        print("the proxy is ready; SIGTERM or Ctrl-C ends it and the connections through it", flush=True)

    links = {
        name: target for name, target in config.targets.items() if isinstance(target, LinkTarget) or _is_relayed(target)
    }
    for name, link in asyncio.run(serve(links, config.state, ready)).items():
        if link.dropped_packets:
            packets = plural(link.dropped_packets, "packet was", "packets were")
            print(plain(f"{name}: {packets} dropped, because too many were waiting"))
    sys.stdout.flush()
    return _PASS
