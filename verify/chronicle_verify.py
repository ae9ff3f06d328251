#!/usr/bin/env python3
"""Checks a Chronicle history without Chronicle: written from docs/format.md alone.

usage: chronicle_verify.py HOME/workspaces/ID [--anchor HEAD] [--witness FILE] [--key PUBLIC]

HEAD is a file with a signed head, its text, or SIZE:ROOT. Exit 0: everything fits. Exit 12: something
was changed; the first bad record and what was done to it are printed.
"""
import argparse
import base64
import datetime
import hashlib
import os
import shutil
import sqlite3
import sys
import tempfile


class Bad(Exception):
    """What was done, where, and why we think so."""


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


# ---- Ed25519 (RFC 8032), plain and slow -------------------------------------------------------------
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def add(a, b):
    left, right = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = right - left, d - c, d + c, right + left
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(scalar, point):
    total = (0, 1, 1, 0)
    while scalar:
        total = add(total, point) if scalar & 1 else total
        point, scalar = add(point, point), scalar >> 1
    return total


def unpack(data):
    number = int.from_bytes(data, "little")
    y, sign = number % 2**255, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x * ROOT % P if (x * x - square) % P else x
    if y >= P or (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return (x, y, 1, x * y % P)


BASE = unpack((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed_by(key, message, signature):
    point, nonce, scalar = unpack(key), unpack(signature[:32]), int.from_bytes(signature[32:], "little")
    if not point or not nonce or scalar >= L:
        return False
    hashed = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % L
    a, b = times(scalar, BASE), add(nonce, times(hashed, point))
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


# ---- heads ------------------------------------------------------------------------------------------
MARK = "\u2014 chronicle "


def read_head(text):
    """A signed head as a dictionary; None if it is not one, or its own key did not sign it."""
    try:
        note, line = text.split("\n\n")
        lines = note.split("\n")
        origin, log = lines[0].split(" ")
        workspace, epoch = log.split("/")
        head = dict(workspace=bytes.fromhex(workspace), epoch=bytes.fromhex(epoch), text=text)
        head.update(size=int(lines[1]), root=base64.b64decode(lines[2], validate=True))
        words = [entry.split(" ") for entry in lines[3:]]
        if origin != "chronicle/1" or [word[0] for word in words] != ["link", "time", "after", "key"]:
            return None
        head.update(link=bytes.fromhex(words[0][1]), after=int(words[2][1]))
        head.update(key=base64.b64decode(words[3][1], validate=True))
        return head if read_note(note, line, head["key"]) else None
    except (ValueError, IndexError):
        return None


def read_note(note, line, key):
    """Whether the last line of a note is the signature of a key over the lines before."""
    if not line.startswith(MARK) or not line.endswith("\n"):
        return False
    sealed = base64.b64decode(line[len(MARK):-1], validate=True)
    named = sealed[:4] == sha(b"chronicle\n\x01", key)[:4]
    return named and len(sealed) == 68 and signed_by(key, (note + "\n").encode(), sealed[4:])


ACTS = {12: "prune", 13: "forget", 14: "operator"}


def refused(said, operator, used):
    """Why a record has not the grant of the operator that it needs."""
    text = said[5].get(27)
    if text is None:
        return "it has no grant of the operator"
    try:
        note, line = text.decode().split("\n\n")
        first, *rest = note.split("\n")
        words = dict(entry.split(" ", 1) for entry in rest)
        key = base64.b64decode(words["key"], validate=True)
        until = datetime.datetime.fromisoformat(words["until"].replace("Z", "+00:00")).timestamp()
        if not read_note(note, line, key):
            return "its grant was not signed"
    except (ValueError, KeyError):
        return "its grant was not signed"
    if key != operator:
        return "its grant is not the operator's"
    log = f"chronicle-grant/1 {said[1].hex()}/{said[2].hex()}"
    if first != log or words["act"] != ACTS[said[0]] or until * 10**9 < said[6]:
        return "its grant is for something else"
    if said[0] != 12 and words["nonce"] in used:
        return "its grant was used before"
    used.add(words["nonce"])
    return None


def heads_in(text, workspace):
    """The heads of a workspace in a witness's file; the first signed one decides whose key counts."""
    heads = []
    for part in ("\n" + text).split("\nchronicle/1 ")[1:]:
        end = part.find("\n", part.find(MARK))
        head = read_head("chronicle/1 " + part[:end + 1]) if MARK in part else None
        if head and head["workspace"] == workspace and (not heads or head["key"] == heads[0]["key"]):
            heads.append(head)
    return sorted(heads, key=lambda head: head["size"])


# ---- records ----------------------------------------------------------------------------------------
def integer(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def read_leaf(leaf):
    """Kind, workspace, epoch, seq, the commitments, the labels and the time of a record."""
    if leaf[0] != 1:
        raise ValueError("a newer format")
    seq, at = integer(leaf, 34)
    time, at = integer(leaf, at)
    count, at = integer(leaf, at)
    labels = {}
    for _ in range(count):
        length, start = integer(leaf, at + 1)
        labels[leaf[at]], at = leaf[start:start + length], start + length
    count, at = integer(leaf, at)
    if len(leaf) != at + 32 * count:
        raise ValueError("bytes are left over")
    commitments = [leaf[at + 32 * number:at + 32 * number + 32] for number in range(count)]
    return leaf[1], leaf[2:18], leaf[18:34], seq, commitments, labels, time >> 1 ^ -(time & 1)


def pruned_by(leaf):
    """The ranges that a prune names: first, last, and how many changes stand for it (None: dropped)."""
    data, at, end, ranges = read_leaf(leaf)[5].get(23, b""), 0, 0, []
    while at < len(data):
        step, at = integer(data, at)
        more, at = integer(data, at)
        count, at = integer(data, at)
        ranges.append((end + step, end + step + more, count - 1 if count else None))
        end += step + more
    return ranges


class Pruned:
    """Which records may have lost what they said, and to which prune or forget."""

    def __init__(self, query):
        self.query, self.ranges, self.forgotten = query, [], forgotten_by(query)
        for seq, leaf in query("SELECT seq, leaf FROM record WHERE kind = 12 ORDER BY seq").fetchall():
            try:
                self.ranges += [(seq, *found) for found in pruned_by(leaf)]
            except (ValueError, IndexError):
                pass  # one that cannot be read vouches for nothing

    def covering(self, seq):
        """The newest word on a record: by which prune, and the range."""
        words = (word for word in reversed(self.ranges) if word[0] > seq and word[1] <= seq <= word[2])
        return next(words, None)

    def may_lack_leaf(self, seq):
        word = self.covering(seq)
        return word is not None and (word[3] is None or word[2] > seq)

    def may_lack_body(self, seq, said):
        if said[0] == 12:  # all that it merged was dropped or merged again since
            mine = [word for word in self.ranges if word[0] == seq and word[3] is not None]
            return all(any(word[0] > seq and word[1] <= last <= word[2] for word in self.ranges)
                       for _, _, last, _ in mine)
        found = self.query("SELECT prune, first, seq, count FROM merged WHERE seq = ?", seq).fetchone()
        return found is not None and tuple(found) == self.covering(seq)


def references(data):
    """The changes that a label names: the record, and the place in it."""
    at, seq, place, found = 0, 0, 0, []
    while at < len(data):
        step, at = integer(data, at)
        more, at = integer(data, at)
        seq, place = seq + step, more if step else place + more
        found.append((seq, place))
    return found


def changes_in(body):
    """The salt and the bytes of each change of a body."""
    at = 0
    while at < len(body):
        length, start = integer(body, at + 16)
        yield body[at:at + 16], body[start:start + length]
        at = start + length


def zstd():
    """How to decompress, alone and against a base."""
    try:
        from compression.zstd import ZstdDict, decompress
        return decompress, lambda data, base: decompress(data, ZstdDict(base, is_raw=True))
    except ImportError:
        import zstandard
        raw = lambda base: zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        return (lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
                lambda data, base: zstandard.ZstdDecompressor(dict_data=raw(base)).decompressobj().decompress(data))


def whole_body(kept, packed):
    """The body that a row keeps; as it is kept, which fits no commitment, if it cannot be unpacked."""
    if not packed or not kept:
        return kept
    try:
        decompress = zstd()[0]
    except ImportError as missing:
        sys.exit(f"Long records are compressed: install the Python module {missing.name}")
    try:
        body = decompress(bytes(kept))
    except Exception:
        return kept
    return body if len(body) == packed else kept


def forgotten_by(query):
    """What the newest forget that names a change says in its place."""
    said = {}
    forgets = "SELECT seq, leaf, body, packed FROM record WHERE kind = 13 ORDER BY seq"
    for seq, leaf, kept, packed in query(forgets).fetchall():
        body = whole_body(kept, packed)
        try:
            named = references(read_leaf(leaf)[5].get(25, b""))
            said.update({at: new for at, (_, new) in zip(named, changes_in(body)) if at[0] < seq})
        except (ValueError, IndexError):
            pass  # one that cannot be read vouches for nothing
    return said


def says(row):
    """What a record says of itself, if its leaf is what was hashed."""
    if row is None or sha(b"\x00", row["leaf"]) != row["leaf_hash"]:
        return None
    try:
        return read_leaf(row["leaf"])
    except (ValueError, IndexError):
        return None


def body_fits(row, commitments, forgotten):
    at, body = 0, whole_body(row["body"], row["packed"])
    try:
        for place, commitment in enumerate(commitments):
            length, start = integer(body, at + 16)
            salt, change = body[at:at + 16], body[start:start + length]
            redacted = salt == bytes(16) and forgotten.get((row["seq"], place)) == change
            if sha(b"\x02", salt, change) != commitment and not redacted:
                return False
            at = start + length
    except IndexError:
        return False
    return at == len(body)


def check_changes(row, said, pruned):
    """The changes of a record, or what a prune left of them."""
    if said is None:
        return "the record cannot be read"
    if said[4] and not row["body"]:
        lawful = pruned.may_lack_body(row["seq"], said)
        return None if lawful else "its changes are missing, and no prune took them"
    if not body_fits(row, said[4], pruned.forgotten):
        return "its changes are not the ones that were recorded"
    if said[0] == 12 and len(said[4]) != sum(found[2] or 0 for found in pruned_by(row["leaf"])):
        return "it does not hold what it merged"
    if said[0] == 13 and len(said[4]) != len(references(said[5].get(25, b""))):
        return "it does not hold what it put in the place of others"
    return None


def check_row(row, seq, previous, log, pruned):
    if not row["leaf"] and not pruned.may_lack_leaf(seq):
        return "what the record said is missing, and no prune dropped it"
    if row["leaf"] and sha(b"\x00", row["leaf"]) != row["leaf_hash"]:
        return "the record was edited"
    if sha(b"\x03", previous, row["leaf_hash"]) != row["link"]:
        return "the record does not follow the one before it"
    if not row["leaf"]:
        return None
    said = says(row)
    why = check_changes(row, said, pruned)
    if why:
        return why
    if said[3] != seq or said[1:3] != log or said[0] != row["kind"]:
        return "the record belongs to another place"
    return None


def diagnose(row_at, seq, why, log, end):
    """Names what was done where a record does not fit."""
    row = row_at(seq)
    place = lambda number: (says(row_at(number)) or [None] * 4)[3]
    if row is None or not row["leaf"]:
        return Bad("deleted", seq, "the record is missing")
    said, moved = says(row), place(seq + 1) == seq
    if said is None or said[3] == seq and said[1:3] == log:
        return Bad("inserted" if moved else "edited", seq, why)
    if said[1:3] != log:
        return Bad("foreign", seq, "the record belongs to another log")
    claims = said[3]
    if claims < seq:
        copy = (row_at(claims) or {}).get("leaf_hash") == row["leaf_hash"]
        return Bad("inserted", seq if copy else claims, "a record was inserted")
    if place(claims) == seq:
        return Bad("swapped", seq, f"it was swapped with record {claims}")
    if any(place(other) == seq for other in range(seq + 1, end + 1)):
        return Bad("reordered", seq, f"record {claims} stands in its place")
    return Bad("deleted", seq, "the record is missing, and later ones were moved up")


# ---- the whole history ------------------------------------------------------------------------------
def fold(peaks):
    root = peaks[-1] if peaks else sha()
    for peak in reversed(peaks[:-1]):
        root = sha(b"\x01", peak, root)
    return root


def push(peaks, nodes, size, leaf):
    """Appends a leaf to a tree of that size, kept as its peaks; notes the nodes that are stored."""
    level, hashed = 0, leaf
    while size >> level & 1:
        hashed, level = sha(b"\x01", peaks.pop(), hashed), level + 1
        if level % 8 == 0:
            nodes[(level, (size + 1 >> level) - 1)] = hashed
    peaks.append(hashed)


def outside(who, head, good, log):
    """Compares a head that was kept elsewhere; one of an earlier life may have another key."""
    if "key" in head and head["key"] != log["key"] and head["epoch"] == log["epoch"]:
        raise Bad("other_key", good + 1, f"{who} has a head signed with another key")
    life = max((life for life in log["lives"] if life[0] <= head["size"]), default=(0, None))[1]
    if "epoch" in head and head["size"] <= log["end"] and head["epoch"] != life:
        raise Bad("forked", good + 1, f"{who} saw another life of this log")
    if head["size"] > log["end"]:
        raise Bad("rolled_back", log["end"] + 1, f"{who} saw {head['size']} records, here are {log['end']}")
    at = log["at"].get(head["size"], (sha(), bytes(32)))
    if at[0] != head["root"] or at[1] != head.get("link", at[1]):
        raise Bad("forked", good + 1, f"{who} saw other records up to {head['size']}")


def verify(db, anchor, witnesses, key):
    db.row_factory, db.text_factory = sqlite3.Row, bytes
    columns = "seq, kind, leaf_hash, link, leaf, body, packed"
    query = lambda sql, *values: db.execute(sql, values)
    fields = lambda row: None if row is None else dict(zip(columns.split(", "), row))
    row_at = lambda seq: fields(query(f"SELECT {columns} FROM record WHERE seq = ?", seq).fetchone())
    state = {bytes(key).decode(): bytes(value) for key, value in query("SELECT key, value FROM state")}
    name, lives = (state["workspace"], b""), []
    end = query("SELECT max(seq) FROM record").fetchone()[0] or 0
    pruned, previous, seq, peaks, nodes, at = Pruned(query), bytes(32), 0, [], {}, {}
    for row in map(fields, query(f"SELECT {columns} FROM record ORDER BY seq")):
        if row["kind"] == 0 and len(row["leaf"]) >= 34:
            name = (name[0], bytes(row["leaf"][18:34]))
            lives.append((row["seq"], name[1]))
        why = "the record is missing" if row["seq"] != seq + 1 else check_row(row, seq + 1, previous, name, pruned)
        if why:
            raise diagnose(row_at, seq + 1, why, name, end)
        push(peaks, nodes, seq, row["leaf_hash"])
        previous, seq = row["link"], seq + 1
        at[seq] = (fold(peaks), previous)
    mentioned = max(query(f"SELECT max(seq) FROM {table}").fetchone()[0] or 0 for table in ("touched", "by_id"))
    if mentioned > end:
        raise Bad("truncated", end + 1, f"the newest records were cut off: record {mentioned} is spoken of")
    if lives and name[1] != state["epoch"]:
        raise Bad("foreign", lives[-1][0], "this log says that it is in another life")
    log = dict(end=end, epoch=state["epoch"], lives=lives, key=state.get("head_key"), at=at)
    if key and log["key"] and key != log["key"]:
        first = query("SELECT min(size) FROM head").fetchone()[0] or 1
        raise Bad("other_key", first, "its heads are signed with another key than the one given")
    good, stored = 0, {}
    for size, note, packed in query("SELECT size, note, peaks FROM head ORDER BY size").fetchall():
        head = read_head(bytes(note).decode(errors="replace"))
        if head is None or head["size"] != size:
            raise Bad("head_edited", size, "its head is not what was signed")
        if head["key"] != log["key"]:
            raise Bad("other_key", size, "its head is signed with another key")
        if (head["workspace"], head["epoch"]) != name:
            raise Bad("head_edited", size, "its head is of another log")
        if head["after"] != good:
            raise Bad("head_dropped", head["after"], f"the head over {head['after']} is gone")
        if size > end:
            raise Bad("truncated", end + 1, f"a head was signed over {size} records")
        if at[size] != (head["root"], head["link"]):
            raise Bad("rechained", good + 1, f"records up to {size} are not what its head was signed for")
        if fold([packed[n:n + 32] for n in range(0, len(packed), 32)]) != head["root"]:
            raise Bad("head_edited", size, "the peaks beside its head were changed")
        good, stored[size] = size, head
    for (taking,) in query("SELECT seq FROM record WHERE kind IN (12, 13) ORDER BY seq").fetchall():
        if stored and taking > min(stored) and taking not in stored:
            raise Bad("unsigned", taking, "it takes history away, and nobody signed that")
    operator, used = None, set()
    for (leaf,) in query("SELECT leaf FROM record WHERE kind IN (12, 13, 14) ORDER BY seq").fetchall():
        said = read_leaf(leaf)
        why = refused(said, operator, used) if operator else None
        if why:
            raise Bad("ungranted", said[3], f"it takes history away, and {why}")
        operator = said[5].get(26) if said[0] == 14 else operator
    due = {place: node for place, node in nodes.items() if place[1] + 1 << place[0] <= good}
    kept = {(row[0], row[1]): row[2] for row in query("SELECT level, number, hash FROM node")}
    for level, number in sorted(due.keys() | kept.keys()):
        if due.get((level, number)) != kept.get((level, number)):
            raise Bad("node_edited", (number << level) + 1, f"node {number} at level {level} is wrong")
    for path in witnesses:
        with open(path, encoding="utf-8", errors="replace") as file:
            last, dropped = 0, []
            for head in heads_in(file.read(), name[0]):
                if stored.get(head["size"], {}).get("text") != head["text"]:
                    outside(f"witness file {path}", head, last, log)
                    dropped += [head["size"]] * (head["epoch"] == log["epoch"])
                last = head["size"]
            if dropped:
                raise Bad("head_dropped", dropped[0], f"the head that witness file {path} saw is gone")
    if anchor:
        before = [size for size in stored if size < anchor["size"]]
        outside("the anchor", anchor, max(before, default=0), log)
    print(f"History verifies: {end} records, {len(stored)} signed heads, head {previous.hex()}")
    gone = query("SELECT count(*) FROM record WHERE length(leaf) = 0").fetchone()[0]
    if pruned.forgotten:
        print(f"{len(pruned.forgotten)} changes were made to say less, as records of kind 13 tell")
    if gone:
        print(f"{gone} of them were pruned: only their hashes are left, as {len(pruned.ranges)} ranges say")


# ---- objects ----------------------------------------------------------------------------------------
def stored_objects(db, store, decompress):
    """Name and stored form of every object: in the catalog, in packs, in files of their own.

    What lies in a group gets the form that it would have by itself."""
    yield from ((bytes(name), bytes(form)) for name, form in db.execute("SELECT id, stored FROM object"))
    for path, _, names in os.walk(store):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                data = file.read() if name.endswith(".idx") or len(name) == 64 else b""
            if len(name) == 64:
                yield bytes.fromhex(name), data
            last = None, ()
            entries = [data[at:at + 44] for at in range(16 + 1024, len(data) - 32, 44)] if name.endswith(".idx") else []
            for entry in sorted(entries, key=lambda entry: entry[32:38][::-1]):
                offset, member, length = (int.from_bytes(entry[a:b], "little") for a, b in ((32, 38), (38, 40), (40, 44)))
                with open(os.path.join(path, name[:-3] + "pack"), "rb") as pack:
                    pack.seek(offset)
                    form = pack.read(length)
                if form[:1] == b"\x05":
                    if last[0] != offset:
                        last = offset, members_of(form, decompress)
                    content = last[1][member] if member < len(last[1]) else b""
                    form = bytes(1) + len(content).to_bytes(8, "little") + content
                yield entry[:32], form


def members_of(form, decompress):
    """The contents of a group: none where it does not add up, which makes every member's hash wrong."""
    count = int.from_bytes(form[10:12], "little")
    lengths = [int.from_bytes(form[at:at + 4], "little") for at in range(12, 12 + 4 * count, 4)]
    try:
        content = decompress(form[12 + 4 * count:]) if form[9] else form[12 + 4 * count:]
    except Exception:
        return []
    if sum(lengths) != len(content) or len(content) != int.from_bytes(form[1:9], "little"):
        return []
    ends = [sum(lengths[:number + 1]) for number in range(count)]
    return [content[end - length:end] for end, length in zip(ends, lengths)]


def read_objects(db, store):
    try:
        import blake3
        decompress, against = zstd()
    except ImportError as missing:
        return print(f"The objects were not read: there is no module {missing.name}")
    count = sealed = 0
    def leans_on(form):  # the names of what it cannot be read without
        if form[0] == 4:
            return [form[at:at + 32] for at in range(9 + 14, len(form), 36)]
        return [form[10:42]] if form[0] == 3 else []

    below = {name for _, form in stored_objects(db, store, decompress) for name in leans_on(form)}
    forms = {name: form for name, form in stored_objects(db, store, decompress) if name in below}

    def content_of(form, above=33):
        if form[0] == 4 and above == 0:
            raise ValueError("a piece is in pieces itself")
        if form[0] == 4:
            return b"".join(content_of(forms[name], 0) for name in leans_on(form))
        if form[0] != 3:
            return decompress(form[9:]) if form[0] else form[9:]
        if form[9] >= above:
            raise ValueError("the versions that it stands on are no chain")
        return against(form[42:], content_of(forms[form[10:42]], form[9]))

    for name, form in stored_objects(db, store, decompress):
        if form[0] == 2:
            sealed += 1
            continue
        try:
            content = content_of(form)
        except Exception as error:  # whatever a decompressor makes of bytes that are none
            raise Bad("corrupt_object", None, f"object {name.hex()}: {error}")
        if len(content) != int.from_bytes(form[1:9], "little") or blake3.blake3(content).digest() != name:
            raise Bad("corrupt_object", None, f"the bytes of object {name.hex()} have another hash")
        count += 1
    print(f"{count} objects were read" + (f", {sealed} are sealed and were not checked" if sealed else ""))


def read_anchor(given):
    text = given
    if "\n" not in given and os.path.exists(given):
        with open(given, encoding="utf-8", errors="replace") as file:
            text = file.read()
    size, _, root = text.strip().partition(":")
    if size.isdigit() and root:
        data = bytes.fromhex(root) if len(root) == 64 else base64.b64decode(root, validate=True)
        return dict(size=int(size), root=data)
    return read_head(text.strip() + "\n") or sys.exit("The anchor is no signed head")


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("directory", help="HOME/workspaces/ID")
    words.add_argument("--anchor", help="a signed head, a file with one, or SIZE:ROOT")
    words.add_argument("--witness", action="append", default=[], help="a file that heads were appended to")
    words.add_argument("--key", help="the public key that heads should be signed with, in base64")
    given = words.parse_args()
    key = base64.b64decode(given.key) if given.key else None
    anchor = read_anchor(given.anchor) if given.anchor else None
    # A copy with its write-ahead log: nothing that is looked at is touched.
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("catalog.db", "catalog.db-wal"):
            if os.path.exists(os.path.join(given.directory, name)):
                shutil.copy(os.path.join(given.directory, name), scratch)
        try:
            db = sqlite3.connect(os.path.join(scratch, "catalog.db"))
            verify(db, anchor, given.witness, key)
            read_objects(db, os.path.join(given.directory, "../../store"))
        except Bad as bad:
            finding, seq, why = bad.args
            place = "" if seq is None else f" at record {seq}"
            print(f"History does not verify{place}: {why} ({finding})")
            return 12
    return 0


if __name__ == "__main__":
    sys.exit(main())
