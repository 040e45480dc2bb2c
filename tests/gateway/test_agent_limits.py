"""Agents' processes within limits and in the sandbox: what they do there harms nobody, each refusal is a sentence."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import pytest

from rolltree.gateway.agents.limits import AgentLimits
from rolltree.gateway.agents.task import AgentTask
from rolltree.generate.independent import Independent
from rolltree.task.items import TaskError
from rolltree.task.registry import load_task
from rolltree.testing.tiny import tiny_engine
from tests.gateway import agents
from tests.gateway.test_agents import NATIVE, grown

HEAD = """
import json, os, socket, subprocess, sys, time, urllib.request
def ask():
    body = json.dumps({"prompt": json.loads(os.environ["ROLLTREE_ITEM"])["prompt"], "stop": ["!"]}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/completions"
    return urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})).read()
ask()
"""


def agent(tmp_path, body, **limits):
    script = tmp_path / "agent.py"
    script.write_text(HEAD + textwrap.dedent(body))
    task = AgentTask(f"{sys.executable} {script}", task=NATIVE, **{"seconds": 300.0, **limits})
    ((tree, leaf),) = grown(tiny_engine(), task, Independent(1), items=1).leaves()
    return leaf, " ".join(e.why for e in tree.events)


@pytest.mark.parametrize(
    ("body", "limits", "said"),
    [
        ("x = bytearray(1 << 30)", {"memory": 256}, "MemoryError"),
        ("while True: pass", {"cpu_seconds": 1}, "code -9|code 137|code 152|ended with code"),
        ("time.sleep(60)", {"total_seconds": 1.5}, "ran longer than 1.5 s"),
        ("while True: print('x' * 1000)", {"output": 5000}, "printed more than 5000 bytes"),
    ],
)
def test_an_agent_meets_its_limits_and_has_failed(tmp_path, body, limits, said):
    leaf, why = agent(tmp_path, body, **limits)
    assert leaf.status == "failed"
    assert re.search(said, why), why
    assert "reward" not in leaf.scores


def test_a_sandboxed_agent_does_its_work_and_nothing_else(tmp_path):
    """It asks, computes, starts children and writes in its folder; elsewhere it neither reads, writes nor connects."""
    secret = tmp_path.parent / "secret.txt"
    secret.write_text("key")
    outside = tmp_path / "outside.txt"
    leaf, why = agent(
        tmp_path,
        f"""
        def refused(work):
            try:
                work()
            except OSError:
                return True
            return False

        server = socket.socket()
        assert refused(lambda: open({str(secret)!r}).read()), "read a secret"
        assert refused(lambda: open({str(outside)!r}, "w")), "wrote elsewhere"
        assert refused(lambda: socket.create_connection(("127.0.0.1", 1), 2)), "connected"
        assert refused(lambda: server.bind(("127.0.0.1", 0))), "listens"
        assert refused(lambda: os.kill({os.getpid()}, 0)), "saw us"
        assert "ROLLTREE_TEST_SECRET" not in os.environ
        open("mine.txt", "w").write("x")
        assert subprocess.run(["/bin/sh", "-c", "cat mine.txt"], capture_output=True).stdout == b"x"
        print("abc")
        """,
        sandbox=True,
    )
    assert (leaf.status, "reward" in leaf.scores) == ("done", True), why
    assert not outside.exists()


def test_an_agent_that_fails_for_want_of_its_folder_is_told_how_to_open_it(tmp_path, monkeypatch):
    (tmp_path / "helper.py").write_text("word = 'abc'")
    monkeypatch.chdir(tmp_path)
    leaf, why = agent(tmp_path, "import helper; print(helper.word)", sandbox=True)
    assert leaf.status == "failed"
    assert f"reads={tmp_path}" in why
    leaf, why = agent(tmp_path, "import helper; print(helper.word)", sandbox=True, reads=str(tmp_path))
    assert leaf.status == "done", why


def test_children_of_a_sandboxed_agent_die_with_this_process(tmp_path):
    """Killed without a word, this process leaves no child of an agent behind, not even one in a session of its own."""
    mark = f"{time.time_ns()}"
    script = tmp_path / "agent.py"
    script.write_text(
        "import subprocess, time\n"
        f"subprocess.Popen(['sleep', '300.{mark}'], start_new_session=True)\n"
        "print('here', flush=True)\ntime.sleep(300)\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = AgentLimits(sandbox=True).command([sys.executable, str(script)], str(scratch), 1)
    starter = (
        "import subprocess, sys, time, os\n"
        "job = sys.argv[1:]\n"
        "job[7] = job[7].replace('\"parent\": ' + str(int(os.environ['OLD'])), '\"parent\": ' + str(os.getpid()))\n"
        "process = subprocess.Popen(job, stdout=subprocess.PIPE)\n"
        "print(process.stdout.readline().decode(), flush=True)\ntime.sleep(300)\n"
    )
    ours = subprocess.Popen(
        [sys.executable, "-c", starter, *command], stdout=subprocess.PIPE, env={**os.environ, "OLD": str(os.getpid())}
    )
    assert b"here" in ours.stdout.readline()
    until = time.monotonic() + 30
    while not running(mark):
        assert time.monotonic() < until, "the child of the agent never ran"
    os.kill(ours.pid, signal.SIGKILL)
    ours.wait()
    until = time.monotonic() + 20
    while running(mark) and time.monotonic() < until:
        time.sleep(0.02)
    assert not running(mark)


def running(mark):
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"300.{mark}".encode() in (entry / "cmdline").read_bytes():
                    return True
            except OSError:
                continue
    return False


def test_limits_are_knobs_and_what_they_cannot_hold_is_refused():
    task = load_task("agent:python my_agent.py?task=countdown&memory=64&output=10&total_seconds=3")
    assert (task._given["memory"], task._given["output"], task._given["total_seconds"]) == (64, 10, 3)
    for told, said in (
        ({"memory": 5}, "give the agent as a command"),
        ({"memory": -1}, "limits nothing"),
        ({"output": 0}, "no room"),
        ({"reads": "/data"}, "give sandbox=true"),
    ):
        with pytest.raises(TaskError, match=said):
            AgentTask(agents.echo, task=NATIVE, **told)


def test_a_program_that_cannot_be_started_is_named(tmp_path):
    for limits in ({}, {"sandbox": True}):
        with pytest.raises(TaskError, match="cannot be started"):
            next(AgentTask("no-such-program --x", task=NATIVE, **limits).items("train"))


def test_many_agents_that_block_run_side_by_side():
    """Functions that are not async hold a thread each: more of them than any pool has still all get their answers."""

    def blocking(item):
        body = json.dumps({"prompt": item["prompt"], "stop": ["!"]}).encode()
        request = urllib.request.Request(item["base_url"] + "/completions", body, {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request).read())["choices"][0]["text"]

    forest = grown(tiny_engine(), AgentTask(blocking, task=NATIVE, seconds=300), Independent(48), items=1)
    assert all(leaf.status == "done" for _, leaf in forest.leaves())
