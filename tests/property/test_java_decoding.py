"""The decoder of one record against Java: Jackson decides what is JSON, java.time what is a time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.property.test_plain_events import SHAPES, config, odd_records
from tests.property.test_spark_core import spark
from validator.codecs.one_record import Record, RecordDecoder, Undecodable
from validator.codecs.times import instant_of_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]
pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

OWN_LIMITS = ("is nested more than", "holds a number of more than", "is not UTF-8", "begins with a byte order mark")
JACKSONS_LONGEST_NAME = 50_000


@pytest.mark.full
def test_jackson_accepts_the_same_values_as_json(spark: SparkSession) -> None:
    jackson = spark._jvm.com.fasterxml.jackson  # type: ignore[union-attr]
    mapper = jackson.databind.ObjectMapper()
    mapper.enable(jackson.databind.DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
    shape = SHAPES["flat, ISO times"]
    decoder = RecordDecoder(config(shape).inputs[0])
    compared = {True: 0, False: 0}
    for value in random.Random(1).sample(odd_records(shape, 5), 700):
        found = decoder.decode(Record(value))
        of_value = isinstance(found, Undecodable) and found.field is None
        if (of_value and found.reason.startswith(OWN_LIMITS)) or len(value) > JACKSONS_LONGEST_NAME:
            continue
        assert is_object(mapper, value.decode()) != of_value, (value, found)
        compared[of_value] += 1
    assert min(compared.values()) > 100, compared


def is_object(mapper: Any, text: str) -> bool:
    try:
        return bool(mapper.readTree(text).isObject())
    except Py4JJavaError:
        return False


def test_times_written_by_java_decode_to_the_same_instants(spark: SparkSession) -> None:
    time = spark._jvm.java.time  # type: ignore[union-attr]
    chance = random.Random(2)
    for _ in range(60):
        seconds = chance.choice([chance.randrange(-62_000_000_000, 250_000_000_000), chance.randrange(10**6) * 3600])
        nanos = chance.choice(
            [0, chance.randrange(1000) * 10**6, chance.randrange(10**6) * 1000, chance.randrange(10**9)]
        )
        instant = time.Instant.ofEpochSecond(seconds, nanos)
        wanted = seconds * 1_000_000 + nanos // 1_000
        offset = time.ZoneOffset.ofTotalSeconds(chance.randrange(-18 * 60, 18 * 60 + 1) * 60)
        zone = time.ZoneId.of(chance.choice(["UTC", "Europe/Paris", "Asia/Kolkata", "America/Argentina/Buenos_Aires"]))
        for written in (
            instant,
            instant.atOffset(offset),
            instant.atOffset(time.ZoneOffset.UTC).toLocalDateTime(),
            instant.atOffset(time.ZoneOffset.UTC),
            instant.atZone(zone),
        ):
            text = written.toString()
            if text.count(":") > 3:
                continue  # a historical offset with seconds
            assert instant_of_text(text) == wanted, text
