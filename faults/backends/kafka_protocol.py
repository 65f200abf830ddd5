"""Three requests of Kafka's protocol that the client lacks: alter and list partition reassignments (KIP-455), and elect
leaders. confluent-kafka 2.16 has the latter, but its binding fails with a SystemError for every argument.

Each request goes to the first address that answers; the broker forwards it to the controller. The request versions are
supported by every broker from 2.4 on. Plain listeners only. Fields: https://kafka.apache.org/protocol
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from faults.errors import FaultRefused, Unreachable

Partition = tuple[str, int]
"""Topic and partition number."""
_ALTER: Final = (45, 0)
_LIST: Final = (46, 0)
_ELECT: Final = (43, 2)
"""API key and version, as for the two requests above."""
_PREFERRED: Final = b"\0"
_NOT_NEEDED: Final = 84
"""Error code ELECTION_NOT_NEEDED: the preferred replica leads already."""
_CLIENT: Final = b"streamproof-faults"
_SECONDS_MAX: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 << 20
_NO_TAGS: Final = b"\0"
_TIMEOUT: Final = struct.pack(">i", round(_SECONDS_MAX * 1000))


def alter(addresses: str, replicas: Mapping[Partition, Sequence[int]]) -> None:
    """Set the replicas of each partition, and their order: the first is the preferred leader. Raises FaultRefused."""
    orders = {
        (topic, number): _int32(number) + _array([_int32(replica) for replica in order]) + _NO_TAGS
        for (topic, number), order in replicas.items()
    }
    answer = _call(addresses, _ALTER, _TIMEOUT + _by_topic(orders))
    answer.check("the reassignment")
    for _ in answer.each():
        topic = answer.text()
        for _ in answer.each():
            answer.check(f"the reassignment of {topic}/{answer.int32()}")
            answer.tags()
        answer.tags()


def being_reassigned(addresses: str, partitions: Sequence[Partition]) -> list[Partition]:
    """The ``partitions`` that are being reassigned. Raises FaultRefused."""
    topics = _by_topic({(topic, number): _int32(number) for topic, number in partitions})
    answer = _call(addresses, _LIST, _TIMEOUT + topics)
    answer.check("the request for the list of reassignments")
    found = []
    for _ in answer.each():
        topic = answer.text()
        for _ in answer.each():
            found.append((topic, answer.int32()))
            for _ in ("replicas", "adding", "removing"):
                for _ in answer.each():
                    answer.int32()
            answer.tags()
        answer.tags()
    return found


def elect(addresses: str, partitions: Sequence[Partition]) -> bool:
    """Elect the first replica of each partition. Returns whether it leads all of them now. Raises FaultRefused."""
    topics = _by_topic({(topic, number): _int32(number) for topic, number in partitions})
    answer = _call(addresses, _ELECT, _PREFERRED + topics + _TIMEOUT)
    if answer.int16():
        return False
    is_done = True
    for _ in answer.each():
        answer.text()
        for _ in answer.each():
            answer.int32()
            is_done &= answer.int16() in (0, _NOT_NEEDED)
            answer.text()
            answer.tags()
        answer.tags()
    return is_done


class _Answer:
    """A broker's response, read field by field."""

    def __init__(self, address: str, content: bytes) -> None:
        self._address, self._content, self._at = address, content, 0

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def text(self) -> str:
        """A compact string; empty if it is null."""
        length = max(0, self._varint() - 1)
        return self._bytes(length).decode()

    def each(self) -> Iterator[int]:
        """Reads the length of a compact array and iterates over its indices. The caller reads each item."""
        return iter(range(max(0, self._varint() - 1)))

    def tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self._bytes(self._varint())

    def check(self, what: str) -> None:
        """Read an error code and a message. Raises FaultRefused if the code is an error."""
        code, text = self.int16(), self.text()
        if code:
            raise FaultRefused(f"{self._address}: the broker refused {what} ({text.rstrip('.') or f'error {code}'}).")

    def _number(self, form: str, size: int) -> int:
        return int(struct.unpack(form, self._bytes(size))[0])

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._bytes(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _bytes(self, size: int) -> bytes:
        taken = self._content[self._at : self._at + size]
        if len(taken) < size:
            raise FaultRefused(f"{self._address}: the broker's answer ends too early; is it a Kafka broker?")
        self._at += size
        return taken


def _call(addresses: str, request_of: tuple[int, int], body: bytes) -> _Answer:
    """The response, after its header and the throttle time. Raises Unreachable if no address answers."""
    header = struct.pack(">hhih", *request_of, 1, len(_CLIENT)) + _CLIENT + _NO_TAGS
    request = header + body + _NO_TAGS
    why = "no address"
    for address in addresses.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _SECONDS_MAX) as connection:
                connection.sendall(_int32(len(request)) + request)
                answer = _Answer(address, _framed(connection))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            continue
        answer.int32()  # the correlation id
        answer.tags()
        answer.int32()  # the throttle time
        return answer
    raise Unreachable(f"{addresses}: no broker answered over a PLAINTEXT connection ({why}).")


def _framed(connection: socket.socket) -> bytes:
    def exactly(size: int) -> bytes:
        content = b""
        while len(content) < size:
            received = connection.recv(size - len(content))
            if not received:
                raise ConnectionResetError("the connection was closed")
            content += received
        return content

    size = struct.unpack(">i", exactly(4))[0]
    if not 0 <= size <= _ANSWER_BYTES_MAX:
        raise ValueError("the response is not from a Kafka broker")
    return exactly(size)


def _by_topic(parts: Mapping[Partition, bytes]) -> bytes:
    topics = dict.fromkeys(topic for topic, _ in parts)
    return _array(
        [_text(topic) + _array([part for (of, _), part in parts.items() if of == topic]) + _NO_TAGS for topic in topics]
    )


def _int32(number: int) -> bytes:
    return struct.pack(">i", number)


def _text(value: str) -> bytes:
    content = value.encode()
    return _varint(len(content) + 1) + content


def _array(items: Sequence[bytes]) -> bytes:
    return _varint(len(items) + 1) + b"".join(items)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
