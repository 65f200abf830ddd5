"""One TCP link through the proxy: two pumps for each connection, which apply the impairment to its bytes.

A pump reads into a bounded queue and writes each chunk when it is due. A changed impairment wakes all pumps, so that
healing takes effect at once, also for queued bytes. Bytes are never dropped, reordered or altered: over TCP, an
application sees loss as delay.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from faults.backends.impairment import WAYS, Impairment, LinkStatus, Way

_CHUNK_BYTES: Final = 64 << 10
_QUEUE_CHUNKS: Final = 256
"""At most 16 MiB wait in each direction of a connection. Then reading pauses, as with a full TCP window."""
_SLICES_PER_SECOND: Final = 20
_CONNECT_SECONDS: Final = 10.0
_ABORT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER value with which a close resets the connection."""

_Chunk = tuple[float, float, bytes]
"""Arrival time, share of the jitter (-1 to 1), bytes. Empty bytes are the end of the stream."""


class Link:
    """Listens for clients and forwards their connections to the upstream."""

    def __init__(self, listen: str, upstream: str) -> None:
        self.listen, self.upstream = listen, upstream
        self.impairment = Impairment()
        self._changed = asyncio.Event()
        self._free_at: dict[Way, float] = dict.fromkeys(WAYS, 0.0)
        self._jitter = random.Random()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._probe_port = 0
        self._probe_bytes = 0

    async def start(self) -> None:
        """Start to listen. Raises OSError if the address is in use."""
        echo = await asyncio.start_server(self._echo, "127.0.0.1", 0)
        echo_port = echo.sockets[0].getsockname()[1]
        host, port = _split(self.listen)
        upstream = _split(self.upstream)
        main = await asyncio.start_server(lambda r, w: self._lead(r, w, upstream), host, port)
        probe = await asyncio.start_server(lambda r, w: self._lead(r, w, ("127.0.0.1", echo_port)), "127.0.0.1", 0)
        self._probe_port = probe.sockets[0].getsockname()[1]
        self._servers = [echo, main, probe]

    async def stop(self) -> None:
        """Stop listening and abort all connections."""
        for server in self._servers:
            server.close()
        for writer in list(self._open):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def impair(self, impairment: Impairment) -> None:
        """Replace the impairment."""
        self.impairment = impairment
        self._free_at = dict.fromkeys(WAYS, 0.0)
        self._changed.set()
        self._changed = asyncio.Event()
        if impairment.is_reset:
            for writer in list(self._open):
                _reset(writer)

    def status(self) -> LinkStatus:
        """The present status."""
        return LinkStatus(
            listen=self.listen,
            upstream=self.upstream,
            probe_port=self._probe_port,
            probe_bytes=self._probe_bytes,
            connections=len(self._open) // 2,
            impairment=self.impairment,
        )

    async def _lead(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: tuple[str, int]
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        ends = [writer]
        end_with: Callable[[asyncio.StreamWriter], None] = (
            _reset  # if one side ends without an orderly close, the other one is reset
        )
        try:
            if not self.impairment.is_reset:
                far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(*upstream), _CONNECT_SECONDS)
                ends.append(far_writer)
                self._open.add(far_writer)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(reader, far_writer, "to_upstream"))
                    both.create_task(self._pump(far_reader, writer, "to_client"))
                end_with = asyncio.StreamWriter.close
        except* OSError:
            pass
        finally:
            for end in ends:
                self._open.discard(end)
                end_with(end)
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        queue: asyncio.Queue[_Chunk] = asyncio.Queue(_QUEUE_CHUNKS)

        async def read() -> None:
            while True:
                content = await reader.read(_CHUNK_BYTES)
                await queue.put((asyncio.get_running_loop().time(), self._jitter.uniform(-1, 1), content))
                if not content:
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            while (chunk := await queue.get())[2]:
                await self._write(chunk, writer, way)
            await self._until_due(chunk, way)
            with suppress(OSError):
                writer.write_eof()

    async def _write(self, chunk: _Chunk, writer: asyncio.StreamWriter, way: Way) -> None:
        await self._until_due(chunk, way)
        left = chunk[2]
        while left:
            rate = self._rate(way)
            size = len(left) if rate is None else max(1, min(len(left), rate // _SLICES_PER_SECOND))
            if rate is not None and not await self._turn(way, size / rate):
                continue  # the impairment changed: compute the rate again
            writer.write(left[:size])
            await writer.drain()
            left = left[size:]

    def _rate(self, way: Way) -> int | None:
        return self.impairment.bytes_per_second if way in self.impairment.ways else None

    async def _turn(self, way: Way, seconds: float) -> bool:
        """Occupy the link, shared by all connections, for its next free ``seconds``. False: the impairment changed."""
        now = asyncio.get_running_loop().time()
        self._free_at[way] = max(self._free_at[way], now) + seconds
        return not await self._changes_within(self._free_at[way] - now)

    async def _until_due(self, chunk: _Chunk, way: Way) -> None:
        came, share, _ = chunk
        while way in self.impairment.ways:
            if self.impairment.is_blocked:
                await self._changed.wait()
                continue
            due = came + self.impairment.delay_seconds + share * self.impairment.jitter_seconds
            left = due - asyncio.get_running_loop().time()
            if left <= 0 or not await self._changes_within(left):
                return

    async def _changes_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await reader.read(_CHUNK_BYTES):
                self._probe_bytes += len(content)
                writer.write(content)
                await writer.drain()
        writer.close()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _reset(writer: asyncio.StreamWriter) -> None:
    peer = writer.get_extra_info("socket")
    with suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    writer.transport.abort()
