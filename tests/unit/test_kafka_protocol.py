"""Requests and responses byte for byte, as the message classes of kafka-clients 3.9.2 write and read them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from faults.backends import kafka_protocol
from faults.errors import FaultRefused

_HEADER = "00{:02x}000000000001001273747265616d70726f6f662d6661756c7473000000271003"
ALTER = (
    _HEADER.format(45)
    + "03696e030000000003000000020000000100000000010300000001000000020000066f7574c3a9020000012c02000000"
    "03000000"
)
"""Reassigns in/0 to replicas 2 and 1, in/1 to 1 and 2, and outé/300 to 3."""
LIST = _HEADER.format(46)[:-2] + "0203696e0300000000000000010000"
"""in/0 and in/1."""
REFUSED = "0000000100000000000000000203696e03000000000000010000000001002718546865207265706c696361732061726520777"
REFUSED += "26f6e672e000000"
DENIED = "000000010000000000001f1e436c757374657220617574686f72697a6174696f6e206661696c65642e0100"
UNDER_WAY = "0000000100000000000000010203696e02000000010400000001000000020000000302000000030200000001000000"
ELECT = "002b000200000001001273747265616d70726f6f662d6661756c747300000203696e030000000000000001000000271000"
"""The preferred leaders of in/0 and in/1."""
ELECTED = "00000001000000000000000203696e0300000000000001000000000100540278000000"
"""The preferred leader already leads in/1."""
NOT_IN_SYNC = "00000001000000000000000203696e020000000000500279000000"
DONE = "000000010000000000000000010000"


@contextmanager
def broker(answer: str) -> Iterator[tuple[str, list[str]]]:
    """A listener that sends one response. Yields its address and the requests that it received."""
    got: list[str] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as said:
            (size,) = struct.unpack(">i", said.read(4))
            got.append(said.read(size).hex())
            connection.sendall(struct.pack(">i", len(answer) // 2) + bytes.fromhex(answer))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", got
        finally:
            thread.join()


def test_replicas_are_reordered() -> None:
    with broker(DONE) as (address, got):
        kafka_protocol.alter(address, {("in", 0): [2, 1], ("in", 1): [1, 2], ("outé", 300): [3]})
    assert got == [ALTER]


def test_a_reassignment_in_progress_is_seen() -> None:
    with broker(UNDER_WAY) as (address, got):
        assert kafka_protocol.being_reassigned(address, [("in", 0), ("in", 1)]) == [("in", 1)]
    assert got == [LIST]


@pytest.mark.parametrize(("answer", "is_done"), [(ELECTED, True), (NOT_IN_SYNC, False)])
def test_the_preferred_leaders_are_elected(answer: str, *, is_done: bool) -> None:
    with broker(answer) as (address, got):
        assert kafka_protocol.elect(address, [("in", 0), ("in", 1)]) is is_done
    assert got == [ELECT]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (REFUSED, r"refused the reassignment of in/1 \(The replicas are wrong\)"),
        (DENIED, r"reassignment \(Cluster authorization failed\)"),
        (DONE[:12], "answer ends too early"),
    ],
)
def test_a_refusal_of_the_broker_is_reported(answer: str, words: str) -> None:
    with broker(answer) as (address, _), pytest.raises(FaultRefused, match=words):
        kafka_protocol.alter(address, {("in", 0): [2, 1]})


def test_the_next_address_is_used_if_one_does_not_answer() -> None:
    with broker(DONE) as (address, got):
        kafka_protocol.alter(f"127.0.0.1:1, {address}", {("in", 0): [2, 1]})
    assert len(got) == 1
    with pytest.raises(FaultRefused, match="no broker answered"):
        kafka_protocol.alter("127.0.0.1:1", {("in", 0): [2, 1]})
