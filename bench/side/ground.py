"""Trees that are measured, processes that are timed, and file systems that are made for it."""
import hashlib, os, random, re, shutil, statistics, subprocess, time
from pathlib import Path

PER_DIRECTORY = 100
SIZE = 4096


class Failed(Exception):
    """A program ended as it should not, or left what it should not."""


def path(number):
    directory = number // PER_DIRECTORY
    return f"part{directory // 100}/d{directory}/file{number}.rs"


WORDS = [f"w{n * 7919 % 65536:x}" + (";\n    " if n % 11 == 0 else " ") for n in range(4096)]


def content(number, version=0):
    """4 KiB of words that compress about as sources do, the same for the same number and version."""
    return "".join(random.Random(number << 20 ^ version).choices(WORDS, k=SIZE // 5))[:SIZE].encode()


def make(top, files):
    for number in range(files):
        place = top / path(number)
        if number % PER_DIRECTORY == 0:
            place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content(number))
    os.sync()


def warm(top):
    """Reads everything, so that nobody pays for one who dropped it from the cache."""
    for here, _, files in os.walk(top):
        for name in files:
            with open(os.path.join(here, name), "rb") as file:
                file.read()


def timed(*words, env=None, cwd=None, stdin="/dev/null", log=None, codes=(0,)):
    """Seconds from starting a process to its end. It is started without copying this one, which would count."""
    words = [os.fspath(word) for word in words]
    log = os.fspath(log or "/dev/null")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.fspath(stdin), os.O_RDONLY, 0),
               (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o644), (os.POSIX_SPAWN_DUP2, 1, 2)]
    program, back = shutil.which(words[0]) or words[0], os.getcwd()
    if cwd:
        os.chdir(cwd)
    try:
        begun = time.perf_counter()
        child = os.posix_spawn(program, words, {k: str(v) for k, v in (env or os.environ).items()}, file_actions=actions)
        _, status = os.waitpid(child, 0)
        seconds = time.perf_counter() - begun
    finally:
        os.chdir(back)
    if os.waitstatus_to_exitcode(status) not in codes:
        said = Path(log).read_text(errors="replace")[-600:] if log != "/dev/null" else ""
        raise Failed(f"{' '.join(words)[:200]} ended with {os.waitstatus_to_exitcode(status)}: {said.strip()}")
    return seconds


def said(*words, env=None, cwd=None):
    done = subprocess.run([os.fspath(w) for w in words], env=env, cwd=cwd, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise Failed(f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    return done.stdout.strip()


def used(top):
    """Bytes that the disk loses to what lies below."""
    total = 0
    for here, directories, files in os.walk(top):
        for name in directories + files:
            total += os.lstat(os.path.join(here, name)).st_blocks * 512
    return total


def must_be(top, numbers, version=0):
    for number in numbers:
        if (top / path(number)).read_bytes() != content(number, version):
            raise Failed(f"{path(number)} is not what it should be")


def digest(top, leave_out=()):
    """One value for every name and content below, but for what a peer keeps there itself."""
    whole = hashlib.sha256()
    for here, directories, files in os.walk(top):
        directories[:] = sorted(d for d in directories if d not in leave_out)
        for name in sorted(files):
            place = os.path.join(here, name)
            whole.update(os.path.relpath(place, top).encode() + b"\0" + Path(place).read_bytes())
    return whole.hexdigest()


def median(values):
    return statistics.median(values)


class Image:
    """A file system of its own on a loop device, for as long as this lives."""

    def __init__(self, near, kind, size):
        self.file, self.at = Path(f"{near}.image"), Path(near)
        self.at.mkdir(parents=True, exist_ok=True)
        with open(self.file, "wb") as file:
            file.truncate(size)
        env = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        timed("mkfs." + kind, *(["-q", "-F"] if kind == "ext4" else ["-q"]), self.file, env=env, log=f"{near}.log")
        timed("mount", "-o", "loop,relatime", self.file, self.at, env=env, log=f"{near}.log")

    def close(self):
        subprocess.run(["umount", "-l", str(self.at)], capture_output=True)
        self.file.unlink(missing_ok=True)


def find_program(name, tools):
    """On the path, or where `./test` and `bench/run` put what they build."""
    beside = Path(tools) / name / "bin" / name
    for place in [shutil.which(name), beside, *Path(tools).glob(f"*/bin/{name}")]:
        if place and os.access(place, os.X_OK):
            return str(place)
    return None


def versions(names, tools):
    """One line of what is installed, as each tells it."""
    found = []
    for name in names:
        program = find_program(name, tools)
        if not program:
            continue
        words = [program, "version" if name == "restic" else "-version" if name == "unison" else "--version"]
        told = subprocess.run(words, capture_output=True, text=True, timeout=30)
        number = re.search(r"\d+\.\d+(\.\d+)*", told.stdout + told.stderr)
        found.append(f"{'agent-undo' if name == 'au' else name} {number.group(0) if number else '?'}")
    return ", ".join(found)
