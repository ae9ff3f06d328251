#!/usr/bin/env python3
"""Writes the shapes and operations of both clients from docs/openapi.json.

usage: generate.py [--check]; with it nothing is written, and what is not current is named.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PREFIX = "/api/v1/"
NOTE = "Made by clients/generate.py from docs/openapi.json. Do not edit."
Json = dict[str, Any]


@dataclass
class Operation:
    """One operation, with what each client has to know of it."""

    name: str
    words: str
    method: str
    parts: list[str]
    path: list[Json]
    query: list[Json]
    body: str | None
    gives: str
    changes: bool

    @staticmethod
    def read(path: str, method: str, said: Json) -> Operation:
        of = lambda place: [it for it in said["parameters"] if it["in"] == place]  # noqa: E731
        answer = next(said["responses"][status] for status in ("200", "204") if status in said["responses"])
        content = answer.get("content", {})
        if "application/json" in content:
            gives = reference(content["application/json"]["schema"]) or "Anything"
        else:
            gives = {"application/octet-stream": "content", "text/event-stream": "events"}.get(next(iter(content), ""), "nothing")
        body = said.get("requestBody")
        return Operation(
            said["operationId"], said["summary"], method.upper(), path.removeprefix(PREFIX).split("/"), of("path"), of("query"),
            reference(body["content"]["application/json"]["schema"]) if body else None, gives, bool(of("header")),
        )


def reference(schema: Json) -> str | None:
    found = schema.get("$ref")
    return found.rsplit("/", 1)[1] if found else None


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


# --- types ------------------------------------------------------------------------------------

@dataclass
class Tongue:
    """How a language writes types."""

    simple: dict[str, str]
    none: str
    many: str
    anything: str
    table: str
    choice: str

    def write(self, schema: Json | bool) -> str:
        if schema is True or schema == {}:
            return self.anything
        assert isinstance(schema, dict)
        if name := reference(schema):
            return name
        if options := schema.get("anyOf") or schema.get("oneOf"):
            if all("const" in option for option in options):
                return self.choice % (", " if "[" in self.choice else " | ").join(json.dumps(option["const"]) for option in options)
            return " | ".join(self.write(option) for option in options)
        if "enum" in schema:
            return self.choice % (", " if "[" in self.choice else " | ").join(json.dumps(value) for value in schema["enum"])
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return " | ".join(self.kind(kind, schema) for kind in kinds)

    def kind(self, kind: str, schema: Json) -> str:
        if kind == "array":
            items = [schema["items"]] if "items" in schema else schema["prefixItems"]
            return self.many % " | ".join(dict.fromkeys(self.write(item) for item in items))
        if kind == "object":
            return self.table % self.write(schema.get("additionalProperties", True))
        return self.none if kind == "null" else self.simple[kind]


PYTHON = Tongue({"string": "str", "integer": "int", "boolean": "bool", "number": "float"}, "None", "list[%s]", "Any", "dict[str, %s]", "Literal[%s]")
TYPESCRIPT = Tongue({"string": "string", "integer": "number", "boolean": "boolean", "number": "number"}, "null", "Array<%s>", "unknown", "Record<string, %s>", "%s")


def one_line(words: str) -> str:
    return " ".join(words.split())


# --- Python -----------------------------------------------------------------------------------

def python_shapes(schemas: dict[str, Json]) -> str:
    out = [f'"""The shapes of the API.\n\n{NOTE}\n"""', "", "from __future__ import annotations", "", "from typing import Any, Literal, NotRequired, TypedDict", ""]
    out += ["Anything = dict[str, Any]", ""]
    for name, schema in schemas.items():
        if "properties" not in schema:
            out += [f"{name} = {PYTHON.write(schema)}", f'"""{one_line(schema.get("description", ""))}"""', ""]
            continue
        out += ["", *python_shape(name, schema), ""]
    return "\n".join(out).rstrip() + "\n"


def python_shape(name: str, schema: Json) -> list[str]:
    needed = schema.get("required", [])
    fields = []
    for field, given in schema["properties"].items():
        words = PYTHON.write(given)
        fields.append((field, words if field in needed else f"NotRequired[{words}]", one_line(given.get("description", ""))))
    words = one_line(schema.get("description", ""))
    if any(keyword.iskeyword(field) for field, _, _ in fields):
        # A field that is a word of the language needs the other way of writing.
        quoted = [f'        "{field}": {kind_of_quoted(kind)},  # {words}' for field, kind, words in fields]
        return [f"# {words}", f"{name} = TypedDict(", f'    "{name}",', "    {", *quoted, "    },", ")"]
    lines = [f"class {name}(TypedDict):", f'    """{words}"""', ""]
    for field, kind, told in fields:
        lines += [f"    {field}: {kind}", f'    """{told}"""'.replace("\\", "\\\\")]
    return lines


def kind_of_quoted(kind: str) -> str:
    inner = kind.removeprefix("NotRequired[").removesuffix("]") if kind.startswith("NotRequired[") else kind
    return f'NotRequired["{inner}"]' if kind.startswith("NotRequired[") else f'"{inner}"'


def python_name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def python_operations(operations: list[Operation], schemas: dict[str, Json]) -> str:
    out = [f'"""Every operation of the API, for callers that wait and for those that await.\n\n{NOTE}\n"""', "", "from __future__ import annotations", ""]
    out += ["from collections.abc import AsyncIterator, Iterator", "from typing import Any", "", "from . import shapes", "from .call import Call, Head", "from .content import AsyncContent, Content", ""]
    out += ["", "class Operations:", '    """Operations that wait for their answer."""', ""]
    out += ["    def _ask(self, call: Call) -> Any:", "        raise NotImplementedError", ""]
    out += ["    def _content(self, call: Call) -> Content:", "        raise NotImplementedError", ""]
    out += ["    def _events(self, call: Call) -> Iterator[Head]:", "        raise NotImplementedError", ""]
    for operation in operations:
        out += python_operation(operation, schemas, waits=True)
    out += ["", "class AsyncOperations:", '    """The same to be awaited."""', ""]
    out += ["    async def _ask(self, call: Call) -> Any:", "        raise NotImplementedError", ""]
    out += ["    async def _content(self, call: Call) -> AsyncContent:", "        raise NotImplementedError", ""]
    out += ["    def _events(self, call: Call) -> AsyncIterator[Head]:", "        raise NotImplementedError", ""]
    for operation in operations:
        out += python_operation(operation, schemas, waits=False)
    return "\n".join(out).rstrip() + "\n"


def python_operation(operation: Operation, schemas: dict[str, Json], waits: bool) -> list[str]:
    qualified = lambda kind: re.sub(r"\b([A-Z]\w+)\b", lambda it: it[1] if it[1] in ("None", "Literal", "Any") else f"shapes.{it[1]}", kind)  # noqa: E731
    positional = [f"{it['name']}: {PYTHON.write(it['schema'])}" for it in operation.path]
    named, query, body = [], [], []
    for it in operation.query:
        kind = PYTHON.write(it["schema"])
        named.append(f"{python_name(it['name'])}: {kind}" + ("" if it["required"] else " | None = None"))
        query.append(f'"{it["name"]}": {python_name(it["name"])}')
    if operation.body:
        shape = schemas[operation.body]
        fields = sorted(shape["properties"].items(), key=lambda it: it[0] not in shape.get("required", []))
        for field, given in fields:
            kind = qualified(PYTHON.write(given)).removesuffix(" | None")
            named.append(f"{python_name(field)}: {kind}" + ("" if field in shape.get("required", []) else " | None = None"))
            body.append(f'"{field}": {python_name(field)}')
    if operation.gives == "content":
        named.append("part: tuple[int, int | None] | None = None")
    if operation.changes:
        named.append("idempotency_key: str | None = None")
    place = ", ".join(f"str({part[1:-1]})" if part.startswith("{") else f'"{part}"' for part in operation.parts)
    given = [f'"{operation.method}"', f"({place},)"]
    if query:
        given.append(f"query={{{', '.join(query)}}}")
    if operation.body:
        given.append(f"body={{{', '.join(body)}}}")
    if operation.gives == "content":
        given.append("part=part")
    if operation.changes:
        given.append("changes=True, key=idempotency_key")
    call = f"Call({', '.join(given)})"
    signature = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    name, words = snake(operation.name), f'        """{operation.words}."""'
    if operation.gives == "events":
        kind = "Iterator" if waits else "AsyncIterator"
        return [f"    def {name}({signature}) -> {kind}[Head]:", words, f"        return self._events({call})", ""]
    define, wait = ("def", "") if waits else ("async def", "await ")
    if operation.gives == "content":
        kind = "Content" if waits else "AsyncContent"
        return [f"    {define} {name}({signature}) -> {kind}:", words, f"        return {wait}self._content({call})", ""]
    if operation.gives == "nothing":
        return [f"    {define} {name}({signature}) -> None:", words, f"        {wait}self._ask({call})", ""]
    head = f"    {define} {name}({signature}) -> shapes.{operation.gives}:"
    return [head, words, f"        answer: shapes.{operation.gives} = {wait}self._ask({call})", "        return answer", ""]


# --- TypeScript -------------------------------------------------------------------------------

def typescript_shapes(schemas: dict[str, Json]) -> str:
    out = [f"// The shapes of the API. {NOTE}", "", "export type Anything = Record<string, unknown>;", ""]
    for name, schema in schemas.items():
        out.append(f"/** {one_line(schema.get('description', ''))} */")
        if "properties" not in schema:
            out += [f"export type {name} = {TYPESCRIPT.write(schema)};", ""]
            continue
        out.append(f"export interface {name} {{")
        for field, given in schema["properties"].items():
            if words := one_line(given.get("description", "")):
                out.append(f"  /** {words} */")
            out.append(f"  {field}{'' if field in schema.get('required', []) else '?'}: {TYPESCRIPT.write(given)};")
        out += ["}", ""]
    return "\n".join(out).rstrip() + "\n"


def typescript_operations(operations: list[Operation], schemas: dict[str, Json]) -> str:
    shapes = sorted({it.gives for it in operations if it.gives[0].isupper()} | {it.body for it in operations if it.body})
    out = [f"// Every operation of the API. {NOTE}", "", 'import type { Call, Content, Head, More } from "./call.js";', f'import type {{ {", ".join(shapes)} }} from "./shapes.js";', ""]
    out += ["/** Every operation; a client says how they are sent. */", "export abstract class Operations {", "  protected abstract ask<T>(call: Call): Promise<T>;", "  protected abstract content(call: Call): Promise<Content>;", "  protected abstract listen(call: Call): AsyncIterable<Head>;", ""]
    for operation in operations:
        out += typescript_operation(operation, schemas)
    return "\n".join(out).rstrip() + "\n}\n"


def typescript_operation(operation: Operation, schemas: dict[str, Json]) -> list[str]:
    given = [f"{it['name']}: {TYPESCRIPT.write(it['schema'])}" for it in operation.path]
    call = [f'method: "{operation.method}"']
    place = ", ".join(f"String({part[1:-1]})" if part.startswith("{") else f'"{part}"' for part in operation.parts)
    call.append(f"path: [{place}]")
    if operation.query:
        fields = "; ".join(f"{it['name']}{'' if it['required'] else '?'}: {TYPESCRIPT.write(it['schema'])} | undefined" for it in operation.query)
        needed = any(it["required"] for it in operation.query)
        given.append(f"query: {{ {fields} }}" + ("" if needed else " = {}"))
        call.append("query")
    if operation.body:
        given.append(f"body: {operation.body}" + ("" if schemas[operation.body].get("required") else " = {}"))
        call.append("body")
    if operation.changes:
        call.append("changes: true")
    given.append("more: More = {}")
    call.append("more")
    sent = f"{{ {', '.join(call)} }}"
    kinds = {"events": ("AsyncIterable<Head>", "this.listen"), "content": ("Promise<Content>", "this.content"), "nothing": ("Promise<void>", "this.ask<void>")}
    kind, send = kinds.get(operation.gives, (f"Promise<{operation.gives}>", f"this.ask<{operation.gives}>"))
    return [f"  /** {operation.words}. */", f"  {operation.name}({', '.join(given)}): {kind} {{", f"    return {send}({sent});", "  }", ""]


def main() -> int:
    document = json.loads((HERE.parent / "docs/openapi.json").read_text())
    schemas: dict[str, Json] = document["components"]["schemas"]
    operations = [Operation.read(path, method, said) for path, methods in document["paths"].items() for method, said in methods.items()]
    operations.sort(key=lambda it: it.name)
    files = {
        "python/src/chronicle_client/shapes.py": python_shapes(schemas),
        "python/src/chronicle_client/operations.py": python_operations(operations, schemas),
        "typescript/src/shapes.ts": typescript_shapes(schemas),
        "typescript/src/operations.ts": typescript_operations(operations, schemas),
    }
    stale = [name for name, text in files.items() if not (HERE / name).is_file() or (HERE / name).read_text() != text]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"clients/{name} is not current; make it with: clients/generate.py")
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(files[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
