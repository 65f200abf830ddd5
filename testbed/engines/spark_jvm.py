"""Options and log of Spark's JVMs, whose driver, master, workers and executors share one configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from testbed import gc_log
from testbed.engines.effective import CLIENT_LOGGERS

_JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    # A run of minutes is too short for the second compiler to pay off.
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=256m",
    "-Xss4m",
    "-XX:-UsePerfData",
)
_LOG_FILE: Final = "log4j2.properties"
_LOG: Final = """rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
# A batch that takes longer than the trigger interval is a fact of a small machine.
logger.trigger.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.trigger.level = error
"""
_CLUSTER_LOGGERS: Final = ("org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker")


def java_options(folder: Path) -> tuple[str, ...]:
    """Return the options of a JVM with its files in ``folder``."""
    scratch, log = f"-Djava.io.tmpdir={folder / 'tmp'}", f"-Dlog4j2.configurationFile={folder / _LOG_FILE}"
    return (*_JAVA_OPTIONS, scratch, log, gc_log.option(folder))


def write_log_settings(folder: Path) -> None:
    """Write the configuration of the log; before the first JVM starts."""
    (folder / "tmp").mkdir(exist_ok=True)
    text = _LOG + "".join(_log_at_info(name) for name in (*CLIENT_LOGGERS, *_CLUSTER_LOGGERS))
    (folder / _LOG_FILE).write_text(text, encoding="utf-8")


def _log_at_info(name: str) -> str:
    key = name.rpartition(".")[2]
    return f"logger.{key}.name = {name}\nlogger.{key}.level = info\n"
