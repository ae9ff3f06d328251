"""A real S3 server and a real PostgreSQL for measuring, which count what is asked of them and end with this process."""
import os, pwd, re, shutil, socket, subprocess, time, urllib.request
from pathlib import Path

from .ground import Failed, find_program, said

# Root runs no PostgreSQL; ./test makes the first of these users, distributions the second.
USERS = ("chronicle-test", "postgres")


def wait(what, ready, seconds=60):
    end = time.monotonic() + seconds
    while True:
        found = ready()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"{what} did not come")
        time.sleep(0.05)


class Moto:
    """Requests by what they cost: writes (with listings), reads, and deletions, which are free."""

    @staticmethod
    def program(tools):
        return find_program("moto_server", tools)

    def __init__(self, place, tools):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = Path(place) / "requests.log"
        words = [self.program(tools), "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=open(self.log, "w"))
        self.endpoint = f"http://127.0.0.1:{self.port}"
        wait("the S3 server", self.make_bucket)

    def ask(self, method, route):
        head = {"Authorization": "AWS4-HMAC-SHA256 Credential=access/20261116/us-east-1/s3/aws4_request"}
        with urllib.request.urlopen(urllib.request.Request(self.endpoint + route, method=method, headers=head), timeout=30) as answer:
            return answer.read().decode()

    def make_bucket(self):
        try:
            self.ask("PUT", "/bucket")
            return True
        except OSError:
            return False

    def requests(self):
        counted = {"writes": 0, "reads": 0, "free": 0}
        for method, route in re.findall(r'"([A-Z]+) (\S*) HTTP/1\.1"', self.log.read_text(errors="replace")):
            listing = method == "GET" and "list-type" in route
            # Only what goes to the bucket: what is asked here is marked.
            if "by=bench" not in route and route != "/bucket":
                counted["writes" if method in ("PUT", "POST") or listing else "free" if method == "DELETE" else "reads"] += 1
        return counted

    def bytes(self):
        """What lies there, and in how many objects."""
        total, count, after = 0, 0, ""
        while True:
            text = self.ask("GET", f"/bucket?list-type=2&by=bench{after}")
            sizes = [int(size) for size in re.findall(r"<Size>(\d+)</Size>", text)]
            total, count = total + sum(sizes), count + len(sizes)
            more = re.search(r"<NextContinuationToken>([^<]+)<", text)
            if not more:
                return total, count
            after = f"&continuation-token={more.group(1)}"

    def close(self):
        self.process.kill()
        self.process.wait()


class Postgres:
    """A cluster in a directory of its own, reached through a socket only."""

    @staticmethod
    def missing():
        if not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
            return "PostgreSQL is not installed"
        if os.geteuid() == 0 and not Postgres.user():
            return f"needs one of the users {', '.join(USERS)}"
        return None

    @staticmethod
    def user():
        known = {entry.pw_name for entry in pwd.getpwall()}
        return next((name for name in USERS if name in known), None)

    def __init__(self, place):
        self.place = Path(place) / "postgres"
        self.place.mkdir(mode=0o755)
        self.bin = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))[-1]
        self.owner = self.user() if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(self.place, self.owner)
        self.as_owner("initdb", "-D", self.place / "data", "-A", "trust", "-E", "UTF8", "--locale=C")
        options = f"-k {self.place} -c listen_addresses= -c unix_socket_permissions=0777 -c shared_buffers=32MB"
        self.as_owner("pg_ctl", "-D", self.place / "data", "-l", self.place / "log", "-w", "-o", options, "start")
        self.url = f"postgres://{self.owner}@{str(self.place).replace('/', '%2F')}/postgres"

    def as_owner(self, program, *words):
        to = ["setpriv", f"--reuid={self.owner}", f"--regid={self.owner}", "--clear-groups"] if os.geteuid() == 0 else []
        # A server keeps what it inherits open, and a pipe would never end.
        done = subprocess.run([*to, str(self.bin / program), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, cwd="/", timeout=120)
        if done.returncode:
            raise Failed(f"{program} ended with {done.returncode}")

    def ask(self, query):
        return said("psql", "-h", self.place, "-U", self.owner, "-d", "postgres", "-Atc", query)

    def figures(self):
        count = lambda table: int(self.ask(f"select count(*) from chronicle.{table}"))
        return {"records": count("records"), "commits": count("commits"),
                "wal": int(self.ask("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")),
                "table": int(self.ask("select sum(pg_total_relation_size(c.oid))::bigint from pg_class c join pg_namespace n on n.oid = relnamespace"
                                      " where nspname = 'chronicle' and relkind = 'r'"))}

    def close(self):
        try:
            self.as_owner("pg_ctl", "-D", self.place / "data", "-m", "immediate", "stop")
        except (Failed, subprocess.SubprocessError):
            pass
