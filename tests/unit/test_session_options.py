"""The options of the sidecar's Spark session and of its JVM."""

from __future__ import annotations

import logging
import socket
import struct
import threading

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import ERROR

from validator.config.options import Options
from validator.stream.session import SessionUnfit, for_a_small_jvm, silence_py4j, split_secrets, take_secrets


@pytest.mark.parametrize(
    ("given", "elsewhere", "expected"),
    [
        ("", [], "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"),
        ("-Xss4m", ["-Dgc=x"], "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss4m"),
        ("-XX:+UseG1GC -Xss4m", [""], "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseG1GC -Xss4m"),
        ("-Xss4m", ["", "-XX:+UseSerialGC"], "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Xss4m"),
    ],
)
def test_a_chosen_garbage_collector_stays_the_only_one(given: str, elsewhere: list[str], expected: str) -> None:
    assert for_a_small_jvm(given, elsewhere) == expected


def test_java_properties_that_may_be_secrets_leave_the_command_line() -> None:
    given = "-Xss4m '-Dnote=a b' -Djavax.net.ssl.trustStorePassword='p w' -Dplain=1"
    kept, properties = split_secrets(given)
    assert kept == "-Xss4m '-Dnote=a b' -Dplain=1"
    assert properties == {"javax.net.ssl.trustStorePassword": "p w"}
    assert split_secrets('-Xss4m -Da="b c"') == ('-Xss4m -Da="b c"', {})
    with pytest.raises(SessionUnfit, match="a quote"):
        split_secrets("-Da='b")


def test_secrets_leave_both_options_that_spark_writes_on_the_command_line() -> None:
    default, extra = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
    settings = {default: "-Da.passwd=1 -Db.pwd=2 -Dplain=1", extra: "-Da.passwd=3 -Dc.passphrase=4 -Xss4m", "x": "y"}
    assert take_secrets(settings) == {"a.passwd": "3", "b.pwd": "2", "c.passphrase": "4"}, "the extra options win"
    assert settings == {default: "-Dplain=1", extra: "-Xss4m", "x": "y"}
    assert take_secrets({"x": "y"}) == {}


def test_printed_options_hide_the_secrets_among_java_options() -> None:
    given = "-Xss4m '-Dnote=a b' -Djavax.net.ssl.trustStorePassword='p w' -Dplain=1"
    extra, executor = "spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"
    shown = Options({extra: given, executor: "-Da.passwd='x", "spark.driver.memory": "1g", "c.pwd": "1"}).shown()
    assert shown == {
        extra: "-Xss4m '-Dnote=a b' -Djavax.net.ssl.trustStorePassword=*** -Dplain=1",
        executor: "***",
        "spark.driver.memory": "1g",
        "c.pwd": "***",
    }
    assert Options({extra: '-Da="b c"'}).shown() == {extra: '-Da="b c"'}


def test_py4j_logs_no_trace_of_a_jvm_that_died_during_a_call(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    filters = list(root.filters)
    silence_py4j()
    try:
        with socket.create_server(("127.0.0.1", 0)) as jvm:
            threading.Thread(target=_reset_the_first_call, args=(jvm,), daemon=True).start()
            client = GatewayClient(port=jvm.getsockname()[1])
            assert client.send_command("r\nu\nx\ne\n", retry=False) == ERROR
        logging.getLogger().error("of somebody else")
        assert caplog.messages == ["of somebody else"]
    finally:
        root.filters = filters


def _reset_the_first_call(jvm: socket.socket) -> None:
    connection, _ = jvm.accept()
    connection.recv(1)
    # Closing without lingering resets the connection.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
