"""The Spark session of the sidecar, with the settings that its speed rests on."""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext, accumulators
from pyspark.sql import SparkSession

from validator.config.options import secret_property
from validator.state.folder import open_new
from validator.stream import python_daemon, shipping
from validator.stream.jars import user_cache

TUNED: Final[dict[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Records and most fact rows never are in the JVM (`validator.stream.workers`).
    "spark.driver.memory": "1g",
    # On a cluster facts come through it; a limit of its own would end a large batch again and again, at every start.
    "spark.driver.maxResultSize": "0",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.debug.maxToStringFields": "5",
    "spark.cleaner.periodicGC.interval": "5min",
    # A task that lacks memory fails, and not the JVM: the batch is then read in parts (`validator.stream.isolating`).
    "spark.executor.killOnFatalError.depth": "0",
    # Files of the checkpoint have rights for their owner only: Hadoop sets them whatever the process's umask is.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    # Its Kafka client waits a minute for brokers that do not answer, and a sidecar must end within half of that.
    "spark.sql.streaming.stopTimeout": "4s",
}
"""Settings for one small machine; `spark.options` of the configuration may change them."""

GUARDED: Final[dict[str, str]] = {
    # With a local master Spark makes a secret of its own.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
"""Settings that keep other users of the host away from Spark's ports and files, for local masters: no other process has
to know the secret there. `spark.options` may change them."""


_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_JAVA_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
"""A JVM that is told of two collectors does not start."""


class _Launch(dict[str, Any]):
    """How the JVM is started: deaf to the signals that end a whole group of processes (a terminal's, systemd's).

    The sidecar alone acts on them, and the JVM ends when the sidecar closes its input, also by being killed. A signal
    that is ignored where a program starts stays so in it, and in a JVM.
    """

    def __setitem__(self, name: str, value: object) -> None:
        # PySpark sets a function of its own, which ignores SIGINT only.
        super().__setitem__(name, _ignore_ending if name == "preexec_fn" else value)


def _ignore_ending() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


class SessionUnfit(Exception):
    """A Spark option cannot be followed."""


def start(
    name: str,
    master: str,
    jars: Sequence[Path],
    options: Mapping[str, str],
    *,
    inherit: Sequence[int] = (),
    withheld: Collection[str] = (),
    crash_folder: Path | None = None,
) -> SparkSession:
    """Start Spark; the JVM inherits the file descriptors ``inherit`` (the state's lock).

    It does not inherit the environment variables ``withheld``. ``crash_folder`` is where it writes of a crash.
    Its settings are not on its command line, which every user of the host may read.

    Raises `SessionUnfit` where ``options`` have Java options that cannot be read.
    """
    local = master.startswith("local")
    settings = {**TUNED, **(GUARDED if local else {}), **options}
    if local:
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.python.daemon.module", python_daemon.__name__)
    else:
        _ship(settings)
    python = settings.get("spark.pyspark.python", sys.executable if local else shipping.executor_python())
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings |= {"spark.master": master, "spark.app.name": f"streamproof-{name}"}
    settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    log_option = shlex.quote(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}")
    properties = take_secrets(settings)
    java_options = settings.get("spark.driver.extraJavaOptions", "")
    elsewhere = [
        settings.get("spark.driver.defaultJavaOptions", ""),
        *[os.environ.get(name, "") for name in _JAVA_VARIABLES],
    ]
    java_options = f"{_crash_options(crash_folder)} {for_a_small_jvm(java_options, elsewhere)}".strip()
    settings["spark.driver.extraJavaOptions"] = f"{log_option} {java_options}".strip()
    silence_py4j()
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _unsaid  # type: ignore[method-assign, assignment]
    if SparkContext._gateway is None:
        gateway = _launched(settings, inherit, withheld)
        for key, value in properties.items():
            gateway.jvm.java.lang.System.setProperty(key, value)
        _guard_callbacks(gateway)
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # the only door to popen_kwargs
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _ship(settings: dict[str, str]) -> None:
    """Have Spark send to its executors what the workers import there."""
    archive = f"{shipping.environment(user_cache())}#{shipping.FOLDER}"
    for name, value, separator in (
        ("spark.archives", archive, ","),
        ("spark.executorEnv.PYTHONPATH", f"./{shipping.FOLDER}", ":"),
    ):
        settings[name] = separator.join(filter(None, [value, settings.get(name, "")]))


def silence_py4j() -> None:
    """Keep py4j from logging traces of what is reported in a sentence: a batch that failed, a JVM that is gone."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # py4j logs a call that the JVM did not answer with the root logger.
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _unsaid(_: object, *__: object) -> None:
    """In place of a trace on stderr where the JVM's connection to a server of PySpark breaks."""


def for_a_small_jvm(java_options: str, elsewhere: Iterable[str]) -> str:
    """The options, with those by which a JVM that plans batches and reads no records takes little.

    It compiles as little as it can: on two cores the second compiler costs more than it saves in a run of minutes. It
    collects with one thread, where neither the options nor those ``elsewhere`` choose a collector.
    """
    # With one compiler the JVM reserves 48 MB for code, which a Spark session fills; then it interprets.
    own = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"]
    if not any(_COLLECTOR.search(given) for given in (java_options, *elsewhere)):
        own.append("-XX:+UseSerialGC")
    # Of an option that is given twice the last one counts.
    return " ".join([*own, java_options]).strip()


def take_secrets(settings: dict[str, str]) -> dict[str, str]:
    """Remove from ``settings`` the system properties of the driver's JVM that may be secrets, and return them.

    Spark writes both options on the command line of the JVM, the default ones first.
    """
    properties: dict[str, str] = {}
    for name in ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"):
        if name in settings:
            settings[name], secrets = split_secrets(settings[name])
            properties |= secrets
    return properties


def split_secrets(java_options: str) -> tuple[str, dict[str, str]]:
    """The options that may be on a command line, and the system properties (``-Dname=value``) that may be secrets."""
    kept, properties = [], {}
    try:
        options = shlex.split(java_options)
    except ValueError:
        raise SessionUnfit("spark.options has Java options with a quote that is not closed: close it") from None
    for option in options:
        if (secret := secret_property(option)) is not None:
            properties[secret[0]] = secret[1]
        else:
            kept.append(option)
    return (shlex.join(kept) if properties else java_options), properties


def _crash_options(folder: Path | None) -> str:
    """No core, which holds all that the JVM knows; what it writes of a crash goes to ``folder``."""
    options = ["-XX:-CreateCoredumpOnCrash"]
    if folder is not None:
        options.append(f"-XX:ErrorFile={str(folder).replace('%', '%%')}/hs_err_pid%p.log")
        options.append(f"-XX:HeapDumpPath={folder}")
    return shlex.join(options)


def _launched(settings: Mapping[str, str], inherit: Sequence[int], withheld: Collection[str]) -> Any:
    """The gateway to a new JVM. Its settings are in a file that only this user may read, until the JVM has read it."""
    from pyspark.java_gateway import launch_gateway

    kept = {name: os.environ.pop(name) for name in withheld if name in os.environ}
    arguments = os.environ.get(_ARGUMENTS)
    with tempfile.TemporaryDirectory(prefix="streamproof-spark-") as folder:
        file = Path(folder, "spark.properties")
        with open_new(file) as written:
            written.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
        own = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
        os.environ[_ARGUMENTS] = f"{own} {arguments or 'pyspark-shell'}"
        try:
            return launch_gateway(popen_kwargs=_Launch(pass_fds=tuple(inherit)))
        finally:
            os.environ.update(kept)
            if arguments is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = arguments


def _escaped(text: str) -> str:
    """``text`` as a key or a value of Java's properties."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    return "".join(chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)


def _guard_callbacks(gateway: Any) -> None:
    """Have the port through which the JVM calls Python's batches take the gateway's token.

    PySpark leaves it open: any process of the host could call what is registered there. The JVM's client forgets its
    own token when it is led to that port, so it is given back.
    """
    from py4j.java_gateway import JavaObject
    from pyspark.java_gateway import ensure_callback_server_started

    token = gateway.java_parameters.auth_token
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()  # noqa: SLF001
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)
