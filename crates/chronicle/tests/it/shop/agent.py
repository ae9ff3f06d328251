"""An agent in a bad turn: it resets the databases, rewrites the models, and pushes. Its hooks tell of each call."""
import json, os, subprocess, sys


def hook(event, **more):
    told = {"session_id": "s", "cwd": os.getcwd(), "hook_event_name": event, **more}
    words = [os.environ["CHRONICLE_PROGRAM"], "hook", "claude-code"]
    done = subprocess.run(words, input=json.dumps(told), text=True, capture_output=True)
    if done.returncode or done.stderr:
        sys.exit(f"{event}: {done.returncode} {done.stderr}")


def bash(number, command, really=None):
    call = {"tool_name": "Bash", "tool_use_id": number, "tool_input": {"command": command}}
    hook("PreToolUse", **call)
    subprocess.run(really or command, shell=True, check=True)
    hook("PostToolUse", **call)
    hook("PostToolBatch", tool_calls=[])


hook("UserPromptSubmit", prompt="make it simpler", prompt_id="k1")
bash("c1", "cd . && python3 migrate.py reset")
bash("c2", """printf "FIELDS = ['full_name']\nVISITS = 'visited'\n" > models.py && git rm -q -r migrations""")
commit = "git -c user.name=me -c user.email=me@example.org commit -q -a -m simpler"
bash("c3", f"{commit} && git push origin main", commit)
hook("Stop")
