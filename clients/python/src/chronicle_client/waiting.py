"""The client that waits for its answers."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from .call import TIMEOUT, Call, Head, Place, Unreachable, containing, heads, refusal
from .content import Content
from .operations import Operations


class _Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Chronicle(Operations):
    """A server of `chronicle web`, by its address and a token or by its socket.

    Connections are kept and used again; several threads may use one client.
    """

    def __init__(self, address: str | None = None, *, socket: str | os.PathLike[str] | None = None, token: str | None = None, timeout: float = TIMEOUT) -> None:
        self._place = Place.read(address, socket, token)
        self._timeout = timeout
        self._idle: list[http.client.HTTPConnection] = []

    def workspace_at(self, directory: str | os.PathLike[str]) -> str:
        """The id of the workspace that a directory is in."""
        return containing(self.list_workspaces(), directory)

    def close(self) -> None:
        """Closes what is kept open."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Chronicle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _connect(self) -> http.client.HTTPConnection:
        place = self._place
        if place.socket is not None:
            return _Unix(place.socket, self._timeout)
        kind = http.client.HTTPSConnection if place.secure else http.client.HTTPConnection
        return kind(place.host, place.port, timeout=self._timeout)

    def _send(self, call: Call) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Asks; once more if a connection that was kept open, or the server, went away meanwhile."""
        call = call.keyed()
        for last in (False, True):
            connection = self._idle.pop() if self._idle and not last else self._connect()
            try:
                connection.request(call.method, call.target(), call.payload(), call.headers(self._place))
                return connection, connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if last or not call.again:
                    raise Unreachable(f"The server did not answer: {error}") from error
        raise AssertionError("unreachable")

    def _keep(self, connection: http.client.HTTPConnection, whole: bool) -> None:
        if whole and connection.sock is not None:
            self._idle.append(connection)
        else:
            connection.close()

    def _read(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> bytes:
        try:
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"The answer broke off: {error}") from error
        self._keep(connection, True)
        return body

    def _ask(self, call: Call) -> Any:
        connection, answer = self._send(call)
        body = self._read(connection, answer)
        if answer.status >= 400:
            raise refusal(answer.status, body)
        return json.loads(body) if body else None

    def _content(self, call: Call) -> Content:
        connection, answer = self._send(call)
        if answer.status >= 400:
            raise refusal(answer.status, self._read(connection, answer))
        return Content(answer, lambda whole: self._keep(connection, whole))

    def _events(self, call: Call) -> Iterator[Head]:
        connection, answer = self._send(call)
        if answer.status >= 400:
            raise refusal(answer.status, self._read(connection, answer))
        try:
            yield from heads(line.decode().rstrip("\n") for line in answer)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"The stream broke off: {error}") from error
        finally:
            connection.close()
