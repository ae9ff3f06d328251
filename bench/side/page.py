"""Makes the comparison readable: a short table, pictures, and a table for each job with every peer and size."""
import json, re
from pathlib import Path

from . import peers, plot

# Key, title, unit, what is below it in words.
JOBS = [
    ("edit", "Capture before an edit", "ms", "One file of 4 KiB has changed since the last capture. The limit is starting a process and one durable commit of one file."),
    ("shell", "Capture after a shell command", "ms", "A command changed ten files somewhere; nobody says which. The limits: starting a process and one durable commit; and, for whoever must look, the bare walk."),
    ("first", "First capture", "ms", "Everything is new. The limit is one core that reads, hashes, compresses, appends and syncs once. A Btrfs snapshot copies nothing and protects on the same disk only."),
    ("look", "Unchanged look", "ms", "Nothing has changed; the program finds that out. The limit is two threads that list and stat."),
    ("rewind", "Taking 5 % of the files back", "ms", "The whole process, with its look. The limit writes exactly these files under temporary names, syncs once, and renames. Restored contents are compared."),
    ("store", "Store after 1,000 small edits", "MB", "Growth on disk, in blocks, with one capture for each edit of one line. The limit is the changed lines themselves."),
    ("untar", "Unpacking the tree through a mount", "ms", "The limit is the plain directory; `bare` is our file system with nobody who keeps versions."),
    ("find", "Walking the tree through a mount", "ms", "`find -size` over what was unpacked."),
    ("replica", "Replication of one change", "ms", "1 KiB is written on one side, until it is durable on the other. The limit is a socket, one flush and a rename."),
    ("fill", "First fill of a replica", "ms", "Until everything is durable on the other side. The limit is `tar` to `tar` and a sync."),
    ("freeze", "Freeze of a checkpoint", "ms", "How long PostgreSQL stands still on Btrfs, over the size of the cluster. The limit is `btrfs subvolume snapshot -r` as a process."),
]
LABELS = {**{kind.key: kind.label for kind in peers.ALL}, "limit": "bare limit", "walk": "bare walk", "git-gc": "git after gc",
          "bindfs": "bindfs", "bare": "bare mount", "unison": "unison", "rsync": "rsync"}
ACROSS = {"freeze": "MB in the cluster"}


def figures(told):
    """{job: {peer: {size: value}}}, and the remarks on single cells."""
    found, notes = {}, {}
    for cell in told["cells"]:
        found.setdefault(cell["job"], {}).setdefault(cell["peer"], {})[cell["size"]] = cell["value"]
        if cell["note"]:
            notes.setdefault(cell["job"], {}).setdefault(cell["note"], []).append(f"{LABELS[cell['peer']]} at {cell['size']:,}")
    return found, notes


def pictures(found, directory):
    """Writes one SVG for each job; gives the names."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    made = {}
    for job, title, unit, _ in JOBS:
        if found.get(job):
            made[job] = f"bench-{job}.svg"
            (Path(directory) / made[job]).write_text(plot.growth(title, unit, LABELS, found[job], ACROSS.get(job, "files in the tree")))
    return made


def summary(found, size):
    """One line a job, at one size: ours, the limit, and the peers by how many times longer they take."""
    lines = [f"| at {size:,} files | Chronicle | bare limit | the others, times Chronicle |", "|---|---|---|---|"]
    for job, title, unit, _ in JOBS:
        rows = found.get(job, {})
        at = size if size in rows.get("chronicle", {}) else max(rows.get("chronicle", {0: 0}))
        ours = rows.get("chronicle", {}).get(at)
        if not ours:
            continue
        limit = rows.get("limit", {}).get(at)
        others = {LABELS[k]: v[at] / ours for k, v in rows.items() if k not in ("chronicle", "chronicle-scan", "limit", "walk", "bare") and v.get(at)}
        told = ", ".join(f"{name} {times(ratio)}" for name, ratio in sorted(others.items(), key=lambda o: o[1]))
        what = title if at == size else f"{title} ({at:,} {ACROSS.get(job, 'files')})"
        lines.append(f"| {what} | {plot.tick(ours, unit)} | {plot.tick(limit, unit) if limit else ''} | {told or '-'} |")
    return "\n".join(lines) + "\n"


def times(ratio):
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x" if ratio >= 0.95 else f"{ratio:.2f}x"


def table(found, notes, job, unit):
    rows = found[job]
    sizes = sorted({size for points in rows.values() for size in points})
    lines = ["| | " + " | ".join(f"{s:,}" for s in sizes) + f" | growth {sizes[0]:,} to {sizes[-1]:,} |", "|---" * (len(sizes) + 2) + "|"]
    for peer, points in rows.items():
        name = f"**{LABELS[peer]}**" if peer == "chronicle" else LABELS[peer]
        grown = f"{points[sizes[-1]] / points[sizes[0]]:.1f}x" if points.get(sizes[0], 0) > 0 and sizes[-1] in points else ""
        lines.append(f"| {name} | " + " | ".join(plot.tick(points[s], unit) if s in points else "-" for s in sizes) + f" | {grown} |")
    for note, where in notes.get(job, {}).items():
        lines.append(f"\n{', '.join(where)}: {note}.")
    return "\n".join(lines) + "\n"


def compared(told, images, link):
    """The whole part of the page. Pictures go to `images`, and the page names them below `link`."""
    found, notes = figures(told)
    sizes = told["sizes"]
    middle = sizes[len(sizes) // 2]
    made = pictures(found, images)
    text = [summary(found, middle)]
    if told["missing"]:
        text.append("Missing on the machine, and therefore not in the tables: " + ", ".join(f"{n} ({w})" for n, w in sorted(told["missing"].items())) + ".\n")
    for remark in told.get("remarks", []):
        text.append(f"- {remark}\n")
    text.append("Each peer, and what is timed:\n\n" + "\n".join(f"- **{kind.label}**: {kind.how}" for kind in peers.ALL if kind.label not in told["missing"]) + "\n")
    for job, title, unit, words in JOBS:
        if job in made:
            text.append(f"### {title}\n\n{words}\n\n![{title}, by size]({link}/{made[job]})\n\n{table(found, notes, job, unit)}")
    if told["failures"]:
        text.append("**Failed in this run:**\n\n" + "\n".join(f"- {failure}" for failure in told["failures"]) + "\n")
    return "\n".join(text)


def rows_of(text):
    """The rows of a table of chronicle-bench: what, ours, beside, ratio, bound, verdict."""
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(parts) == 6 and parts[0] not in ("what", "---"):
            found.append(parts)
    return found


def freezes(told, text):
    """Takes what the checkpoints' table says of freezes into the comparison."""
    for what, ours, beside, *_ in rows_of(text):
        if what.startswith("freeze of a cluster of") and "subvolume snapshot" in beside:
            amount, unit = what.split(" of ")[2].split(" on ")[0].split(" ")
            size = int(float(amount) * (1000 if unit == "GB" else 1))
            for peer, figure in (("chronicle", ours), ("limit", beside)):
                told["cells"].append({"job": "freeze", "size": size, "peer": peer, "value": float(figure.split(" ")[0]), "unit": "ms", "note": ""})


def load(path):
    return json.loads(Path(path).read_text())


def between(path, marker, text):
    """Puts text between two markers of a document."""
    whole = Path(path).read_text()
    before, rest = whole.split(f"<!-- {marker}:begin -->\n", 1)
    after = rest.split(f"<!-- {marker}:end -->", 1)[1]
    Path(path).write_text(f"{before}<!-- {marker}:begin -->\n\n{text.strip()}\n\n<!-- {marker}:end -->{after}")
