"""The clients beside a real server: current, typed, whole, and their examples over TCP and a Unix socket.

usage: clients.py CHRONICLE TOOLS PYTHON; PYTHON has mypy, TOOLS has typescript in node_modules.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
CLIENTS = TOP / "clients"
# Runs in the environment in which the client is installed: every operation, parameter, shape and field is there.
WHOLE = """
import inspect, json, re, sys
from chronicle_client import AsyncChronicle, Chronicle, shapes
document = json.load(open(sys.argv[1]))
snake = lambda name: re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name)
checked = 0
for path, methods in document["paths"].items():
    for method, said in methods.items():
        wanted = [it["name"] for it in said["parameters"] if it["in"] != "header"]
        if body := said.get("requestBody"):
            name = body["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
            wanted += document["components"]["schemas"][name]["properties"]
        for client in Chronicle, AsyncChronicle:
            found = inspect.signature(getattr(client, snake(said["operationId"]))).parameters
            assert all(name in found or name + "_" in found for name in wanted), (said["operationId"], wanted, found)
            checked += 1
for name, schema in document["components"]["schemas"].items():
    for field in schema.get("properties", {}):
        assert field in getattr(shapes, name).__annotations__, (name, field)
        checked += 1
print(checked)
"""


def run(*words: object, **more: object) -> str:
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, **more)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise AssertionError(f"{words[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return str(done.stdout)


def main() -> int:
    chronicle, tools, python = (os.path.abspath(name) for name in sys.argv[1:4])
    failed = passed = 0

    def test(name: str, work: Callable[[], None]) -> None:
        nonlocal failed, passed
        try:
            work()
            passed += 1
            print(f"test clients::{name} ... ok", flush=True)
        except Exception:
            failed += 1
            print(f"test clients::{name} ... FAILED\n{traceback.format_exc()}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        workspace, socket = Path(scratch, "ws"), Path(scratch, "socket")
        environment = os.environ | {"CHRONICLE_HOME": f"{scratch}/home", "CHRONICLE_WATCH": "off", "HOME": scratch}
        workspace.mkdir()
        run(chronicle, "-C", workspace, "init", env=environment)
        line = [chronicle, "-C", str(workspace), "web", "--json", "--no-open", "--socket", str(socket)]
        server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline())
            ways = {"a_socket": ["--socket", socket], "tcp": [ready["address"], ready["rewind_token"]]}
            test("both_are_what_the_document_gives", lambda: drop(run(sys.executable, CLIENTS / "generate.py", "--check")))
            test("the_python_client_installs_and_is_whole", lambda: installs(python, scratch))
            test("the_python_client_is_typed", lambda: typed(python, scratch))
            for name, where in ways.items():
                test(f"the_python_example_runs_over_{name}", lambda where=where: python_example(python, scratch, workspace, where))
            test("the_typescript_client_compiles_and_is_whole", lambda: compiles(tools, scratch))
            for name, where in ways.items():
                test(f"the_typescript_example_runs_over_{name}", lambda where=where: typescript_example(scratch, workspace, where))
        finally:
            server.kill()
            server.wait()
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed")
    return 1 if failed else 0


def drop(_: str) -> None:
    return None


def installs(python: str, scratch: str) -> None:
    run("cp", "-r", CLIENTS / "python", f"{scratch}/python")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-build-isolation", "--target", f"{scratch}/site", f"{scratch}/python")
    assert Path(scratch, "site/chronicle_client/py.typed").is_file()
    checked = int(run(python, "-c", WHOLE, TOP / "docs/openapi.json", env=os.environ | {"PYTHONPATH": f"{scratch}/site"}))
    assert checked > 300, checked


def typed(python: str, scratch: str) -> None:
    run(python, "-m", "mypy", "--strict", "--cache-dir", f"{scratch}/mypy", CLIENTS / "python/src/chronicle_client", cwd=CLIENTS / "python")
    wrong = Path(scratch, "wrong.py")
    wrong.write_text("from chronicle_client import Chronicle\nwith Chronicle('a') as it:\n    it.timeline('w', limit='ten')\n    it.plan('w', kind='other')\n    it.status('w')['no']\n")
    done = subprocess.run([python, "-m", "mypy", "--strict", "--cache-dir", f"{scratch}/mypy", str(wrong)], text=True, capture_output=True, env=os.environ | {"MYPYPATH": str(CLIENTS / "python/src")})
    assert "Found 3 errors" in done.stdout, done.stdout


def python_example(python: str, scratch: str, workspace: Path, where: list[object]) -> None:
    said = run(python, CLIENTS / "python/example.py", workspace, *where, env=os.environ | {"PYTHONPATH": f"{scratch}/site"})
    assert "-hello\n+HELLO" in said and said.endswith("rolled back: hello\nbrought back: hello\n"), said


def compiles(tools: str, scratch: str) -> None:
    package = Path(scratch, "node_modules/chronicle-client")
    run("cp", "-r", f"{CLIENTS}/typescript/.", mkdir(package))
    Path(scratch, "node_modules/@types").symlink_to(Path(tools, "node_modules/@types"))
    Path(scratch, "node_modules/undici-types").symlink_to(Path(tools, "node_modules/undici-types"))
    run(Path(tools, "node_modules/.bin/tsc"), "-p", package)
    assert json.loads((package / "package.json").read_text()).get("dependencies") is None
    document = json.loads((TOP / "docs/openapi.json").read_text())
    operations = (package / "dist/operations.d.ts").read_text()
    for methods in document["paths"].values():
        for said in methods.values():
            assert f"    {said['operationId']}(" in operations, said["operationId"]
    declared = (package / "dist/shapes.d.ts").read_text()
    for name, schema in document["components"]["schemas"].items():
        begin = declared.index(f"export {'interface' if 'properties' in schema else 'type'} {name} ")
        body = declared[begin : declared.index("\n}", begin)] if "properties" in schema else ""
        for field in schema.get("properties", {}):
            assert f"    {field}: " in body or f"    {field}?: " in body, (name, field)


def mkdir(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def typescript_example(scratch: str, workspace: Path, where: list[object]) -> None:
    example = Path(scratch, "example.mjs")
    example.write_bytes((CLIENTS / "typescript/example.mjs").read_bytes())
    said = run("node", example, workspace, *where)
    assert "-hello\n+HELLO" in said and said.endswith("rolled back: hello\n"), said


if __name__ == "__main__":
    sys.exit(main())
