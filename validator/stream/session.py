"""Starts the sidecar's Spark session, with settings for speed and security."""

from __future__ import annotations

import errno
import logging
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext, accumulators
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.version import __version__ as spark_version

from validator.config.options import secret_property
from validator.state.folder import open_new
from validator.stream import class_archive, python_daemon, scratch, shipping
from validator.stream.jars import user_cache
from validator.stream.jvm_output import OUTPUT

TUNED: Final[dict[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Records and most fact rows do not go through the JVM (`validator.stream.workers`).
    "spark.driver.memory": "1g",
    # On a cluster, fact rows go through the driver's JVM. With a limit, a large batch would fail at every start.
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
    # A lack of memory fails the task, not the JVM: the batch is then read in parts (`stream.oversized_records`).
    "spark.executor.killOnFatalError.depth": "0",
    # Only the owner may access checkpoint files: Hadoop sets permissions independently of the process's umask.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    # Spark's Kafka client waits a minute for unresponsive brokers, but a sidecar must end within 30 s.
    "spark.sql.streaming.stopTimeout": "4s",
    # PySpark's daemon, also that of an executor, forks a worker for each connection before it checks a secret. Other
    # users can connect to a port of the host, but not to a socket of this user.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Settings for one small machine. `spark.options` of the configuration may change them."""

GUARDED: Final[dict[str, str]] = {
    # With a local master Spark generates its own secret.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
"""Settings for local masters that protect Spark's ports and files from other users of the host.

With a local master no other process needs the secret. `spark.options` may change the settings."""


_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_JAVA_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
"""Matches an option that selects a garbage collector. A JVM with two such options does not start."""
_ARCHIVE: Final = "-XX:SharedArchiveFile"


class _Launch(dict[str, Any]):
    """Options with which the JVM is started, so that it ignores SIGTERM, SIGINT and SIGHUP.

    A terminal or systemd sends these signals to the whole process group, but only the sidecar acts on them. The JVM
    ends when its input is closed, by the sidecar or because the sidecar was killed. A signal that is ignored when a
    program starts stays ignored in it, also in a JVM.
    """

    def __setitem__(self, name: str, value: object) -> None:
        # The `preexec_fn` of PySpark ignores only SIGINT.
        super().__setitem__(name, _ignore_ending if name == "preexec_fn" else value)


def _ignore_ending() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


class SessionUnfit(Exception):
    """Spark cannot start with a setting of the section `spark`."""


class MasterUnreached(Exception):
    """The master of a Spark cluster did not accept the sidecar."""


_OF_A_SETTING: Final = ("Could not parse Master URL", "BindException")
"""Texts in Spark's errors about a wrong address. Other errors mean that the master did not accept the sidecar."""


def start(
    name: str,
    master: str,
    jars: Sequence[Path],
    options: Mapping[str, str],
    *,
    inherit: Sequence[int] = (),
    withheld: Collection[str] = (),
    crash_folder: Path | None = None,
    folder: Path | None = None,
) -> SparkSession:
    """Start a Spark session.

    ``inherit``: file descriptors that the JVM inherits (the state's lock). ``withheld``: environment variables that it
    does not inherit. ``crash_folder``: where it writes crash reports. ``folder``: for sockets, blocks and temporary
    files (`validator.stream.scratch`); None: one that is removed when this process ends. Settings are not passed on the
    JVM's command line, which every user of the host may read.

    Raises `MasterUnreached`, `SessionUnfit` if Spark cannot start with ``options`` on a cluster, or Java options in
    them cannot be parsed, and OSError if the disk of `spark.local.dir` is full.
    """
    local = master.startswith("local")
    settings = {**TUNED, **(GUARDED if local else {}), **options}
    folder = folder or scratch.of_this_process()
    if not scratch.chooses_elsewhere(options):
        settings["spark.local.dir"] = str(folder)
    if local:
        # Executors do not have this folder: with a cluster, sockets are in the temporary folder of each host.
        settings.setdefault("spark.python.unix.domain.socket.dir", str(scratch.for_sockets(folder)))
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
    if local and not any(os.pathsep in str(jar) for jar in jars):
        # On the class path the archive of classes has them, too, and Spark does not copy them.
        own = [*map(str, jars), *filter(None, [settings.get("spark.driver.extraClassPath")])]
        settings["spark.driver.extraClassPath"] = os.pathsep.join(own)
    else:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    log_option = shlex.quote(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}")
    properties = take_secrets(settings)
    java_options = settings.get("spark.driver.extraJavaOptions", "")
    elsewhere = [
        settings.get("spark.driver.defaultJavaOptions", ""),
        *[os.environ.get(name, "") for name in _JAVA_VARIABLES],
    ]
    # On the disk of `spark.local.dir`, libraries may not be executable.
    is_chosen = "spark.local.dir" in options or "-Djava.io.tmpdir" in " ".join([java_options, *elsewhere])
    temporary = "" if is_chosen else shlex.join([f"-Djava.io.tmpdir={folder}"])
    archive = [] if _ARCHIVE in " ".join([java_options, *elsewhere]) else class_archive.java_options(jars)
    java_options = f"{temporary} {_crash_options(crash_folder)} {for_a_small_jvm(java_options, elsewhere)}".strip()
    java_options = f"{shlex.join(archive)} {java_options}".strip()
    settings["spark.driver.extraJavaOptions"] = f"{log_option} {java_options}".strip()
    silence_py4j()
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _ignore  # type: ignore[method-assign, assignment]
    if SparkContext._gateway is None:
        gateway = _launched(settings, inherit, withheld, folder)
        for key, value in properties.items():
            gateway.jvm.java.lang.System.setProperty(key, value)
        _guard_callbacks(gateway)
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # the only access to popen_kwargs
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    handler = signal.getsignal(signal.SIGINT)
    try:
        SparkContext.getOrCreate(conf)
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)  # SparkContext's handler would interrupt a batch
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Py4JJavaError as error:
        cause = str(error.java_exception)
        if local:
            _mute(SparkContext._jvm)
            if os.strerror(errno.ENOSPC) in cause:
                local_dir = os.environ.get("SPARK_LOCAL_DIRS") or str(scratch.parent(options))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), local_dir.partition(",")[0]) from error
            raise
        if any(text in cause for text in _OF_A_SETTING):
            first_line = cause.partition("\n")[0]
            why = first_line.partition(": ")[2] or first_line
            raise SessionUnfit(f"spark.master or spark.options: no session starts on {master}: {why}") from error
        raise MasterUnreached(
            f"spark.master: {master} did not accept this sidecar; check that the master runs there, that its Spark is "
            f"{spark_version}, and that spark.authenticate and its secret are the same on both sides."
        ) from error


def _mute(jvm: Any) -> None:
    """Keep the JVM of a session that did not start from writing errors of its end after the sidecar's last line."""
    if jvm is not None:
        jvm.org.apache.logging.log4j.core.config.Configurator.setRootLevel(jvm.org.apache.logging.log4j.Level.OFF)


def _ship(settings: dict[str, str]) -> None:
    """Make Spark send its executors an archive with the packages that the workers import."""
    archive = f"{shipping.environment(user_cache())}#{shipping.FOLDER}"
    for name, value, separator in (
        ("spark.archives", archive, ","),
        ("spark.executorEnv.PYTHONPATH", f"./{shipping.FOLDER}", ":"),
    ):
        settings[name] = separator.join(filter(None, [value, settings.get(name, "")]))


def silence_py4j() -> None:
    """Suppress py4j's stack traces of failed batches and lost JVMs, which the sidecar reports in a sentence."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # py4j logs unanswered calls with the root logger.
    logging.getLogger().addFilter(_is_foreign)


def _is_foreign(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _ignore(_: object, *__: object) -> None:
    """Replaces the handler that prints a stack trace when the JVM's connection to a PySpark server breaks."""


def for_a_small_jvm(java_options: str, elsewhere: Iterable[str]) -> str:
    """``java_options``, preceded by options that reduce the CPU use of a JVM that plans batches and reads no records.

    It uses only the first JIT compiler: on two cores the second one costs more than it saves in a run of minutes. It
    collects garbage with one thread, unless ``java_options`` or options ``elsewhere`` select a collector.
    """
    # With one compiler the JVM reserves 48 MB for code. A Spark session fills that, and new code is then interpreted.
    own = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"]
    if not any(_COLLECTOR.search(given) for given in (java_options, *elsewhere)):
        own.append("-XX:+UseSerialGC")
    # If an option is given twice, the last one takes effect.
    return " ".join([*own, java_options]).strip()


def take_secrets(settings: dict[str, str]) -> dict[str, str]:
    """Remove from ``settings`` those system properties of the driver's JVM that may be secrets, and return them.

    Spark puts the default and then the extra Java options on the JVM's command line.
    """
    properties: dict[str, str] = {}
    for name in ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"):
        if name in settings:
            settings[name], secrets = split_secrets(settings[name])
            properties |= secrets
    return properties


def split_secrets(java_options: str) -> tuple[str, dict[str, str]]:
    """The options that may be on a command line, and the system properties (``-Dname=value``) that may be secrets.

    Raises `SessionUnfit` if the options cannot be parsed.
    """
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
    """Java options for a crash: no core dump, which would contain secrets; crash reports are written to ``folder``."""
    options = ["-XX:-CreateCoredumpOnCrash"]
    if folder is not None:
        options.append(f"-XX:ErrorFile={str(folder).replace('%', '%%')}/hs_err_pid%p.log")
        options.append(f"-XX:HeapDumpPath={folder}")
    return shlex.join(options)


def _launched(settings: Mapping[str, str], inherit: Sequence[int], withheld: Collection[str], folder: Path) -> Any:
    """The gateway to a new JVM. It reads its settings from a file in ``folder``, which only this user may read."""
    from pyspark.java_gateway import launch_gateway

    kept = {name: os.environ.pop(name) for name in withheld if name in os.environ}
    arguments = os.environ.get(_ARGUMENTS)
    file = folder / "spark.properties"
    with open_new(file) as written:
        written.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
    own = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
    os.environ[_ARGUMENTS] = f"{own} {arguments or 'pyspark-shell'}"
    try:
        with _ctrl_c_delayed(), OUTPUT.sink() as sink:
            return launch_gateway(popen_kwargs=_Launch(pass_fds=tuple(inherit), stdout=sink, stderr=sink))
    except PySparkRuntimeError:
        # The JVM did not start. Its lines say why, and precede the sentence about it.
        OUTPUT.drain()
        raise
    finally:
        file.unlink(missing_ok=True)
        os.environ.update(kept)
        if arguments is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = arguments


@contextmanager
def _ctrl_c_delayed() -> Iterator[None]:
    """Raise the KeyboardInterrupt of a first Ctrl-C at the end of the context, that of a second one at once.

    An interrupted launch can leave a JVM that never ends. A launch that hangs can still be interrupted. A handler
    that the caller has set stays, because it does not raise KeyboardInterrupt.
    """
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not raises or threading.current_thread() is not threading.main_thread():
        yield
        return
    is_interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        del number, frame
        if is_interrupted:
            raise KeyboardInterrupt
        is_interrupted = True

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if is_interrupted:
            # This replaces an error of the launch, because Ctrl-C may have caused that error.
            raise KeyboardInterrupt


def _escaped(text: str) -> str:
    """``text`` as a key or value of a Java properties file."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    return "".join(chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)


def _guard_callbacks(gateway: Any) -> None:
    """Require the gateway's token on the port through which the JVM calls Python's batch function.

    PySpark does not protect this port: any process on the host could call the registered functions. The JVM's client
    loses its token when PySpark redirects it to the port, so the token is set again.
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
