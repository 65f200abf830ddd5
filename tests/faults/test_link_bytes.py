"""A link keeps every byte and the order of bytes under any impairment."""

from __future__ import annotations

import asyncio
import random

import pytest

from faults.backends.impairment import WAYS, Impairment
from faults.backends.link import Link
from testbed.ports import free_port
from tests.faults.stage import WITHIN_SECONDS

IMPAIRMENTS = (
    Impairment(),
    Impairment(delay_seconds=0.02, jitter_seconds=0.01),
    Impairment(ways=("to_client",), delay_seconds=0.05),
    Impairment(is_blocked=True),
    Impairment(ways=("to_upstream",), is_blocked=True),
    Impairment(bytes_per_second=2_000_000),
    Impairment(ways=("to_client",), bytes_per_second=500_000),
)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(1 << 16):
        writer.write(content)
        await writer.drain()
    writer.close()


async def _exchange(port: int, content: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        for at in range(0, len(content), 10_007):
            writer.write(content[at : at + 10_007])
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    got = await reader.read(-1)
    await sending
    writer.close()
    return got


@pytest.mark.parametrize("seed", range(5))
def test_bytes_survive_any_impairments(seed: int) -> None:
    draw = random.Random(seed)
    contents = [draw.randbytes(draw.randrange(1, 400_000)) for _ in range(3)]

    async def scene() -> list[bytes]:
        upstream = await asyncio.start_server(_echo, "127.0.0.1", 0)
        port = free_port()
        link = Link(f"127.0.0.1:{port}", f"127.0.0.1:{upstream.sockets[0].getsockname()[1]}")
        await link.start()
        exchanges = [asyncio.create_task(_exchange(port, content)) for content in contents]
        for _ in range(20):
            link.impair(draw.choice(IMPAIRMENTS))
            await asyncio.wait(exchanges, timeout=draw.uniform(0, 0.03))
        link.impair(Impairment())
        got = await asyncio.wait_for(asyncio.gather(*exchanges), WITHIN_SECONDS)
        await link.stop()
        upstream.close()
        return got

    assert asyncio.run(scene()) == contents


def test_a_changed_impairment_releases_waiting_bytes() -> None:
    async def scene() -> list[bool]:
        upstream = await asyncio.start_server(_echo, "127.0.0.1", 0)
        port = free_port()
        link = Link(f"127.0.0.1:{port}", f"127.0.0.1:{upstream.sockets[0].getsockname()[1]}")
        await link.start()
        arrived = []
        for impairment in (
            Impairment(delay_seconds=600.0),
            Impairment(is_blocked=True),
            Impairment(ways=WAYS[:1], bytes_per_second=1),
        ):
            link.impair(impairment)
            exchange = asyncio.create_task(_exchange(port, b"x" * 100))
            done, _ = await asyncio.wait({exchange}, timeout=0.1)
            link.impair(Impairment())
            arrived += [bool(done), await asyncio.wait_for(exchange, WITHIN_SECONDS) == b"x" * 100]
        await link.stop()
        upstream.close()
        return arrived

    assert asyncio.run(scene()) == [False, True] * 3
