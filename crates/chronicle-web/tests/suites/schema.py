"""Drives schemathesis over the API of a scratch workspace: no server error, no answer that is not documented.

usage: schema.py CHRONICLE SCHEMATHESIS [EXAMPLES]
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

# What the document cannot say: that a moment exists, that a key was used before, that a redo has no target.
LEFT_OUT = "positive_data_acceptance,ignored_auth"
# How requests that make no sense are refused; what is too long for a URL never gets further.
REJECTED = "[checks.negative_data_rejection]\nexpected-statuses = [400, 401, 403, 404, 405, 409, 413, 414, 415]\n"


def main() -> int:
    chronicle, schemathesis = (os.path.abspath(name) for name in sys.argv[1:3])
    examples = sys.argv[3] if len(sys.argv) > 3 else "20"
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"CHRONICLE_HOME": f"{scratch}/home", "CHRONICLE_WATCH": "off", "HOME": scratch}
        workspace = Path(scratch, "ws")
        fill(chronicle, workspace, environment)
        line = [chronicle, "-C", str(workspace), "web", "--json", "--no-open"]
        server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            ready = json.loads(server.stdout.readline())
            return drive(schemathesis, examples, ready, scratch)
        finally:
            server.kill()
            server.wait()


def fill(chronicle: str, workspace: Path, environment: dict[str, str]) -> None:
    workspace.mkdir()

    def run(*words: str) -> None:
        subprocess.run([chronicle, "-C", str(workspace), *words], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    (workspace / "a.txt").write_text("one\ntwo\nthree\n")
    (workspace / "picture.bin").write_bytes(bytes(range(256)))
    run("init")
    for number in range(5):
        run("turn", "start", "--session", "s", "--prompt", f"turn {number}")
        (workspace / "a.txt").write_text(f"one\n{number}\nthree\n")
        (workspace / f"new{number}.txt").write_text("new\n")
        run("turn", "end", "--session", "s")


def ask(ready: dict, path: str, token: str, body: dict | None = None) -> dict:
    request = urllib.request.Request(f"http://{ready['address']}/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def drive(schemathesis: str, examples: str, ready: dict, scratch: str) -> int:
    token = Path(ready["rewind_token"]).read_text().strip()
    document = ask(ready, "/openapi.json", token)
    identity = ask(ready, "/workspaces", token)["workspaces"][0]["id"]
    plan = ask(ready, f"/workspaces/{identity}/plans", token, {"kind": "undo"})["plan_id"]
    snapshot = ask(ready, f"/workspaces/{identity}/snapshots", token)["snapshots"][0]["id"]
    known = {
        "workspace": [identity], "plan": [plan], "snapshot": [snapshot], "turn": [1, 2, 3, 99],
        "path": ["a.txt", "new1.txt", "picture.bin", "nothing.txt"], "at": ["turn:1", "before:turn:2", "start", "seq:3", "nothing"],
        "from": ["start", "before:turn:1", "turn:2"], "to": ["turn:3", "seq:4"], "of": ["turn:1", "turn:-1", snapshot],
    }
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                values = known.get(parameter["name"])
                if values and parameter["in"] == "path":
                    parameter["schema"] = {"enum": values}
                elif values:
                    parameter["schema"] = {"anyOf": [{"enum": values}, parameter["schema"]]}
    del document["paths"]["/api/v1/workspaces/{workspace}/events"]
    file = Path(scratch, "openapi.json")
    file.write_text(json.dumps(document))
    Path(scratch, "schemathesis.toml").write_text(REJECTED)
    line = [
        schemathesis, "run", str(file), "--url", f"http://{ready['address']}", "-H", f"Authorization: Bearer {token}",
        "--checks", "all", "--exclude-checks", LEFT_OUT, "--max-examples", examples, "--phases", "coverage,fuzzing",
        "--exclude-operation-id", "signIn", "--exclude-operation-id", "signOut", "--seed", "1", "--continue-on-failure",
    ]
    done = subprocess.run(line, cwd=scratch, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # A URL may be as long as a book.
    print("\n".join(row[:300] for row in done.stdout.splitlines()))
    words = ("ok", 1, 0) if done.returncode == 0 else ("FAILED", 0, 1)
    print("test result: %s. %d passed; %d failed" % words)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
