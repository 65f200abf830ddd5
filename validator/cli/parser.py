"""The argument parser of the command `streamproof`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from validator import __version__
from validator.cli.exits import USAGE
from validator.cli.log_lines import FORMATS, JsonLines, format_in
from validator.cli.refused import UNBUILT_COMMANDS
from validator.config.examples import EXAMPLES
from validator.model.classes import ViolationClass
from validator.model.wording import meant
from validator.publish.stderr import to_stderr

ENGINES_HELP: Final = (
    "engine to check: reference[:GUARANTEE], mutant[:MUTATION=SHARE,...] or ENGINE[:GUARANTEE], see docs/engines.md"
)
EXITS: Final = """\
exit status: 0 verdict pass; 1 fail; 2 bad usage or configuration; 3 unknown (could not verify); 130 interrupted"""
EXIT_PRINTED: Final = "exit status: 0 printed; 2 bad usage"
EXIT_REFUSED: Final = "exit status: 2, since it is not supported yet"
EXIT_OF_ACTIONS: Final = "exit status: that of the action, see the help of each"
SHELLS: Final = ("bash", "zsh")
DOCUMENTATION: Final = Path(__file__).resolve().parents[2] / "README.md"


class _BadUsage(Exception):
    """The parser refused the arguments."""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one sentence that says how to fix the usage."""

    def __init__(self, **keywords: Any) -> None:
        keywords.setdefault("allow_abbrev", False)
        keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**keywords)

    def format_help(self) -> str:
        """The help, with the place of the pages that it names. In a wheel they are beside the packages, too."""
        return f"{super().format_help()}\ndocumentation of this version: {DOCUMENTATION}\n"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is left over in the parser that knows the options of the command."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            options = [option for action in self._actions for option in action.option_strings]
            self.error(f"unrecognized arguments: {' '.join(left)}{_closest(left[0].partition('=')[0], options)}")
        return found, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        close = _closest(str(value), list(action.choices or ()))
        if close and value not in (action.choices or ()):
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{close}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        raise _BadUsage(f"{self.prog}: {message}; see `{self.prog} --help`.")


def _closest(name: str, known: Sequence[str]) -> str:
    question = meant(name, known)
    return f"; {question}" if question else ""


def build() -> argparse.ArgumentParser:
    """The parser. Its result has the name of the command in ``command``."""
    shared = _Parser(add_help=False)
    shared.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    parser = _Parser(
        prog="streamproof",
        parents=[shared],
        description="Checks, live and from the outside, whether a stream pipeline keeps its guarantee: reads\n"
        "its input and output topics, and reports which events are missing, duplicated or incorrect.",
        epilog=f"first steps:\n  streamproof demo\n  streamproof config example clickstream > pipeline.yaml\n"
        f"  streamproof doctor pipeline.yaml\n  streamproof validate pipeline.yaml\n\n{EXITS}",
    )
    parser.add_argument("--version", action="version", version=f"streamproof {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _validate(commands, shared)
    _demo(commands, shared)
    _broker(commands, shared)
    _generate(commands, shared)
    _faults(commands, shared)
    _campaign(commands, shared)
    _report(commands, shared)
    _status(commands, shared)
    _explain(commands, shared)
    _ack(commands, shared)
    copy = _command(
        commands,
        shared,
        "backup",
        "copy a state, even while its sidecar runs",
        epilog="The copy is consistent: a sidecar can continue from it, as it can after a SIGKILL.\n\n"
        "exit status: 0 copied; 2 no state, or the folder is not empty; 3 the copy failed",
    )
    copy.add_argument("state", metavar="STATE", help="the state folder")
    copy.add_argument("folder", metavar="FOLDER", help="a new or an empty folder")
    _config(commands, shared)
    _notify(commands, shared)
    _dashboards(commands, shared)
    doctor = _command(
        commands,
        shared,
        "doctor",
        "check that a sidecar can run on this machine and read a pipeline, and say how to fix problems",
        epilog="exit status: 0 no problem; 2 bad usage or configuration; 3 a problem was found; 130 interrupted",
    )
    doctor.add_argument("config", nargs="?", metavar="CONFIG", help="also check the pipeline of this file")
    _set(doctor)
    fetched = _command(
        commands,
        shared,
        "jars",
        "download the jars that the first start would download, archive their classes, and print their folder",
        epilog="exit status: 0 all are there; 2 bad usage; 3 one could not be downloaded",
    )
    fetched.add_argument("--broker", action="store_true", help="also those of the Kafka of demo and broker")
    _command(commands, shared, "version", "print the version", epilog=EXIT_PRINTED)
    completion = _command(
        commands,
        shared,
        "completion",
        "print the script with which a shell completes commands and options",
        epilog=f'bash: eval "$(streamproof completion bash)"\n\n{EXIT_PRINTED}',
    )
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    for refused in UNBUILT_COMMANDS:
        summary = f"{refused.summary} (not supported yet)"
        stub = _command(commands, shared, refused.command, summary, epilog=EXIT_REFUSED)
        stub.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _command(commands: Any, shared: argparse.ArgumentParser, name: str, summary: str, **more: Any) -> _Parser:
    epilog = more.pop("epilog", EXITS)
    sentence = summary[0].upper() + summary[1:] + "."
    added = commands.add_parser(name, parents=[shared], help=summary, description=sentence, epilog=epilog, **more)
    assert isinstance(added, _Parser)
    return added


def _set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="assignments",
        action="append",
        default=[],
        metavar="path.to.key=value",
        help="override a setting of the file; may be given several times",
    )


def _validate(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(
        commands,
        shared,
        "validate",
        "check a pipeline until you stop it, or with --once up to the current ends of its topics",
        epilog="The state folder keeps the progress: a second start continues where the first one ended.\n"
        "SIGTERM, SIGHUP and Ctrl-C end the run with the verdict so far.\n"
        "An interrupted --once never passes: status 1 if a violation is confirmed, else 130.\n"
        f"\n{EXITS}",
    )
    parser.add_argument("config", metavar="CONFIG", help="the pipeline's YAML file")
    parser.add_argument(
        "--once",
        action="store_true",
        help="read the topics up to their current ends, close every window, give the verdict and end; "
        "use it for a pipeline at rest, whose topics do not grow",
    )
    parser.add_argument(
        "--leave-open",
        action="store_true",
        help="with --once: leave a window open if the input watermark has not passed its end",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="do not print verdicts, new violation classes, status lines or, with --once, the summary",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        help="lines on stderr: text, or JSON objects with time, level, pipeline, run and message (default: text)",
    )
    parser.add_argument(
        "--at-rest",
        action="store_true",
        help="with --once: treat the pipeline as at rest even if its topics grew during the run",
    )
    _set(parser)


def _demo(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(
        commands,
        shared,
        "demo",
        "run a complete example on this machine: a broker, load, an engine, a fault, the verdict",
    )
    parser.add_argument("--engine", metavar="E", help=ENGINES_HELP)
    parser.add_argument(
        "--workload",
        metavar="W",
        help="workload of docs/generator.md (default: sst; of spark_dstreams: wordcount), such as mst or, with "
        "parameters, shufflebench:rules=200,zipf=0.4",
    )
    parser.add_argument(
        "--fault",
        metavar="F",
        help="fault to inject: kill (default; none for the mutant), pause, none, or a kind that `faults list` shows",
    )
    parser.add_argument("--faults", metavar="FILE", help="inject the faults of this file's schedule or plan")
    parser.add_argument("--plan", metavar="NAME", help="inject the faults of this named plan, such as pgval-crash")
    parser.add_argument("--faster", type=float, metavar="N", help="with --plan: divide the length of its phases by N")
    parser.add_argument("--seconds", type=_positive, metavar="N", help="how long the load runs")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of load and fault (default: 1)")
    parser.add_argument("--open", action="store_true", help="open the status page in a browser")


def _broker(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(
        commands,
        shared,
        "broker",
        "run a Kafka broker on this machine until you stop it, for a trial",
        epilog="The broker listens on 127.0.0.1 only and keeps its data until it is stopped.\n\n"
        "exit status: 0 stopped; 2 bad usage; 3 it did not start, or ended",
    )
    parser.add_argument("--port", type=port, default=9092, metavar="N", help="0: a free port (default: 9092)")
    parser.add_argument(
        "--topic",
        dest="topics",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="create this topic, with one partition unless you say more; may be given several times",
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="keep the data in this folder")


def _generate(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(
        commands,
        shared,
        "generate",
        "send load with a known ground truth",
        epilog="exit status: 0 sent; 2 bad usage or configuration; 3 failed; 130 interrupted",
    )
    parser.add_argument("config", metavar="CONFIG", help="the generator's YAML file")
    _set(parser)


def _faults(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(
        commands,
        shared,
        "faults",
        "plan, run and heal faults",
        epilog="plan prints the timeline of the seed; run injects the faults and heals each, even if interrupted;\n"
        "heal cleans up after a killed run; list shows what this host supports; proxy runs the\n"
        "proxies of links and relays until SIGTERM or Ctrl-C.\n\n"
        "exit status: 0 done; 2 bad usage or configuration, or a refused fault; 3 not verified, not healed or not\n"
        "reported; 130 interrupted, all faults healed",
    )
    parser.add_argument("action", choices=("plan", "run", "heal", "list", "proxy"), metavar="ACTION", help="what to do")
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="the faults' YAML file; list needs none")
    parser.add_argument("--seed", type=int, metavar="S", help="seed to use instead of the file's")
    parser.add_argument("--render", action="store_true", help="with plan: print the Chaos Mesh objects as YAML")


def _campaign(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(
        commands,
        shared,
        "campaign",
        "run many combinations of engine, workload, guarantee and fault, and write one table of results",
        epilog="exit status: 0 every selected run has a result; 2 bad usage or plan; 3 some runs have none;\n"
        "130 interrupted",
    )
    parser.add_argument("plan", metavar="PLAN", help="the campaign's YAML file, see docs/campaigns.md")
    parser.add_argument("--resume", action="store_true", help="continue where an earlier campaign of the plan ended")
    parser.add_argument("--scale", metavar="NAME", help="use the values of a scale of the plan, such as small")
    parser.add_argument("--dry-run", action="store_true", help="print the matrix and the expected time; run nothing")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE[,VALUE]",
        help="only these runs, as in engine=flink,storm; may be given several times",
    )
    parser.add_argument(
        "--metrics-port",
        type=port,
        metavar="PORT",
        help="serve the metrics of the current run at this port of 127.0.0.1, for Prometheus; 0: a free one",
    )


def _report(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(commands, shared, "report", "print the report of a run from its state")
    parser.add_argument("state", metavar="STATE", help="the state folder (state.path of the configuration)")
    parser.add_argument(
        "--format",
        choices=("text", "json", "html", "junit", "github"),
        default="text",
        help="form of the report (default: text)",
    )
    parser.add_argument("--since", metavar="T", help="only from this RFC 3339 time on (not supported yet)")
    parser.add_argument("--until", metavar="T", help="only up to this RFC 3339 time (not supported yet)")


def _status(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(commands, shared, "status", "print the verdict in one line, from a state or a sidecar's port")
    parser.add_argument("target", metavar="URL|STATE", help="address of the port of a sidecar, or a state folder")
    parser.add_argument("--ca-file", type=Path, metavar="FILE", help="PEM file with the CA certificates for the port")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with the token of the port")


def _notify(commands: Any, shared: argparse.ArgumentParser) -> None:
    notify = _command(commands, shared, "notify", "send messages to the addresses of notify", epilog=EXIT_OF_ACTIONS)
    actions = notify.add_subparsers(dest="action", metavar="ACTION", required=True)
    exits = "exit status: 0 all accepted it; 2 bad usage or configuration; 3 an address did not accept it"
    test = _command(actions, shared, "test", "send a test message to each address of notify", epilog=exits)
    test.add_argument("config", metavar="CONFIG", help="the pipeline's YAML file")
    _set(test)


def _explain(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = _command(
        commands,
        shared,
        "explain",
        "print the history of one event or cell: what the sidecar read, expected and decided",
        epilog="exit status: 0 printed; 2 bad usage or no state; 3 event or cell not found; 130 interrupted",
    )
    parser.add_argument("state", metavar="STATE", help="the state folder")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--id", metavar="ID", help="id of the event")
    cell = "start of the window (RFC 3339 time, or - for a cell without a window) and key"
    which.add_argument("--cell", nargs=2, metavar=("WINDOW", "KEY"), help=cell)
    again = "also read the events of the cell again from the topics of this file, to find those that explain its values"
    parser.add_argument("--config", metavar="CONFIG", help=again)
    _set(parser)


def _ack(commands: Any, shared: argparse.ArgumentParser) -> None:
    summary = "acknowledge violations, so that they no longer raise the alert, or settle undecodable records"
    later = (
        "An acknowledged violation raises the alert again if the number of its contributions or results grows.\n\n"
        "exit status: 0 done; 2 bad usage, no state or no such violation; 3 failed"
    )
    classes = [name.value for name in ViolationClass]
    parser = _command(commands, shared, "ack", summary, epilog=later)
    parser.add_argument("state", metavar="STATE", help="the state folder")
    parser.add_argument("violation", nargs="?", metavar="VIOLATION", help="id of a violation, from violations.json")
    of_class = f"all violations of this class that are confirmed now: {', '.join(classes)}"
    parser.add_argument("--class", dest="violation_class", choices=classes, metavar="C", help=of_class)
    parser.add_argument("--fault", metavar="F", help="violations that are confirmed now and attributed to this fault")
    at = "settle the undecodable records of an input, late or rejected topic at TOPIC/PARTITION/OFFSET[-OFFSET]"
    parser.add_argument(
        "--position",
        metavar="P",
        help=f"{at}; use it only if these records needed no result and did not advance the engine's event time",
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="reason for the acknowledgement or settlement")
    parser.add_argument("--by", metavar="NAME", help="who acknowledges the violation (default: your user name)")


def _config(commands: Any, shared: argparse.ArgumentParser) -> None:
    config = _command(commands, shared, "config", "check, describe or create a configuration", epilog=EXIT_OF_ACTIONS)
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True)
    exits = "exit status: 0 valid; 2 it has problems"
    check = _command(actions, shared, "check", "list the problems of a configuration", epilog=exits)
    check.add_argument("config", metavar="CONFIG", help="the YAML file")
    _set(check)
    _command(actions, shared, "schema", "print the JSON Schema of a configuration", epilog=EXIT_PRINTED)
    example = _command(actions, shared, "example", "print a commented configuration", epilog=EXIT_PRINTED)
    example.add_argument("name", choices=sorted(EXAMPLES), metavar="NAME", help=f"one of {', '.join(sorted(EXAMPLES))}")
    _config_init(actions, shared)


def _config_init(actions: Any, shared: argparse.ArgumentParser) -> None:
    exits = (
        "exit status: 0 printed and proven on the sample; 2 bad usage, or a topic does not exist; 3 printed and not\n"
        "proven, or the topics cannot be read"
    )
    init = _command(actions, shared, "init", "propose a configuration from topics", epilog=exits)
    init.add_argument("--bootstrap", required=True, metavar="BROKERS", help="host:port, several joined by commas")
    for role, part, what in (
        ("input", "inputs", "reads"),
        ("output", "outputs", "writes results to"),
        ("late", "late", "writes late events to"),
        ("rejected", "rejected", "writes dead letters to"),
    ):
        init.add_argument(
            f"--{role}",
            dest=part,
            action="append",
            required=part.endswith("puts"),
            default=None if part.endswith("puts") else [],
            metavar="TOPIC",
            help=f"a topic that the pipeline {what}; may be given several times",
        )
    init.add_argument("--registry", metavar="URL", help="the schema registry, if records name schemas")
    init.add_argument(
        "--schema",
        dest="schema_files",
        action="append",
        default=[],
        metavar="TOPIC=FILE",
        help="a file with the Avro schema of a topic's values, or with descriptors of Protobuf (TOPIC=FILE:TYPE, if it "
        "has several types); may be repeated",
    )
    init.add_argument(
        "--records",
        type=_positive,
        default=20_000,
        metavar="N",
        help="events that are sampled per input (default: 20000)",
    )
    init.add_argument(
        "--set",
        dest="assignments",
        action="append",
        default=[],
        metavar="path.to.key=value",
        help="a setting of the connection (kafka or schema_registry), with secrets as ${NAME}; may be repeated",
    )


def _dashboards(commands: Any, shared: argparse.ArgumentParser) -> None:
    summary = "Grafana dashboards, alert and recording rules"
    boards = _command(commands, shared, "dashboards", summary, epilog=EXIT_OF_ACTIONS)
    actions = boards.add_subparsers(dest="action", metavar="ACTION", required=True)
    exits = "exit status: 0 written; 2 bad usage; 3 failed"
    build = _command(actions, shared, "build", "write rules, dashboards and provisioning files", epilog=exits)
    build.add_argument("--out", default="monitoring", metavar="DIR", help="folder to write to (default: monitoring)")
    build.add_argument("--grafana", metavar="URL", help="the Grafana that has the dashboards: alerts then link to them")
    check = _command(
        actions,
        shared,
        "check",
        "run every expression of the dashboards and rules against a Prometheus",
        epilog="exit status: 0 Prometheus accepted every expression; 1 it refused some; 3 a request failed",
    )
    check.add_argument(
        "--prometheus", default="http://localhost:9090", metavar="URL", help="default: http://localhost:9090"
    )
    push = _command(
        actions,
        shared,
        "push",
        "replace the folder, dashboards and alert rules in a Grafana by the rendered ones",
        epilog="environment: GRAFANA_TOKEN (a service account's), or GRAFANA_USER and GRAFANA_PASSWORD\n\n"
        "exit status: 0 done; 2 bad usage; 3 a request failed",
    )
    push.add_argument("--grafana", required=True, metavar="URL", help="address of the Grafana")
    push.add_argument("--datasource", metavar="UID", help="data source that alerts query, if Grafana has several")
    push.add_argument(
        "--faults",
        action="append",
        default=[],
        metavar="SOURCE",
        help="write annotations for the faults of this state folder or sidecar (http:// or https://); may be repeated",
    )
    push.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="PEM file with the CA certificates for the sidecars' ports"
    )
    push.add_argument("--token-file", type=Path, metavar="FILE", help="file with the token of the sidecars' ports")
    push.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
    for action in (build, check, push):
        action.add_argument(
            "--objective",
            type=float,
            default=0.999,
            metavar="RATIO",
            help="share of contributions that must keep the guarantee (default: 0.999)",
        )
        action.add_argument(
            "--runbooks",
            default="docs/runbooks",
            metavar="URL",
            help="address under which docs/runbooks is published; dashboards and alerts link to it",
        )
        action.add_argument(
            "--pipeline",
            dest="pipelines",
            action="append",
            default=[],
            metavar="NAME",
            help="also alert if Prometheus has never scraped a sidecar of this pipeline; may be given several times",
        )


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return number


def port(text: str) -> int:
    """The number of a port, or 0 for a free one. Raises ArgumentTypeError."""
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
        raise argparse.ArgumentTypeError(f"{name!r} is not the name of a topic")
    return name, _positive(partitions) if colon else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse ``arguments`` (None: the process's). Raises SystemExit for --help, --version and bad usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # A command that is not implemented is refused whatever follows it; argparse would first check what follows.
        return build().parse_args(_without_rest(given))
    except _BadUsage as refused:
        if format_in(given) == "json":
            JsonLines().error(str(refused))
        else:
            to_stderr(str(refused))
        raise SystemExit(USAGE) from None


def _without_rest(arguments: list[str]) -> list[str]:
    names = {refused.command for refused in UNBUILT_COMMANDS}
    first = next((i for i, argument in enumerate(arguments) if not argument.startswith("-")), None)
    if first is None or any(argument in ("-h", "--help") for argument in arguments):
        return arguments
    if arguments[first] in names:
        return arguments[: first + 1]
    return arguments
