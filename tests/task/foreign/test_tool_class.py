"""TRL-style environment classes: TRL's contract, kept functional, and no crash that becomes a reward."""

from __future__ import annotations

import asyncio
import json
from itertools import islice

import pytest

from rolltree.errors import RolltreeError
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow, open_hand
from rolltree.generate.setting import Patience
from rolltree.task.foreign.calls import CallError, Lines, Tagged
from rolltree.task.foreign.parts import UnscorableError
from rolltree.task.foreign.tool_class import ToolClass, tools_of
from rolltree.task.items import TaskError
from rolltree.task.registry import load_task
from rolltree.testing import task as contract
from tests.task.foreign.worlds import Counter, Locked, scripted

ROWS = [{"prompt": "", "goal": n, "split": "train" if n % 4 else "test"} for n in range(1, 25)]
GOOD = ["add 2\n", "add 0\n", "add 1\n", "stop\n"]


def lines(factory=Counter, rows=ROWS, **knobs):
    return ToolClass(factory, rows, calls="lines", **knobs)


def item_of(task, goal):
    return next(item for item in task.items("train") if item.answer["goal"] == goal)


@pytest.mark.parametrize(("factory", "snapshots"), [(Counter, "copy"), (Locked, "replay"), (Counter, "forced replay")])
def test_it_is_a_sound_task_whether_its_environments_can_be_copied_or_not(factory, snapshots):
    forced = {"snapshots": "replay"} if snapshots.startswith("forced") else {}
    task = lines(factory, **forced)
    assert snapshots.endswith(task.snapshots)
    contract.check_task(task)
    contract.check_items_repeat(task)
    contract.check_splits_disjoint(task, 64)
    item = item_of(task, 3)
    asyncio.run(contract.check_reference(task, item, GOOD))
    asyncio.run(contract.check_functional(task, item, GOOD))
    assert asyncio.run(contract.check_state_keys(task, item, [GOOD, GOOD[:2], ["add 3\n", "stop\n"]]))
    asyncio.run(contract.check_verifier_is_total(task, item, ["", "add\n", "add x\n", "add 1 2\n", "'\n", "nothing"]))


def test_a_rollout_calls_tools_and_get_reward_judges_it():
    task = lines()
    said = {"count to 5": "add 2", "at 2": "add 0", "error: a step of 0 leads nowhere": "add 3", "at 5": "stop"}
    forest = asyncio.run(grow(Independent(2), scripted(lambda seen: said[seen[-1]]), task, [item_of(task, 5)]))
    (tree,) = forest
    for leaf in tree.leaves():
        assert (leaf.status, leaf.scores["reward"]) == ("done", 1.0)
        assert (leaf.scores["calls"], leaf.scores["failed_calls"]) == (4, 1)
    told = [n for n in tree if n.role == "env"]
    assert sum(bool(n.notes.get("failed")) for n in told) == 2


@pytest.mark.parametrize(("tool", "why"), [("crash", "no such attribute"), ("leave", "SystemExit"), ("hang", "0.2 s")])
def test_a_crash_a_hang_and_an_exit_are_failed_nodes_and_never_a_reward(tool, why):
    task = lines(max_turns=2)
    patience = Patience(tries=1, step_seconds=0.2)
    forest = asyncio.run(grow(Independent(3), scripted(lambda _: tool), task, [item_of(task, 5)], patience=patience))
    (tree,) = forest
    assert {leaf.status for leaf in tree.leaves()} == {"failed"}
    assert all("reward" not in leaf.scores for leaf in tree.leaves())
    assert why in " ".join(event.why for event in tree.events)


def test_instances_are_built_once_and_reset_often():
    Locked.built = 0
    task = lines(Locked)
    said = {"count to 5": "add 5", "at 5": "stop"}
    for _ in range(3):
        forest = asyncio.run(grow(Independent(2), scripted(lambda seen: said[seen[-1]]), task, [item_of(task, 5)]))
        assert {leaf.scores["reward"] for _, leaf in forest.leaves()} == {1.0}
    del forest
    assert Locked.built <= 4, f"{Locked.built} instances for two rollouts at a time"


def test_a_fork_of_a_replayed_episode_goes_its_own_way_from_the_same_place():
    async def go():
        task = lines(Locked)
        item = item_of(task, 7)
        engine = scripted(lambda seen: "add 2" if len(seen) < 2 else "add 3")
        hand = open_hand(engine, task)
        tree = hand.plant(item)
        here = hand.on(tree)
        (turn,) = await here.extend(tree.root)
        env = await here.act(turn)
        one, two = await here.extend(env, n=2)
        return [(await here.act(child)).state.heard for child in (one, two)]

    assert asyncio.run(go()) == [("at 2\n", "at 5\n")] * 2


def test_an_environment_that_does_not_repeat_itself_fails_the_node():
    class Moody(Locked):
        resets = 0

        def reset(self, **row):
            type(self).resets += 1
            super().reset(**row)
            return f"mood {type(self).resets}\n"

    task = lines(Moody)
    item = next(task.items("train"))
    (tree,) = asyncio.run(grow(Independent(1), scripted(lambda _: "add 1"), task, [item], patience=Patience(tries=1)))
    assert {leaf.status for leaf in tree.leaves()} == {"failed"}
    assert "reset must depend on what it is given alone" in " ".join(event.why for event in tree.events)


def test_without_rows_the_environment_owns_its_data_and_gets_seeds():
    class Dice:
        def reset(self, seed):
            self.face = seed % 97
            return f"guess {self.face}\n"

        def guess(self, face: int) -> str:
            self.right = face == self.face
            return "right" if self.right else "wrong"

        def get_reward(self):
            return getattr(self, "right", False)

    task = lines(Dice, None)
    contract.check_items_repeat(task)
    contract.check_splits_disjoint(task, 200)
    item = next(task.items("train"))
    asyncio.run(contract.check_functional(task, item, [f"guess {item.answer['seed'] % 97}\n"]))
    with pytest.raises(TaskError, match="reset takes no seed"):
        lines(type("Fixed", (), {"reset": lambda self: "go", "get_reward": lambda self: 0.0}), None)


def test_reward_functions_of_trl_get_the_environment_and_add_to_its_own():
    seen = {}

    def short(prompts, completions, completion_ids, environments, goal, **_):
        seen.update(prompt=prompts[0], at=environments[0].at, goal=goal[0])
        return [0.25 if len(completions[0]) < 30 else None]

    async def none(**_):
        return [None]

    task = lines(reward=[short, none])
    item = item_of(task, 3)
    _, state, verdict = asyncio.run(contract.perform(task, item, GOOD))
    assert (verdict.score, verdict.parts["Counter"]) == (1.0, 1.0)
    _, _, verdict = asyncio.run(contract.perform(task, item, ["add 3\n"]))
    assert (verdict.score, verdict.parts["short"]) == (1.25, 0.25)
    assert seen == {"prompt": item.prompt, "at": 3, "goal": 3}
    bare = type("Bare", (), {"reset": lambda self, **_: "go\n"})
    with pytest.raises(UnscorableError, match="all of them answered None"):
        asyncio.run(contract.perform(silent := lines(bare, reward=none), next(silent.items("train")), []))
    assert state.done


def test_tagged_calls_are_what_chat_models_write():
    task = ToolClass(Counter, ROWS)
    item = item_of(task, 3)
    assert item.prompt.startswith("count to 3\n")
    assert "- add(step: 'int') -> 'str': Add to the count." in item.prompt
    turns = [
        'Let me see. <tool_call>\n{"name": "add", "arguments": {"step": 3}}\n</tool_call>',
        '<tool_call>{"name": "stop"}</tool_call>',
    ]
    replies, _, verdict = asyncio.run(contract.perform(task, item, turns))
    assert replies[0].text == "\n<tool_response>\nat 3\n</tool_response>\n"
    assert (replies[1].done, verdict.score) == (True, 1.0)


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        ("</tool_call>", "there is no <tool_call>"),
        ("<tool_call>{oops</tool_call>", "the call is not JSON"),
        ("<tool_call>" + "9" * 5000 + "</tool_call>", "the call cannot be read"),
        ("<tool_call>" + "[" * 100_000 + "]" * 100_000 + "</tool_call>", "the call cannot be read"),
        ("<tool_call>[1]</tool_call>", "must be an object"),
        ('<tool_call>{"name": "fly"}</tool_call>', "there is no tool 'fly'; there are add, crash"),
        ('<tool_call>{"name": "add", "arguments": {"by": 1}}</tool_call>', "add: missing a required argument: 'step'"),
        ('<tool_call>{"name": "reset", "arguments": {"goal": 1}}</tool_call>', "there is no tool 'reset'"),
    ],
)
def test_what_is_no_call_is_answered(turn, says):
    with pytest.raises(CallError, match=says.replace("[", r"\[").replace("(", r"\(")):
        Tagged().read(turn, tools_of(Counter()))


def test_lines_read_signs_and_types():
    tools = tools_of(Counter())
    assert Lines({"+": "add"}).read("+ 12\n", tools).arguments == {"step": 12}
    assert Lines({"!": "stop"}).read("!\n", tools).name == "stop"


def test_a_chat_template_renders_messages_and_tools():
    def render(messages, tools):
        return "|".join([*(f"{m['role']}:{m['content']}" for m in messages), *sorted(t.__name__ for t in tools)])

    rows = [{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u "}], "goal": 2}]
    task = ToolClass(Counter, rows, render=render)
    item = next(task._starts.items("train" if task._starts._rows[0][1] == "train" else "test", 0))
    assert item.prompt == "system:s|user:u count to 2\n|add|crash|hang|leave|stop"


def test_it_is_loaded_by_its_address_with_knobs_in_the_name(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS))
    task = load_task(f"trl:tests.task.foreign.worlds:Counter?rows={path}&calls=lines&max_turns=3")
    assert (task.max_turns, task.name) == (3, "trl:tests.task.foreign.worlds:Counter")
    module = tmp_path / "env.py"
    module.write_text(
        "from __future__ import annotations\nclass Env:\n    def reset(self, seed): return f'{seed}'\n"
        "    def get_reward(self): return 1.0\n"
    )
    assert len({item.id for item in islice(load_task(f"trl:{module}:Env").items("train"), 5)}) == 5


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("trl:nowhere", "must be written as package.module:Name"),
        ("trl:no.such.module:X", "cannot be imported"),
        ("trl:/no/file.py:X", "there is no file /no/file.py"),
        ("trl:tests.task.foreign.worlds:Nobody", "has no 'Nobody'"),
        ("trl:builtins:dict", "has no method reset"),
        ("trl:tests.task.foreign.worlds:Counter", "reset takes no seed|missing 1 required"),
        ("trl:tests.task.foreign.worlds:Counter?rows=/no.jsonl", "there is no file /no.jsonl"),
        ("trl:tests.task.foreign.worlds:Counter?calls=xml", "no format of calls 'xml'"),
        ("trl:tests.task.foreign.worlds:Counter?turns=3", "has no knob 'turns'"),
    ],
)
def test_refusals(name, says):
    with pytest.raises((RolltreeError, TypeError), match=says):
        load_task(name)
