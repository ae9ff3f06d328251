"""One request as a value, and what answers mean: the half that both clients share."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict
from urllib.parse import quote, urlencode, urlsplit

from . import shapes

PREFIX = "/api/v1/"
TIMEOUT = 60.0


class Refused(Exception):
    """The server did not do it, and says why."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code", "io"))
        self.hint: str | None = problem.get("hint")
        self.causes: list[str] = list(problem.get("causes", []))
        title = str(problem.get("title", f"The server answered {status}"))
        super().__init__(": ".join([title, *self.causes]))


class Unreachable(Exception):
    """Nobody answered, or the answer broke off."""


class Head(TypedDict):
    """Where a log ends now."""

    schema: int
    head_seq: int


@dataclass(frozen=True)
class Place:
    """Where a server is, and what lets this program in."""

    host: str
    port: int
    secure: bool
    socket: str | None
    token: str | None

    @staticmethod
    def read(address: str | None, socket: str | os.PathLike[str] | None, token: str | None) -> Place:
        if (address is None) == (socket is None):
            raise ValueError("Give either an address or a socket")
        if socket is not None:
            return Place("localhost", 0, False, os.fspath(socket), token)
        url = urlsplit(str(address) if "//" in str(address) else f"http://{address}")
        if url.scheme not in ("http", "https") or url.hostname is None:
            raise ValueError(f"{address} is not an address like 127.0.0.1:8765")
        secure = url.scheme == "https"
        return Place(url.hostname, url.port or (443 if secure else 80), secure, None, token)

    @property
    def name(self) -> str:
        """What the `Host` header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.socket else f"{host}:{self.port}"


@dataclass(frozen=True)
class Call:
    """What is asked. Whatever changes something has a key, so that asking again does nothing twice."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    changes: bool = False
    key: str | None = None
    part: tuple[int, int | None] | None = None

    @property
    def again(self) -> bool:
        """Whether it may be asked twice."""
        return self.method == "GET" or self.changes

    def keyed(self) -> Call:
        """The same with a key, if it needs one."""
        if not self.changes or self.key:
            return self
        return Call(self.method, self.path, self.query, self.body, True, secrets.token_hex(16), self.part)

    def target(self) -> str:
        words = {True: "true", False: "false"}
        pairs = [(name, words.get(value, value) if isinstance(value, bool) else value) for name, value in self.query.items() if value is not None]
        target = PREFIX + "/".join(quote(part, safe="") for part in self.path)
        return f"{target}?{urlencode(pairs)}" if pairs else target

    def payload(self) -> bytes | None:
        if self.body is None:
            return None
        return json.dumps({name: value for name, value in self.body.items() if value is not None}).encode()

    def headers(self, place: Place) -> dict[str, str]:
        headers = {"Host": place.name, "X-Chronicle": "1"}
        if place.token is not None:
            headers["Authorization"] = f"Bearer {place.token}"
        payload = self.payload()
        if payload is not None:
            headers["Content-Type"] = "application/json"
        if self.method != "GET":
            headers["Content-Length"] = str(len(payload or b""))
        if self.key:
            headers["Idempotency-Key"] = self.key
        if self.part:
            first, last = self.part
            headers["Range"] = f"bytes={first}-{'' if last is None else last}"
        return headers


def refusal(status: int, body: bytes) -> Refused:
    """What an answer that is none says."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    return Refused(status, problem if isinstance(problem, dict) else {})


def heads(lines: Iterable[str]) -> Iterator[Head]:
    """The events in lines of a stream."""
    for line in lines:
        if line.startswith("data: "):
            head: Head = json.loads(line[len("data: ") :])
            yield head


def containing(found: shapes.Workspaces, directory: str | os.PathLike[str]) -> str:
    """The id of the workspace that a directory is in."""
    path = os.path.realpath(directory)
    fits = [it for it in found["workspaces"] if path == it["root"] or path.startswith(it["root"].rstrip("/") + "/")]
    if not fits:
        raise Refused(404, {"code": "no_workspace", "title": f"{path} is in no workspace", "hint": "Adopt the directory with: chronicle init"})
    return max(fits, key=lambda it: len(it["root"]))["id"]
