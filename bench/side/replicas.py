"""A host and a replica of it as processes, and the least that any program must do between them."""
import json, os, shutil, socket, subprocess, time
from pathlib import Path

from .ground import Failed, path, said


class Link:
    """Each side has a home of its own, as on two machines: in one store nothing would have to travel."""

    def __init__(self, world, at, host):
        self.host, self.replica, self.children = host, at / "replica", []
        home, own = at / "home-host", at / "home-replica"
        self.program = world.program("chronicle")
        self.env = {**os.environ, "CHRONICLE_HOME": str(home), "HOME": str(at)}
        self.own = {**self.env, "CHRONICLE_HOME": str(own)}
        said(self.program, "-C", host, "init", env=self.env)
        gate = home / "host.sock"
        self.serve(gate)
        os.sync()
        begun = time.perf_counter()
        said(self.program, "connect", "--socket", gate, "--once", self.replica, env=self.own, cwd=host)
        self.filled = time.perf_counter() - begun
        self.trace_file = at / "trace"
        self.trace_file.touch()
        self.trace = open(self.trace_file)
        words = [self.program, "connect", "--socket", str(gate), "--trace", str(self.trace_file), str(self.replica)]
        self.children.append(subprocess.Popen(words, env=self.own, cwd=host, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.wait("welcome")

    def serve(self, gate):
        words = [self.program, "-C", str(self.host), "serve", "--json", "--socket", str(gate)]
        serving = subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.children.append(serving)
        if not serving.stdout.readline():
            raise Failed("nobody serves")

    def wait(self, event):
        """When it was, in seconds since 1970."""
        end, line = time.monotonic() + 120, ""
        while time.monotonic() < end:
            line += self.trace.readline()
            if not line.endswith("\n"):
                time.sleep(0.0002)
                continue
            told, line = json.loads(line), ""
            if told["event"] == event:
                return told["time_ns"] / 1e9
        raise Failed("the replica does not go on")

    def change(self, number, write):
        """Seconds from a write to what is durable on the other side."""
        begun = time.time()
        write(number)
        want, there = (self.host / path(number)).read_bytes(), self.replica / path(number)
        while True:
            at = self.wait("applied")
            if at > begun and there.read_bytes() == want:
                return at - begun

    def close(self):
        self.trace.close() if hasattr(self, "trace") else None
        for child in reversed(self.children):
            child.kill()
            child.wait()


class Limit:
    """The bytes over a socket, a new file, synced and renamed, and a word back, from another process."""

    def __init__(self, at):
        self.mine, theirs = socket.socketpair()
        self.source, self.place = at / "bare-host", at / "bare-replica"
        self.child = os.fork()
        if not self.child:
            self.mine.close()
            self.serve(theirs)
            os._exit(0)
        theirs.close()

    def serve(self, theirs):
        while True:
            content = theirs.recv(1024, socket.MSG_WAITALL)
            if not content:
                return
            beside = f"{self.place}.new"
            with open(beside, "wb") as file:
                file.write(content)
                file.flush()
                os.fdatasync(file.fileno())
            os.rename(beside, self.place)
            theirs.send(b".")

    def change(self):
        content = os.urandom(1024)
        begun = time.perf_counter()
        self.source.write_bytes(content)
        self.mine.sendall(content)
        self.mine.recv(1)
        return time.perf_counter() - begun

    def close(self):
        self.mine.close()
        os.waitpid(self.child, 0)
