"""Kafka's default partitioning of a key: murmur2, as in the Java client.

Source: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey``
(``toPositive(murmur2(key)) % partitions``). The generator computes the partition once per key and sets it on each
record, so that the journal has it before the delivery report. librdkafka chooses the same partition with
``partitioner=murmur2_random``.
"""

from __future__ import annotations

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit murmur2 hash of ``data`` with Kafka's seed."""
    h = (0x9747B28C ^ len(data)) & _MASK
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's default partitioner gives ``key``."""
    assert partitions > 0
    return (murmur2(key) & 0x7FFFFFFF) % partitions
