"""Bytes of the real serializers of Kafka's Java client and of Kafka Streams are read as what they were written from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

import testbed.engines
from validator.model.field_values import TypedTime, Windowed
from validator.model.schemas import NO_SCHEMAS
from validator.settings.topics import Input
from validator.stream import jars

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

SOURCE: Final = """\
import java.util.HexFormat;
import java.util.UUID;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.internals.*;

public class Written {
    static <T> void write(Serializer<T> serializer, T value) {
        System.out.println(HexFormat.of().formatHex(serializer.serialize("topic", value)));
    }
    public static void main(String[] arguments) {
        write(new LongSerializer(), -5L);
        write(new IntegerSerializer(), -5);
        write(new ShortSerializer(), (short) -5);
        write(new FloatSerializer(), 0.1f);
        write(new DoubleSerializer(), -0.1);
        write(new BooleanSerializer(), true);
        write(new UUIDSerializer(), new UUID(1, 2));
        write(new StringSerializer(), "é");
        var time = new Windowed<>("a@b", new TimeWindow(1767225600000L, 1767225615000L));
        write(new TimeWindowedSerializer<>(new StringSerializer()), time);
        write(new TimeWindowedSerializer<>(new LongSerializer()), new Windowed<>(7L, time.window()));
        var session = new Windowed<>("a@b", new SessionWindow(1767225600000L, 1767225612345L));
        write(new SessionWindowedSerializer<>(new StringSerializer()), session);
        write(new StringSerializer(), time.toString());
    }
}
"""
START: Final = TypedTime(1767225600000, "ms")
END: Final = TypedTime(1767225615000, "ms")
WANTED: Final[list[tuple[Any, Any]]] = [
    ("long", -5),
    ("int", -5),
    ("short", -5),
    ("float", 0.1),
    ("double", -0.1),
    ("boolean", True),
    ("uuid", "00000000-0000-0001-0000-000000000002"),
    ("text", "é"),
    ({"kind": "time_windowed", "size": "15s"}, Windowed("a@b", START, END)),
    ({"kind": "time_windowed", "inner": "long"}, Windowed(7, START, None)),
    ("session_windowed", Windowed("a@b", START, TypedTime(1767225612345, "ms"))),
    ("windowed_text", Windowed("a@b", START, END)),
]


def test_the_bytes_of_kafkas_serializers_are_read(tmp_path: Path) -> None:
    libraries = jars.resolve(Path(testbed.engines.__file__).with_name("kafka_streams.lock"))
    source = tmp_path / "Written.java"
    source.write_text(SOURCE, encoding="utf-8")
    command = [str(jars.find_java().executable), "-cp", os.pathsep.join(map(str, libraries)), str(source)]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": "-Dfile.encoding=UTF-8"}
    ended = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    for line, (given, wanted) in zip(ended.stdout.split(), WANTED, strict=True):
        fields = {"id": "$offset", "key": "$offset", "event_time": "$timestamp"}
        entry = Input.model_validate({"topic": "i", "format": given, "fields": fields})
        assert entry.format.reader("value", NO_SCHEMAS).value(bytes.fromhex(line)) == wanted, given
