"""People and sandboxes that really work, scaled down, and what they cost in bytes, requests and rows."""
import json, os, random, shutil, socket, subprocess, time
from pathlib import Path

from . import ground
from .ground import Failed, said
from .servers import wait

METERS = ("local", "bucket", "writes", "reads", "free")


class Developer:
    """One workspace with a bucket: turns of edits and new files, pushed at the end of each turn, as it happens by itself."""

    def __init__(self, program, moto, place, name, files=300):
        self.program, self.moto, self.top, self.home = program, moto, place / f"{name}-work", place / f"{name}-home"
        self.env = {**os.environ, "CHRONICLE_HOME": str(self.home), "HOME": str(place), "CHRONICLE_WATCH": "off",
                    "AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret"}
        self.files, self.turns, self.made, self.edited = files, 0, 0, 0
        ground.make(self.top, files)
        self.say("init")
        self.say("bucket", "set", f"s3://bucket/{name}", "--endpoint", moto.endpoint, "--region", "us-east-1",
                 "--key", place / f"{name}.key", "--manual")
        self.say("push")
        # What is only there once, and the first growth of files, is not what a turn costs.
        for _ in range(3):
            self.turn(2, 1)

    def say(self, *words):
        return said(self.program, "-C", self.top, *words, env=self.env)

    def turn(self, edits, new):
        self.turns += 1
        key = ["--key", f"t{self.turns}", "--session", "s"]
        self.say("turn", "start", *key, "--prompt", "do the next thing")
        for _ in range(edits):
            self.edited += 1
            path = ground.path(self.edited * 37 % self.files)
            self.say("snapshot", "--action", "edit", "--path", path)
            lines = (self.top / path).read_text().splitlines(keepends=True)
            lines[self.edited * 13 % len(lines)] = f"    let edited_{self.edited} = changed({self.edited});\n"
            (self.top / path).write_text("".join(lines))
        for _ in range(new):
            self.made += 1
            (self.top / f"new{self.made}.rs").write_bytes(ground.content(self.made, 77))
        self.say("turn", "end", *key)
        self.say("push")

    def meters(self):
        """Lengths and not blocks: what counts a year from now is not how a small file rounds up."""
        length = sum(f.lstat().st_size for f in self.home.rglob("*") if f.is_file() and not f.name.endswith(("-wal", "-shm")))
        return {"local": length, "bucket": self.moto.bytes()[0], **self.moto.requests()}

    def spent(self, work):
        before = self.meters()
        work()
        after = self.meters()
        return {name: after[name] - before[name] for name in METERS}


# Pushes that a developer has behind it when measuring begins.
BEFORE = 4
# A push lists the packs, a thousand names in one answer, and leaves two names: too little to be measured in a short run, and much in a year.
LISTED = 2 / 1000


def developer_units(program, moto, place, turns):
    """What a turn, an edit and a new file cost, each told from runs that differ in it alone; and how many reads more a turn costs with each
    turn before it, told from the halves of one run."""
    half = turns // 2

    def run(name, edits, new):
        person = Developer(program, moto, place, name)
        return [person.spent(lambda: [person.turn(edits, new) for _ in range(half)]) for _ in range(2)]

    few, many, made = run("few", 1, 0), run("many", 9, 0), run("made", 1, 6)
    whole = lambda halves, meter: (halves[0][meter] + halves[1][meter]) / (2 * half)
    units = {}
    for meter in METERS:
        edit, new = (whole(many, meter) - whole(few, meter)) / 8, (whole(made, meter) - whole(few, meter)) / 6
        more = {"reads": (few[1]["reads"] - few[0]["reads"]) / half ** 2, "writes": LISTED}.get(meter, 0)
        units[meter] = {"turn": whole(few, meter) - edit - more * (BEFORE + half), "edit": edit, "new": new, "more": more}
    return units


def predicted(units, turns, edits, new, before=BEFORE):
    return {meter: turns * (unit["turn"] + unit["more"] * (before + turns / 2)) + edits * unit["edit"] + new * unit["new"]
            for meter, unit in units.items()}


def simulate_developer(program, moto, place, turns, seed=1):
    """Turns as uneven as a person's; gives what they were and what they cost."""
    chance = random.Random(seed)
    plan = [(chance.choice([0, 1, 2, 4, 8, 12]), chance.choice([0, 0, 0, 1, 2])) for _ in range(turns)]
    person = Developer(program, moto, place, "month")
    total = person.spent(lambda: [person.turn(*one) for one in plan])
    return {"turns": turns, "edits": sum(e for e, _ in plan), "new": sum(n for _, n in plan)}, total


# --- sandboxes ---------------------------------------------------------------------------------

class Fleet:
    """One host on a shared log, and sandboxes that write."""

    def __init__(self, program, moto, postgres, place, name, files=50):
        self.program, self.moto, self.postgres, self.place, self.name = program, moto, postgres, place / f"fleet-{name}", name
        self.children, self.sandboxes = [], []
        self.top = self.place / "host"
        ground.make(self.top, files)
        self.env = self.environment("host-home")
        said(program, "-C", self.top, "init", env=self.env)
        self.bucket(self.env, self.top)
        self.gate = self.place / "host.sock"
        self.id = self.serve(self.top, self.env, self.gate)

    def environment(self, home):
        return {**os.environ, "CHRONICLE_HOME": str(self.place / home), "HOME": str(self.place),
                "AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret"}

    def bucket(self, env, top):
        said(self.program, "-C", top, "bucket", "set", f"s3://bucket/{self.name}", "--endpoint", self.moto.endpoint, "--region", "us-east-1",
             "--key", self.place / "fleet.key", "--manual", env=env)

    def serve(self, top, env, gate, *more):
        out = self.place / f"{gate.name}.json"
        words = [self.program, "-C", top, "serve", "--json", "--socket", gate, "--log", self.postgres.url, *more]
        with open(out, "w") as told, open(f"{out}.log", "w") as log:
            self.children.append(subprocess.Popen([str(w) for w in words], env=env, stdout=told, stderr=log))
        serving = self.children[-1]

        def listens():
            if serving.poll() is not None:
                raise Failed(f"the host ended: {Path(f'{out}.log').read_text()[-300:]}")
            try:
                with socket.socket(socket.AF_UNIX) as way:
                    way.connect(str(gate))
                return json.loads(out.read_text())["workspaces"][0]
            except (OSError, ValueError, KeyError):
                return None
        return wait("the host", listens, 120)

    def connect(self, count):
        for number in range(len(self.sandboxes), len(self.sandboxes) + count):
            top = self.place / f"sandbox{number}"
            words = [self.program, "connect", "--socket", str(self.gate), str(top)]
            env = self.environment(f"sandbox-home{number}")
            self.children.append(subprocess.Popen(words, env=env, cwd=self.top, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            self.sandboxes.append(top)
        wait("every sandbox", lambda: all((top / ground.path(0)).exists() for top in self.sandboxes), 180)
        time.sleep(1)

    def write(self, rounds, seed=0, at_once=1):
        """Each sandbox writes files of its own, so many at once; then until all are in the host's directory."""
        names = []
        for turn in range(rounds):
            for number, top in enumerate(self.sandboxes):
                for which in range(at_once):
                    name = f"from{number}-{seed}-{turn}-{which}.txt"
                    (top / name).write_bytes(ground.content(number * 1000 + turn * 20 + which, seed)[:1024])
                    names.append(name)
                # Not all in one moment, which no fleet does.
                time.sleep(0.5 / len(self.sandboxes))
        wait("what the sandboxes wrote", lambda: all((self.top / name).exists() for name in names), 240)
        return len(names)

    def meters(self):
        return {**self.postgres.figures(), "bucket": self.moto.bytes()[0], **self.moto.requests()}

    def spent(self, rounds, seed=0, at_once=1):
        before = self.meters()
        count = self.write(rounds, seed, at_once)
        time.sleep(1)
        after = self.meters()
        return count, {name: after[name] - before[name] for name in after}

    def units(self, rounds):
        """What a commit and what a write costs: told apart by writes one by one and many at once. How many writes a commit takes along is the
        sandboxes' habit, and how busy the machine is."""
        ones, one = self.spent(rounds, seed=11)
        bursts, many = self.spent(rounds, seed=12, at_once=10)
        found = {}
        for meter in one:
            apart = one["commits"] * bursts - many["commits"] * ones
            write = (one["commits"] * many[meter] - many["commits"] * one[meter]) / apart if apart else 0
            write = max(write, 0)
            found[meter] = {"commit": max((one[meter] - write * ones) / max(one["commits"], 1), 0), "write": write}
        return found

    def join_seconds(self):
        """How long a second host takes to follow the whole log, and how many records that has."""
        top = self.place / "second"
        top.mkdir()
        env = self.environment("second-home")
        said(self.program, "-C", top, "init", env=env)
        self.bucket(env, top)
        begun = time.perf_counter()
        self.serve(top, env, self.place / "second.sock", "--join", self.id)
        wait("the second host's files", lambda: (top / ground.path(0)).exists(), 120)
        seconds = time.perf_counter() - begun
        return seconds, int(self.postgres.ask(f"select seq from chronicle.logs where encode(workspace, 'hex') = '{self.id.replace('-', '')}'") or 0)

    def close(self):
        for child in reversed(self.children):
            child.kill()
            child.wait()
        shutil.rmtree(self.place, ignore_errors=True)
