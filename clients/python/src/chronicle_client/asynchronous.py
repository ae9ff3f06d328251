"""The client that is awaited: HTTP/1.1 over asyncio's streams, a connection for each request."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from .call import TIMEOUT, Call, Head, Place, Unreachable, containing, heads, refusal
from .content import AsyncContent
from .operations import AsyncOperations

BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError)


class _Answer:
    """The head of an answer, and where its body comes from."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        self.reader = reader
        self.writer = writer
        self.status = int(first.split(" ")[1])
        self.headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)
        else:
            yield await self.reader.readexactly(int(self.headers.get("content-length", "0")))

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])


class AsyncChronicle(AsyncOperations):
    """A server of `chronicle web`, by its address and a token or by its socket."""

    def __init__(self, address: str | None = None, *, socket: str | os.PathLike[str] | None = None, token: str | None = None, timeout: float = TIMEOUT) -> None:
        self._place = Place.read(address, socket, token)
        self._timeout = timeout

    async def workspace_at(self, directory: str | os.PathLike[str]) -> str:
        """The id of the workspace that a directory is in."""
        return containing(await self.list_workspaces(), directory)

    async def __aenter__(self) -> AsyncChronicle:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        place = self._place
        if place.socket is not None:
            return await asyncio.open_unix_connection(place.socket)
        return await asyncio.open_connection(place.host, place.port, ssl=True if place.secure else None)

    async def _once(self, call: Call) -> _Answer:
        reader, writer = await self._connect()
        try:
            headers = call.headers(self._place) | {"Connection": "close"}
            lines = [f"{call.method} {call.target()} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (call.payload() or b""))
            await writer.drain()
            return _Answer(reader, writer, await reader.readuntil(b"\r\n\r\n"))
        except BaseException:
            writer.close()
            raise

    async def _send(self, call: Call) -> _Answer:
        """Asks; once more if the server went away meanwhile."""
        call = call.keyed()
        for last in (False, True):
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._once(call)
            except BROKEN as error:
                if last or not call.again:
                    raise Unreachable(f"The server did not answer: {error}") from error
        raise AssertionError("unreachable")

    async def _whole(self, answer: _Answer) -> bytes:
        try:
            async with asyncio.timeout(self._timeout):
                return await answer.body()
        except BROKEN as error:
            raise Unreachable(f"The answer broke off: {error}") from error
        finally:
            answer.writer.close()

    async def _ask(self, call: Call) -> Any:
        answer = await self._send(call)
        body = await self._whole(answer)
        if answer.status >= 400:
            raise refusal(answer.status, body)
        return json.loads(body) if body else None

    async def _content(self, call: Call) -> AsyncContent:
        answer = await self._send(call)
        if answer.status >= 400:
            raise refusal(answer.status, await self._whole(answer))
        return AsyncContent(answer.reader, answer.writer, int(answer.headers["content-length"]))

    async def _events(self, call: Call) -> AsyncIterator[Head]:
        answer = await self._send(call)
        if answer.status >= 400:
            raise refusal(answer.status, await self._whole(answer))
        text = ""
        try:
            async for piece in answer.pieces():
                *lines, text = (text + piece.decode()).split("\n")
                for head in heads(lines):
                    yield head
        except BROKEN as error:
            raise Unreachable(f"The stream broke off: {error}") from error
        finally:
            answer.writer.close()
