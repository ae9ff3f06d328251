"""Saves a file before it is written, compares, and rolls back; once waiting, once awaited.

usage: example.py DIRECTORY (--socket PATH | ADDRESS TOKEN_FILE); DIRECTORY is in a workspace of the server.
"""

import asyncio
import sys
from pathlib import Path

from chronicle_client import AsyncChronicle, Chronicle, Refused


def waiting(directory: Path, **where: str) -> None:
    file = directory / "greeting.txt"
    file.write_text("hello\n")
    with Chronicle(**where) as chronicle:
        workspace = chronicle.workspace_at(directory)
        chronicle.settle(workspace)

        saved = chronicle.take_snapshot(workspace, action="write_file", paths=["greeting.txt"], session="example")
        file.write_text("HELLO\n")
        chronicle.settle(workspace)

        diff = chronicle.diff(workspace, of=saved["id"], patch=True)
        print(diff["changes"][0]["patch"])
        with chronicle.file_content(workspace, path="greeting.txt", at=f"before:{saved['id']}") as content:
            assert content.read() == b"hello\n"

        plan = chronicle.plan(workspace, kind="rollback", target=saved["id"])
        done = chronicle.apply_plan(workspace, plan["plan_id"])
        assert (done["changed"], file.read_text()) == (1, "hello\n")
        try:
            chronicle.apply_plan(workspace, plan["plan_id"])
        except Refused as refused:
            assert refused.code == "plan_outdated", refused
        else:
            raise AssertionError("a plan counts once")
        assert next(iter(chronicle.events(workspace)))["head_seq"] > 0
    print("rolled back:", file.read_text().strip())


async def awaited(directory: Path, **where: str) -> None:
    file = directory / "greeting.txt"
    async with AsyncChronicle(**where) as chronicle:
        workspace = await chronicle.workspace_at(directory)
        saved = await chronicle.take_snapshot(workspace, action="delete_file", paths=["greeting.txt"], session="example")
        file.unlink()
        await chronicle.settle(workspace)
        diff, page = await asyncio.gather(chronicle.diff(workspace, of=saved["id"]), chronicle.timeline(workspace, limit=5))
        assert diff["changes"][0]["change_type"] == "deleted"
        assert page["entries"][0]["deleted"] == 1
        async with await chronicle.file_content(workspace, path="greeting.txt", at=f"before:{saved['id']}", part=(1, 3)) as content:
            assert b"".join([piece async for piece in content]) == b"ell"
        plan = await chronicle.plan(workspace, kind="rollback", target=saved["id"])
        await chronicle.apply_plan(workspace, plan["plan_id"])
        async for head in chronicle.events(workspace):
            # A stream that others listen to as well may begin a moment late.
            if head["head_seq"] > page["head_seq"]:
                break
        try:
            await chronicle.get_snapshot(workspace, "abcdefabcdef")
        except Refused as refused:
            assert (refused.status, refused.code) == (404, "unknown_target"), refused
    print("brought back:", file.read_text().strip())


def main() -> None:
    directory = Path(sys.argv[1])
    if sys.argv[2] == "--socket":
        where = {"socket": sys.argv[3]}
    else:
        where = {"address": sys.argv[2], "token": Path(sys.argv[3]).read_text().strip()}
    waiting(directory, **where)
    asyncio.run(awaited(directory, **where))


if __name__ == "__main__":
    main()
