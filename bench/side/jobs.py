"""The jobs, each in turns for every peer on trees of several sizes. What fails is kept as a failure and the rest goes on."""
import json, os, shutil, subprocess, sys, time
from pathlib import Path

from . import ground, peers
from .ground import Failed, median, must_be, path, timed

EDITED = 200
EDITS = 1000


class World:
    """Where it runs, what is built, and what was measured so far."""

    def __init__(self, place, bin, tools, small=False, sizes=(), out=None):
        self.sizes, self.out = list(sizes), out
        self.place, self.bin, self.tools, self.small = Path(place), Path(bin), Path(tools), small
        self.mounts = os.geteuid() == 0
        self.cells, self.failures, self.remarks, self.missing = [], [], [], {}
        self.begun = time.monotonic()

    def program(self, name):
        return str(self.bin / name)

    def tool(self, name):
        return ground.find_program(name, self.tools)

    def put(self, job, size, peer, value, unit, note=""):
        self.cells.append({"job": job, "size": size, "peer": peer, "value": value, "unit": unit, "note": note})
        print(f"{time.monotonic() - self.begun:6.0f} s  {job:8} {size:7}  {peer:16} {value:12.3f} {unit} {note}", file=sys.stderr, flush=True)

        self.save()

    def save(self):
        """After every figure: a run that is stopped has measured what it has measured."""
        if self.out:
            told = {"sizes": self.sizes, "small": self.small, "cells": self.cells, "failures": self.failures, "remarks": self.remarks, "missing": self.missing}
            Path(self.out).write_text(json.dumps(told, indent=1))

    def fail(self, where, error):
        self.failures.append(f"{where}: {str(error).splitlines()[0][:300] if str(error) else type(error).__name__}")
        print(f"FAILED {self.failures[-1]}\n{error}", file=sys.stderr, flush=True)

    def rounds(self, size, slow):
        if self.small:
            return 1 if slow else 2
        return {1000: (15, 3), 10_000: (9, 2)}.get(size, (5, 1))[slow]


class Trees:
    """Every peer on one size of tree."""

    def __init__(self, world, size):
        self.world, self.size, self.at = world, size, world.place / f"trees-{size}"
        self.top, self.version, self.here, self.begun = self.at / "tree", 0, [], []
        ground.make(self.top, size)

    def jobs(self):
        try:
            self.begin()
            for job in (self.look, self.edit, self.shell, self.rewind, self.store):
                job()
        finally:
            for peer in self.begun:
                try:
                    peer.close()
                except OSError as error:
                    self.world.fail(f"{peer.key} at its end", error)
            shutil.rmtree(self.at, ignore_errors=True)

    def each(self, job, work, needs):
        """Does `work` for each peer that has such a thing; one that fails is left out from then on."""
        for peer in [p for p in self.here if getattr(p, needs)]:
            try:
                work(peer)
            except (Failed, OSError, subprocess.SubprocessError, ValueError) as error:
                if peer.inexact:
                    self.world.remarks.append(f"{peer.label}, {job} of {self.size:,} files: {error}")
                else:
                    self.world.fail(f"{job} of {self.size} files by {peer.label}", error)
                if not isinstance(peer, peers.Chronicle):
                    self.here.remove(peer)

    def begin(self):
        """The first capture. What a program read from the cache and dropped is read again before the next one's turn."""
        for kind in peers.ALL:
            why = kind.missing(self.world)
            if why:
                self.world.missing[kind.label] = why
                continue
            try:
                top = self.top
                if kind.alone:
                    top = self.at / f"tree-{kind.key}"
                    subprocess.run(["cp", "-a", self.top, top], check=True)
                peer = kind(top, self.at / f"place-{kind.key}", self.world)
                self.begun.append(peer)
                ground.warm(peer.top)
                os.sync()
                again = 1 if self.size > 10_000 or self.world.small else 3
                self.world.put("first", self.size, kind.key, median([peer.first() for _ in range(again)]) * 1e3, "ms")
                self.here.append(peer)
            except (Failed, OSError, subprocess.SubprocessError) as error:
                self.world.fail(f"first capture of {self.size} files by {kind.label}", error)
        pack = self.at / "limit.pack"
        self.limit("first", lambda: timed(self.world.program("limit_first"), self.top, pack, log=self.at / "log"), 1)
        pack.unlink(missing_ok=True)

    def limit(self, job, work, rounds, name="limit"):
        try:
            self.world.put(job, self.size, name, median([work() for _ in range(rounds)]) * 1e3, "ms")
        except (Failed, OSError, ValueError) as error:
            self.world.fail(f"the bare limit of {job}", error)

    def change(self, numbers, peer, version=None):
        if version is None:
            self.version += 1
            version = self.version
        for number in numbers:
            (peer.top / path(number)).write_bytes(ground.content(number, version))

    def in_turns(self, job, once, needs, rounds=None):
        """`once(peer)` gives the seconds of one round."""
        times = {}

        def one(peer):
            seconds = once(peer)
            times.setdefault(peer.key, []).append(seconds)

        most = rounds or self.world.rounds(self.size, False)
        for number in range(most):
            for_slow = number < self.world.rounds(self.size, True)
            self.each(job, lambda peer: one(peer) if for_slow or not peer.slow else None, needs)
        for key, taken in times.items():
            # The first round finds everything cold that the job before left so.
            self.world.put(job, self.size, key, median(taken[1:] or taken) * 1e3, "ms")

    def walk(self):
        return timed(self.world.program("limit_walk"), self.top, log=self.at / "log")

    def look(self):
        """Nothing has changed. Once untimed, since what was just written must be read again once."""
        self.each("look", lambda peer: peer.look() if not peer.slow else None, "look")
        has = lambda peer: type(peer).look is not peers.Peer.look
        here, self.here = self.here, [p for p in self.here if has(p)]
        self.in_turns("look", lambda peer: peer.look(), "look")
        self.here = [p for p in here if p in self.here or not has(p)]
        self.limit("look", self.walk, self.world.rounds(self.size, False))

    def edit(self):
        def once(peer):
            self.change([5], peer)
            return peer.edit()

        self.in_turns("edit", once, "edit")
        self.each("edit", lambda peer: self.change([5], peer, 0), "top")
        self.limit("edit", self.commit, 3)

    def commit(self):
        """A process, and one durable commit of one file."""
        place, log = self.at / "limits", self.at / "log"
        place.mkdir(exist_ok=True)
        timed(self.world.program("limit_capture"), place, "50", log=log)
        return int(log.read_text()) / 1e6 + median([timed("/bin/true") for _ in range(9)])

    def shell(self):
        numbers = range(3, self.size, max(self.size // 10, 1))

        def once(peer):
            def change():
                self.change(numbers, peer)
                return len(numbers)
            return peer.shell(change)

        self.in_turns("shell", once, "shell")
        self.each("shell", lambda peer: self.change(numbers, peer, 0), "top")
        self.limit("shell", self.commit, 3)
        self.limit("shell", self.walk, 5, "walk")

    def rewind(self):
        numbers = range(0, self.size, 20)

        def once(peer):
            peer.before()
            self.change(numbers, peer)
            peer.after()
            os.sync()
            seconds = peer.undo()
            try:
                must_be(peer.top, [*numbers, 1, self.size - 1])
            except (Failed, OSError) as error:
                self.change(numbers, peer, 0)
                raise Failed(f"the undo did not bring everything back: {error}") from error
            return seconds

        rounds = 1 if self.world.small else 3
        self.here = [p for p in self.here if p.key != "chronicle-scan" or p.close()]
        self.in_turns("rewind", once, "undo", rounds)
        names = self.at / "changed.list"
        names.write_text("\n".join(path(number) for number in numbers))

        def bare():
            os.sync()
            timed(self.world.program("limit_rewind"), self.top, names, log=self.at / "log")
            return int((self.at / "log").read_text()) / 1e6

        self.limit("rewind", bare, rounds)

    def store(self):
        """Small edits, each captured; those of whom a capture takes long are asked for fewer, and that is said."""
        self.each("store", self.edits, "bytes")
        line = sum(len(self.line(edit)) for edit in range(EDITS))
        self.world.put("store", self.size, "limit", line / 1e6, "MB")

    @staticmethod
    def line(edit):
        return f"    let edited_{edit} = changed({edit * 7 % 1000});\n".encode()

    def edits(self, peer):
        if isinstance(peer, (peers.Rsync, peers.Scanning)):
            return
        count = self.how_many(peer)
        if self.world.small and peer.slow:
            return
        # Others on the same tree made the same edits: from the beginning, so that there is something to capture.
        files = range(min(EDITED, self.size))
        peer.shell(lambda: self.change(files, peer) or len(files))
        peer.shell(lambda: self.change(files, peer, 0) or len(files))
        packed = getattr(peer, "packed", None)
        before = packed() if packed else peer.bytes()
        for edit in range(count):
            place = peer.top / path(edit * 7919 % min(EDITED, self.size))
            lines = place.read_bytes().splitlines(keepends=True)
            lines[edit * 31 % len(lines)] = self.line(edit)

            def change(place=place, lines=lines):
                place.write_bytes(b"".join(lines))
                return 1
            if isinstance(peer, peers.Chronicle):
                peer.edit(place), change()
            else:
                peer.shell(change)
        if isinstance(peer, peers.Chronicle):
            peer.say("settle")
            peer.say("verify")
        note = "" if count == EDITS else f"{count} edits, times {EDITS // count}"
        self.world.put("store", self.size, peer.key, (peer.bytes() - before) / 1e6 * EDITS / count, "MB", note)
        if packed:
            self.world.put("store", self.size, peer.key + "-gc", (packed() - before) / 1e6 * EDITS / count, "MB", note)

    def how_many(self, peer):
        if self.world.small:
            return 5
        if isinstance(peer, peers.Chronicle):
            return EDITS
        if peer.slow:
            return 20 if self.size <= 1000 else 10 if self.size <= 10_000 else 4
        return EDITS if self.size <= 1000 and peer.key != "agent-undo" else 200


# --- everyday work through mounts --------------------------------------------------------------

def mounts(world, size):
    """Unpacking a tree and walking it: the directory itself, bindfs, and ours."""
    at = world.place / f"mount-{size}"
    ground.make(at / "source/tree", size)
    tar = at / "tree.tar"
    ground.said("tar", "cf", tar, "-C", at / "source", "tree")
    kinds = {"limit": None, "bindfs": lambda b, p: ["bindfs", "-f", "--no-allow-other", b, p],
             "bare": lambda b, p: [world.program("bare_mount"), b, p], "chronicle": None}
    if not shutil.which("bindfs"):
        world.missing["bindfs"] = "not installed"
        kinds.pop("bindfs")
    rounds = 1 if world.small or size > 10_000 else 3
    times = {}
    for number in range(rounds):
        for name, words in kinds.items():
            try:
                mounted(world, at / f"{name}-{number}", name, words, tar, size, times)
            except (Failed, OSError) as error:
                world.fail(f"mount of {size} files by {name}", error)
    for (job, name), taken in times.items():
        world.put(job, size, name, median(taken) * 1e3, "ms")
    shutil.rmtree(at)


def mounted(world, at, name, words, tar, size, times):
    backing, place, home = at / "backing", at / "at", at / "home"
    backing.mkdir(parents=True), place.mkdir()
    env = {**os.environ, "CHRONICLE_HOME": str(home)}
    if name == "chronicle":
        ground.said(world.program("chronicle"), "-C", backing, "init", env=env)
        words = lambda b, p: [world.program("chronicle"), "-C", b, "mount", "--foreground", p]
    server = None
    if words:
        was = os.stat(place).st_dev
        server = subprocess.Popen([str(w) for w in words(backing, place)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while os.stat(place).st_dev == was:
            if time.monotonic() > end or server.poll() is not None:
                server.kill()
                raise Failed("it did not mount")
            time.sleep(0.005)
    try:
        there = place if server else backing
        log = at / "log"
        untar = timed("tar", "xf", tar, "-C", there, log=log)
        if ground.digest(backing / "tree") != ground.digest(tar.parent / "source/tree"):
            raise Failed("what was unpacked is not what was packed")
        find = timed("find", there, "-size", "+100k", log=log)
        for job, seconds in (("untar", untar), ("find", find)):
            times.setdefault((job, name), []).append(seconds)
    finally:
        if server:
            subprocess.run(["umount", "-l", str(place)], capture_output=True)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
    shutil.rmtree(at)
    os.sync()


# --- replication -------------------------------------------------------------------------------

def replication(world, size):
    """One file of 1 KiB is written on one side; until it is durable on the other."""
    from .replicas import Link, Limit
    at = world.place / f"replica-{size}"
    host = at / "host"
    ground.make(host, size)
    rounds = 3 if world.small else 20
    write = lambda number: (host / path(number)).write_bytes(f"{number:>8}".encode() * 128)
    try:
        link = Link(world, at, host)
        try:
            world.put("fill", size, "chronicle", link.filled * 1e3, "ms")
            world.put("replica", size, "chronicle", median([link.change(n, write) for n in range(rounds)]) * 1e3, "ms")
        finally:
            link.close()
    except (Failed, OSError, ValueError) as error:
        world.fail(f"replication of {size} files", error)
    copies(world, at, host, size, write, rounds)
    bare = Limit(at)
    world.put("replica", size, "limit", median([bare.change() for _ in range(rounds)]) * 1e3, "ms")
    bare.close()
    shutil.rmtree(at)


def copies(world, at, host, size, write, rounds):
    """rsync and unison, which look at the whole tree each time, and tar for the first fill."""
    log, again = at / "log", max(rounds // 4, 2)
    other, third = at / "rsync", at / "unison"
    sync = lambda place: timed("sync", "-f", place)
    begin = {"limit": lambda place: timed("sh", "-c", f"mkdir {place} && tar -C {host} -cf - . | tar -C {place} -xf -", log=log)}
    env = {**os.environ, "UNISON": str(at / "unison-state"), "HOME": str(at)}
    to_unison = lambda: timed("unison", host, third, "-batch", "-auto", "-silent", "-confirmbigdel=false", env=env, log=log)
    to_rsync = lambda: timed("rsync", "-a", "--delete", f"{host}/", other, log=log)
    os.sync()
    world.put("fill", size, "limit", (begin["limit"](at / "tarred") + sync(at / "tarred")) * 1e3, "ms", "tar to tar, and a sync")
    shutil.rmtree(at / "tarred")
    for name, copy, place in (("rsync", to_rsync, other), ("unison", to_unison, third)):
        if not shutil.which(name):
            world.missing[name] = "not installed"
            continue
        try:
            os.sync()
            world.put("fill", size, name, (copy() + sync(place)) * 1e3, "ms")
            taken = []
            for number in range(again):
                write((1 + number + (size // 2 if name == "unison" else 0)) % size)
                taken.append(copy() + sync(place))
            if ground.digest(host) != ground.digest(place):
                raise Failed("the copy is not the same")
            world.put("replica", size, name, median(taken) * 1e3, "ms")
        except (Failed, OSError) as error:
            world.fail(f"replication of {size} files by {name}", error)
