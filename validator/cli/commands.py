"""The commands: each loads its configuration, calls the package that does the work, and prints the outcome.

A command imports the packages that it needs: `report` must not wait for Spark, and the sidecar must run without the
generator and the testbed. This module itself loads no model of a configuration and no array library: help, a usage
error and `version` need none.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pwd
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TextIO

from validator import __version__
from validator.cli.exits import INTERRUPTED, PASS, STATUS_OF_OUTCOME, UNKNOWN, UsageError
from validator.cli.log_lines import JsonLines, Lines
from validator.cli.refused import UNBUILT_COMMANDS, sentence
from validator.config.examples import EXAMPLES, SCHEMA_FILE, for_editors
from validator.model.signals import raise_ended
from validator.model.terminal import plain
from validator.model.wording import plural
from validator.state.folder import check_schema

LINE_EVERY_SECONDS: Final = 5.0
"""Interval of progress lines if the output is not a terminal."""


def _optional_module(name: str, refusal: str) -> ModuleType:
    """Import the module ``name``. Raises UsageError with the text ``refusal`` if this installation lacks it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # If the module lacks a library instead, that error is raised, since it names the library.
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(refusal) from error
        raise


def validate(given: argparse.Namespace) -> int:
    """Run the sidecar. Returns the exit status of the verdict."""
    for option in ("leave_open", "at_rest"):
        if getattr(given, option) and not given.once:
            raise UsageError(f"validate: --{option.replace('_', '-')} applies only to --once; add --once.")
    # Until the sidecar sets its own handlers, SIGTERM and SIGHUP end the command with status 130, as Ctrl-C does.
    raise_ended()
    from validator.cli.reports import last_lines, print_summary
    from validator.config.load import load
    from validator.publish.notices import Notices
    from validator.publish.progress import Progress

    config = load(given.config, given.assignments)
    sidecar = _optional_module(
        "validator.stream.sidecar", "validate: the sidecar is not part of this installation; reinstall streamproof."
    )
    lines: Lines = given.lines
    lines.set_pipeline(config.pipeline)
    if isinstance(lines, JsonLines):
        from validator.stream.jvm_output import OUTPUT

        OUTPUT.read_by(lines.pass_on)
    progress = Progress(None if isinstance(lines, JsonLines) else sys.stderr, lines.say)
    notices = None if given.quiet else progress if given.once else Notices(lines.say)
    with for_the_owner_only():
        try:
            status = int(
                sidecar.run(
                    config,
                    once=given.once,
                    leave_open=given.leave_open,
                    at_rest=given.at_rest,
                    say=progress.say,
                    notices=notices,
                )
            )
        finally:
            progress.close()
    if given.quiet or status == INTERRUPTED:
        return status
    if given.once:
        print_summary(config.state.path)
    else:
        for line in last_lines(config.state.path, status):
            lines.say(line)
    return status


@contextlib.contextmanager
def for_the_owner_only() -> Iterator[None]:
    """Within this context, only the user may read files that this process and its JVM create, and no core is dumped."""
    before = os.umask(0o077)
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
        os.umask(before)


def demo(given: argparse.Namespace) -> int:
    """Run the demonstration. Returns the exit status of its verdict."""
    refusal = "demo: the testbed is not part of this installation; run `demo` from a checkout of streamproof."
    return int(_optional_module("testbed.demo.command", refusal).run(given))


def broker(given: argparse.Namespace) -> int:
    """Run a Kafka broker until it is stopped."""
    refusal = "broker: the testbed is not part of this installation; run `broker` from a checkout of streamproof."
    return int(_optional_module("testbed.broker_command", refusal).run(given))


def generate(given: argparse.Namespace) -> int:
    """Generate a load, and print the summary as JSON."""
    refusal = "generate: the generator is not part of this installation; run `generate` from a checkout of streamproof."
    config = _optional_module("generator.config", refusal).load(given.config, given.assignments)
    summary = _optional_module("generator.run", refusal).generate(config, on_progress=_progress(sys.stderr))
    plain = asdict(summary) if is_dataclass(summary) and not isinstance(summary, type) else summary
    print(json.dumps(plain, indent=2, default=str))
    return PASS


def faults(given: argparse.Namespace) -> int:
    """Plan, run or heal faults, or list their kinds."""
    refusal = "faults: the fault runner is not part of this installation; run `faults` from a checkout of streamproof."
    return int(_optional_module("faults.command", refusal).run(given))


def campaign(given: argparse.Namespace) -> int:
    """Run a campaign. Returns 0 if it is complete."""
    refusal = "campaign: the testbed is not part of this installation; run `campaign` from a checkout of streamproof."
    return int(_optional_module("testbed.campaign.command", refusal).run(given))


def _progress(stream: TextIO) -> Callable[[Any], None]:
    in_place = stream.isatty()
    next_line = 0.0

    def show(progress: Any) -> None:
        nonlocal next_line
        line = f"{progress.seconds:.0f} s: {progress.sent:,} sent, {progress.acknowledged:,} acknowledged"
        if in_place:
            stream.write(f"\r\x1b[K{line}")
        elif progress.seconds >= next_line:
            stream.write(f"{line}\n")
            next_line = progress.seconds + LINE_EVERY_SECONDS
        stream.flush()

    return show


def report(given: argparse.Namespace) -> int:
    """Print the report of a state. Returns the exit status of its outcome."""
    for option in ("since", "until"):
        if getattr(given, option) is not None:
            raise UsageError(
                f"report: --{option} is not supported yet, because report.json has only whole-run totals; leave it out."
            )
    from validator.cli.reports import print_report

    return STATUS_OF_OUTCOME[print_report(given.state, given.format)]


def status(given: argparse.Namespace) -> int:
    """Print the verdict of a state or a sidecar in one line. Returns the exit status of its outcome."""
    from validator.cli.status import run

    return run(given.target, given.ca_file, given.token_file)


def notify(given: argparse.Namespace) -> int:
    """Send a test message to each address of `notify`."""
    from validator.config.load import load
    from validator.publish.notifier import NotDelivered, post, test_message

    config = load(given.config, given.assignments)
    if not config.notify:
        raise UsageError(f"{given.config}: it has no notify; add an entry with a url.")
    status = PASS
    for number, place in enumerate(config.notify):
        try:
            post(place, test_message(config.pipeline, config.guarantee.value))
            print(plain(f"notify[{number}]: {place.host} accepted the test message."))
        except NotDelivered as error:
            given.lines.error(f"notify[{number}]: {error}; check its url.")
            status = UNKNOWN
    return status


def explain(given: argparse.Namespace) -> int:
    """Print what is recorded of one event or cell."""
    from validator.publish.explain import run
    from validator.state.tables import Table, has_rows

    state = Path(given.state)
    check_schema(state)
    if not has_rows(state, Table.FACTS):
        raise UsageError(f"{state}: there are no facts in it; name the state.path of a run that has committed a batch.")
    if given.config is None:
        return run(state, given.id if given.id is not None else tuple(given.cell))
    from validator.cli.explained_values import lines
    from validator.config.load import load

    if given.id is not None:
        raise UsageError("explain: --config is for a cell; use it with --cell.")
    config = load(given.config, given.assignments)
    status = run(state, tuple(given.cell))
    for line in lines(config, state, *given.cell) if status == PASS else ():
        print(plain(line))
    return status


def ack(given: argparse.Namespace) -> int:
    """Acknowledge one violation or all violations of a class or a fault, or settle undecodable records."""
    state = Path(given.state)
    if not given.reason.strip():
        raise UsageError("ack: --reason is empty; give the reason for the acknowledgement or settlement.")
    if not state.is_dir():
        raise UsageError(f"{state}: there is no such folder; name the state folder.")
    check_schema(state)
    room = _optional_module(
        "validator.state.acknowledgements", "ack: the command is not part of this installation; reinstall streamproof."
    )
    many = given.violation_class is not None or given.fault is not None
    if given.position is not None:
        if many or given.violation is not None:
            raise UsageError("ack: --position cannot be combined with a violation, --class or --fault; omit them.")
        return _settle(state, given.position, given.reason)
    if many and given.violation is not None:
        raise UsageError("ack: a violation cannot be combined with --class or --fault; leave one of them out.")
    if not many and given.violation is None:
        raise UsageError("ack: name a violation, select several with --class or --fault, or use --position.")
    if not many:
        room.acknowledge(state, given.violation, given.reason, by=given.by or _user())
        print(f"{plain(given.violation)} is acknowledged: it stays in the report and no longer raises the alert.")
        return PASS
    taken = room.acknowledge_all(
        state, given.reason, violation_class=given.violation_class, fault=given.fault, by=given.by or _user()
    )
    inside = sum(entry.count for entry in taken)
    inside_all = plural(inside, "contribution or result", "contributions or results")
    stay = "It stays" if len(taken) == 1 else "They stay"
    print(f"Acknowledged: {plural(len(taken), 'violation')} with {inside_all}. {stay} in the report, without an alert.")
    return PASS


def _user() -> str:
    """The user who runs the command, before `sudo`; the number of one that has no name."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _settle(state: Path, position: str, reason: str) -> int:
    from validator.stream import settling

    one = settling.settle(state, settling.known_positions(state), position, reason)
    many = plural(one.records, "undecodable record")
    print(
        f"Settled: {many} of {plain(str(one.partition_id))}. The sidecar applies this in its next "
        f"batch. Then {'the record' if one.records == 1 else 'the records'} can no longer make a verdict unknown or "
        "keep a violation suspected."
    )
    return PASS


def backup(given: argparse.Namespace) -> int:
    """Copy a state, also while a sidecar writes to it."""
    from validator.state.backup import backup as copy

    with for_the_owner_only():
        size = copy(Path(given.state), Path(given.folder))
    print(f"{given.folder}: {size:,} bytes. To continue from this copy, set state.path to it.")
    return PASS


def config(given: argparse.Namespace) -> int:
    """Check or propose a configuration, or print the schema or an example."""
    if given.action == "check":
        from validator.config.load import load

        loaded = load(given.config, given.assignments)
        topics = f"{plural(len(loaded.inputs), 'input topic')} and {plural(len(loaded.outputs), 'output topic')}"
        print(plain(f"{given.config}: valid; pipeline {loaded.pipeline}, {loaded.guarantee.value}, {topics}."))
    elif given.action == "schema":
        sys.stdout.write(SCHEMA_FILE.read_text(encoding="utf-8"))
    elif given.action == "example":
        sys.stdout.write(f"{for_editors()}{EXAMPLES[given.name]}")
    else:
        from validator.cli.proposal import command

        return command.run(
            given.bootstrap,
            {part: getattr(given, part) for part in ("inputs", "outputs", "late", "rejected")},
            given.registry,
            given.schema_files,
            given.assignments,
            given.records,
            head=for_editors(),
        )
    return PASS


def dashboards(given: argparse.Namespace) -> int:
    """Render, check or push dashboards and rules."""
    refusal = "dashboards: the command is not part of this installation; run it from a checkout of streamproof."
    return int(_optional_module("dashboards.command", refusal).run(given))


def doctor(given: argparse.Namespace) -> int:
    """Report what this machine and the pipeline lack, and how to fix it."""
    from validator.cli import doctor as room
    from validator.config.load import load

    return room.run(load(given.config, given.assignments) if given.config is not None else None, sys.stdout)


def jars(given: argparse.Namespace) -> int:
    """Download the jars and archive their classes ahead of the first start, and print their folder."""
    from validator.stream import class_archive
    from validator.stream.jars import SIDECAR_LOCK, default_cache, resolve

    locks = [SIDECAR_LOCK]
    if given.broker:
        refusal = "jars: the testbed is not part of this installation; run `jars --broker` from a checkout."
        locks.append(_optional_module("testbed.broker_storage", refusal).JARS_LOCK)
    found = [resolve(lock) for lock in locks]
    class_archive.make(found[0])
    print(default_cache())
    return PASS


def completion(given: argparse.Namespace) -> int:
    """Print the script with which a shell completes commands and options."""
    from validator.cli.completion import script

    print(script(given.shell))
    return PASS


def version(_: argparse.Namespace) -> int:
    """Print the version."""
    print(f"streamproof {__version__}")
    return PASS


def refuse(given: argparse.Namespace) -> int:
    """Refuse a command that is not implemented yet."""
    raise UsageError(sentence(next(refused for refused in UNBUILT_COMMANDS if refused.command == given.command)))


COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "validate": validate,
    "demo": demo,
    "broker": broker,
    "generate": generate,
    "faults": faults,
    "campaign": campaign,
    "report": report,
    "status": status,
    "notify": notify,
    "explain": explain,
    "ack": ack,
    "backup": backup,
    "config": config,
    "dashboards": dashboards,
    "doctor": doctor,
    "jars": jars,
    "version": version,
    "completion": completion,
    **{refused.command: refuse for refused in UNBUILT_COMMANDS},
}
"""Command -> its function. The result is the exit status."""
