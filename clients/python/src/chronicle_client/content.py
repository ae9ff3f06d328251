"""A file's bytes while they come."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType

from .call import Unreachable

PIECE = 64 << 10


class Content:
    """Bytes that are read while they come: all at once with `read`, or piece by piece. A context manager."""

    def __init__(self, answer: http.client.HTTPResponse, release: Callable[[bool], None]) -> None:
        self._answer = answer
        self._release = release
        self._left = int(answer.headers["Content-Length"])
        self.size = self._left

    def read(self, most: int | None = None) -> bytes:
        """The next bytes, or all that are left."""
        wanted = self._left if most is None else min(most, self._left)
        pieces = []
        while wanted:
            piece = self._answer.read(min(PIECE, wanted))
            if not piece:
                raise Unreachable("The content broke off")
            self._left -= len(piece)
            wanted -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read(PIECE):
            yield piece

    def close(self) -> None:
        """Reads nothing more."""
        self._release(self._left == 0)

    def __enter__(self) -> Content:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncContent:
    """The same to be awaited; an asynchronous context manager."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
        self._reader = reader
        self._writer = writer
        self._left = size
        self.size = size

    async def read(self, most: int | None = None) -> bytes:
        """The next bytes, or all that are left."""
        wanted = self._left if most is None else min(most, self._left)
        try:
            found = await self._reader.readexactly(wanted)
        except asyncio.IncompleteReadError as error:
            raise Unreachable("The content broke off") from error
        self._left -= wanted
        return found

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.read(PIECE):
            yield piece

    async def close(self) -> None:
        """Reads nothing more."""
        self._writer.close()

    async def __aenter__(self) -> AsyncContent:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
