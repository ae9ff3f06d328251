"""What a person would use instead, each as a class: how it captures, looks and takes back.

A peer works on the tree `top` and keeps what it keeps in `place`. One that must live in the tree, or needs a file system of
its own, gets a copy (`alone`). Every method that is timed returns seconds; None means that it has no such thing.
"""
import json, os, shutil, sqlite3, subprocess, time
from pathlib import Path

from . import ground
from .ground import Failed, said, timed


class Peer:
    key = label = how = ""
    alone = False
    # Rounds are for processes of milliseconds; one that takes seconds is measured less often.
    slow = False
    # What it leaves in the tree itself.
    leaves = ()
    # Known not to bring everything back: that is a remark and no failure of the benchmark.
    inexact = False

    def __init__(self, top, place, world):
        self.top, self.place, self.world = Path(top), Path(place), world
        self.place.mkdir(parents=True, exist_ok=True)
        self.log = self.place / "said.log"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.place), "LC_ALL": "C.UTF-8"}

    @classmethod
    def missing(cls, world):
        return None

    def run(self, *words, **more):
        return timed(*words, env=more.pop("env", self.env), log=self.log, **more)

    def first(self): ...
    def edit(self): ...
    def look(self): ...

    def shell(self, change):
        """After a shell command that changed something, nobody knows what."""
        change()
        return self.edit()

    def before(self): ...
    def after(self): ...
    def undo(self): ...

    def bytes(self):
        return ground.used(self.place)

    def close(self): ...


class Chronicle(Peer):
    key, label, how = "chronicle", "Chronicle", "the hooks of an agent, as processes; its watcher runs"
    watched = True

    def __init__(self, top, place, world):
        super().__init__(top, place, world)
        self.program, self.home = world.program("chronicle"), self.place / "home"
        self.env["CHRONICLE_HOME"], self.calls, self.turns = str(self.home), 0, 0
        if not self.watched:
            self.env["CHRONICLE_WATCH"] = "off"

    def say(self, *words, **more):
        return self.run(self.program, "-C", self.top, *words, **more)

    def hook(self, name, **fields):
        event = {"session_id": "bench", "prompt_id": "bench", "cwd": str(self.top), "hook_event_name": name, **fields}
        file = self.place / "event.json"
        file.write_text(json.dumps(event))
        return self.run(self.program, "hook", "claude-code", stdin=file, cwd=self.top)

    def call(self, name, tool, **given):
        return self.hook(name, tool_name=tool, tool_use_id=f"call-{self.calls}", tool_input=given)

    def first(self):
        shutil.rmtree(self.home, ignore_errors=True)
        seconds = self.say("init")
        if self.watched:
            self.watch()
        self.hook("UserPromptSubmit", prompt="measure")
        return seconds

    def watch(self):
        self.say("watch")
        end = time.monotonic() + 60
        while not json.loads(said(self.program, "-C", self.top, "settle", "--json", env=self.env)).get("watched"):
            if time.monotonic() > end:
                raise Failed("no watcher answers")
            time.sleep(0.05)

    def edit(self, path=None):
        self.calls += 1
        given = {"file_path": str(path or self.top / ground.path(5))}
        seconds = self.call("PreToolUse", "Edit", **given)
        self.call("PostToolUse", "Edit", **given)
        self.hook("PostToolBatch")
        return seconds

    def shell(self, change):
        self.calls += 1
        self.call("PreToolUse", "Bash", command="true")
        change()
        seconds = self.call("PostToolUse", "Bash", command="true")
        self.hook("PostToolBatch")
        return seconds

    def look(self):
        return self.say("changed")

    def before(self):
        self.turns += 1
        self.say("turn", "start", "--key", f"t{self.turns}", "--session", "rewinds")

    def after(self):
        self.say("turn", "end", "--key", f"t{self.turns}", "--session", "rewinds")

    def undo(self):
        return self.say("rewind", "before:turn:-1", "--exact", "--yes")

    def bytes(self):
        # SQLite's log is bounded and used again; how full it is at a moment says nothing.
        passing = sum(f.lstat().st_blocks * 512 for f in self.home.rglob("*") if f.name.endswith(("-wal", "-shm")))
        return ground.used(self.home) - passing

    def close(self):
        # Without its socket the watcher ends.
        for socket in self.home.glob("workspaces/*/watch.sock"):
            socket.unlink()


class Scanning(Chronicle):
    key, label, how = "chronicle-scan", "Chronicle, no watcher", "the same without a watcher: it looks at every file"
    watched = False
    edit = None


class ShadowGit(Peer):
    key, label = "git", "git: add, commit"
    how = "a repository beside the tree, `git add -A` and `git commit`; back by `git reset --hard` and `git clean -fd` (Cline until 2026, Roo Code, Gemini CLI)"

    def git(self, *words):
        env = {**self.env, "GIT_DIR": str(self.place / "shadow"), "GIT_WORK_TREE": str(self.top), "GIT_CONFIG_NOSYSTEM": "1"}
        return self.run("git", "-c", "user.name=b", "-c", "user.email=b@example.org", "-c", "gc.auto=0", *words,
                        env=env, cwd=self.top)

    def first(self):
        shutil.rmtree(self.place / "shadow", ignore_errors=True)
        self.git("init", "-q")
        return self.edit()

    def edit(self):
        return self.git("add", "-A") + self.git("commit", "-q", "--allow-empty", "-m", "capture")

    def look(self):
        return self.git("status", "--porcelain")

    def before(self):
        self.edit()

    def undo(self):
        return self.git("reset", "-q", "--hard", "HEAD") + self.git("clean", "-fdq")

    def packed(self):
        """What it comes down to when somebody collects, as OpenCode does each hour."""
        self.git("gc", "-q", "--prune=now")
        return self.bytes()


class Trees(ShadowGit):
    key, label = "opencode", "git: add, write-tree"
    how = "the same with `git write-tree`, and back by `read-tree` and `checkout-index` (OpenCode)"

    def edit(self):
        return self.git("add", "-A") + self.git("write-tree")

    def before(self):
        self.edit()
        self.tree = self.log.read_text().strip()

    def undo(self):
        return self.git("read-tree", self.tree) + self.git("checkout-index", "-a", "-f")

    packed = None


class Jj(Peer):
    key, label, how = "jj", "jj", "`jj util snapshot`, back by `jj restore`; it lives in the tree"
    alone, leaves = True, (".jj", ".git")

    @classmethod
    def missing(cls, world):
        return None if world.tool("jj") else "not installed"

    def jj(self, *words):
        env = {**self.env, "JJ_USER": "b", "JJ_EMAIL": "b@example.org"}
        return self.run(self.world.tool("jj"), "-R", self.top, *words, env=env, cwd=self.top)

    def first(self):
        for name in self.leaves:
            shutil.rmtree(self.top / name, ignore_errors=True)
        env = {**self.env, "JJ_USER": "b", "JJ_EMAIL": "b@example.org"}
        seconds = self.run(self.world.tool("jj"), "git", "init", self.top, env=env) + self.jj("util", "snapshot")
        self.jj("new")
        return seconds

    def edit(self):
        return self.jj("util", "snapshot")

    def look(self):
        return self.jj("st")

    def before(self):
        self.jj("new")

    def undo(self):
        return self.jj("restore")

    def bytes(self):
        return sum(ground.used(self.top / name) for name in self.leaves if (self.top / name).exists())


class Restic(Peer):
    key, label, how, slow = "restic", "restic", "`restic backup`, back by `restic restore`", True

    @classmethod
    def missing(cls, world):
        return None if shutil.which("restic") else "not installed"

    def restic(self, *words):
        env = {**self.env, "RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": str(self.place / "restic")}
        return self.run("restic", "-q", *words, env=env)

    def first(self):
        shutil.rmtree(self.place / "restic", ignore_errors=True)
        self.restic("init")
        return self.edit()

    def edit(self):
        return self.restic("backup", self.top)

    def look(self):
        return self.edit()

    def before(self):
        self.edit()

    def undo(self):
        return self.restic("restore", "latest", "--target", "/")

    def bytes(self):
        return ground.used(self.place / "restic")


class Borg(Peer):
    key, label, how, slow = "borg", "borg", "`borg create`, back by `borg extract`", True

    @classmethod
    def missing(cls, world):
        return None if shutil.which("borg") else "not installed"

    def borg(self, *words):
        self.env["BORG_RELOCATED_REPO_ACCESS_IS_OK"] = "yes"
        return self.run("borg", *words, cwd=self.top)

    def first(self):
        shutil.rmtree(self.place / "borg", ignore_errors=True)
        self.count = 0
        self.borg("init", "-e", "none", self.place / "borg")
        return self.edit()

    def edit(self):
        self.count += 1
        return self.borg("create", f"{self.place / 'borg'}::a{self.count}", ".")

    def look(self):
        return self.edit()

    def before(self):
        self.edit()

    def undo(self):
        return self.borg("extract", f"{self.place / 'borg'}::a{self.count}")

    def bytes(self):
        return ground.used(self.place / "borg")


class Rsync(Peer):
    key, label, how = "rsync", "rsync", "a copy by `rsync -a --link-dest` of the copy before; back by `rsync -a --delete`"

    @classmethod
    def missing(cls, world):
        return None if shutil.which("rsync") else "not installed"

    def first(self):
        for old in self.place.glob("copy*"):
            shutil.rmtree(old)
        self.count = 0
        return self.run("rsync", "-a", f"{self.top}/", self.copy())

    def copy(self, back=0):
        return self.place / f"copy{self.count - back}"

    def edit(self):
        self.count += 1
        seconds = self.run("rsync", "-a", f"--link-dest={self.copy(1)}", f"{self.top}/", self.copy())
        shutil.rmtree(self.copy(1))
        return seconds

    def look(self):
        return self.run("rsync", "-an", "--delete", f"{self.top}/", self.copy())

    def before(self):
        self.edit()

    def undo(self):
        return self.run("rsync", "-a", "--delete", f"{self.copy()}/", self.top)


class Btrfs(Peer):
    key, label, alone = "btrfs", "Btrfs snapshot", True
    how = "`btrfs subvolume snapshot` on Btrfs of its own; back by putting a snapshot in the tree's place"

    @classmethod
    def missing(cls, world):
        return None if world.mounts and shutil.which("btrfs") else "needs root and btrfs-progs"

    def __init__(self, top, place, world):
        super().__init__(top, place, world)
        self.image = ground.Image(self.place / "disk", "btrfs", 8 << 30)
        self.given, self.top, self.count = Path(top), self.image.at / "ws", 0
        said("btrfs", "subvolume", "create", self.top)
        said("cp", "-a", f"{self.given}/.", self.top)
        os.sync()

    def first(self):
        return self.edit()

    def edit(self):
        self.count += 1
        return self.run("btrfs", "subvolume", "snapshot", "-r", self.top, self.image.at / f"s{self.count}")

    def before(self):
        self.edit()

    def undo(self):
        begun = time.perf_counter()
        self.top.rename(self.image.at / f"gone{self.count}")
        self.run("btrfs", "subvolume", "snapshot", self.image.at / f"s{self.count}", self.top)
        return time.perf_counter() - begun

    def bytes(self):
        said("btrfs", "filesystem", "sync", self.image.at)
        room = os.statvfs(self.image.at)
        return (room.f_blocks - room.f_bfree) * room.f_frsize

    def close(self):
        self.image.close()


class AgentUndo(Peer):
    inexact = True
    key, label, alone, leaves = "agent-undo", "agent-undo", True, (".agent-undo",)
    how = "its watcher; a capture counts until the change is in its timeline, and nothing is captured before an edit"

    @classmethod
    def missing(cls, world):
        return None if world.tool("au") else "not installed (`cargo install agent-undo`)"

    def __init__(self, top, place, world):
        super().__init__(top, place, world)
        self.server = None

    def au(self, *words):
        return self.run(self.world.tool("au"), *words, cwd=self.top)

    def first(self):
        self.close()
        shutil.rmtree(self.top / ".agent-undo", ignore_errors=True)
        seconds = self.au("init")
        with open(self.place / "serve.log", "w") as out:
            self.server = subprocess.Popen([self.world.tool("au"), "serve"], cwd=self.top, env=self.env, stdout=out, stderr=out)
        time.sleep(1.5)
        return seconds

    def events(self, what="coalesce(max(id), 0)", after=0):
        with sqlite3.connect(f"file:{self.top / '.agent-undo/timeline.db'}?mode=ro", uri=True) as timeline:
            return timeline.execute(f"select {what} from events where id > ?", [after]).fetchone()[0]

    def shell(self, change):
        was, begun = self.events(), time.perf_counter()
        wanted = change() or 1
        while self.events("count(distinct path)", was) < wanted:
            if time.perf_counter() - begun > 60:
                raise Failed("its watcher did not see every change in a minute")
            time.sleep(0.002)
        return time.perf_counter() - begun

    edit = None

    def undo(self):
        # Until the watcher has seen everything, there is nothing that it could take back.
        was, quiet = self.events(), time.monotonic()
        while time.monotonic() - quiet < 2:
            time.sleep(0.1)
            now = self.events()
            if now != was:
                was, quiet = now, time.monotonic()
        return self.au("oops", "--confirm")

    def bytes(self):
        return ground.used(self.top / ".agent-undo")

    def close(self):
        if self.server:
            self.server.kill()
            self.server.wait()
            self.server = None


ALL = [Chronicle, Scanning, ShadowGit, Trees, Jj, Restic, Borg, AgentUndo, Btrfs, Rsync]
