"""Agents as tasks: the forest and the credit of the native task, forks by replay, and agents that misbehave."""

import asyncio
import itertools
import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rolltree.cli import main
from rolltree.compare.runner import Conditions, files_of
from rolltree.credit.fold import fold, leaf_weights
from rolltree.engine.local import LocalEngine
from rolltree.gateway.agents.task import AgentTask
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.setting import Patience
from rolltree.generate.turns import play
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import RECIPES
from rolltree.task.data.flags import DataFlags
from rolltree.task.items import TaskError
from rolltree.task.nano.calculator import Calculator
from rolltree.task.protocol import Item, Reply, Verdict, spoken_by
from rolltree.task.registry import load_task
from rolltree.testing.tiny import tiny_engine
from rolltree.tree.table import table
from tests.gateway import agents
from tests.gateway.chats import tokenizer
from tests.gateway.policies import caller

ONCE = Patience(tries=1)


@dataclass
class Echo:
    """The task that `agents.echo` plays, as a native one: answers until a turn begins early in the alphabet."""

    name: str = "echo"
    level: int = 0
    stop: tuple[str, ...] = ("!",)
    max_tokens: int = 200
    max_turns: int = 60

    def items(self, split, seed=0):
        return (Item(f"echo-{k}", "ab"[k % 2] + "cdefgh"[k % 6] + "!", "x") for k in itertools.count())

    def start(self, item):
        return (), f"{item.id}/{()}"

    async def step(self, item, state, text):
        after = (*state, text)
        if text[:1] in set("abcdef"):
            return Reply("", after, done=True, state_key=f"{item.id}/{after}")
        return Reply(text[:1] * 2 + "!", after, state_key=f"{item.id}/{after}")

    async def verify(self, item, state, text):
        last = text.removesuffix("!").rpartition("!")[2]
        return Verdict(float(last[:1] in set("abc")), answer=last)


NATIVE = Echo()


def grown(engine, task, strategy, items=2, seed=0, patience=ONCE, **more):
    asked = list(itertools.islice(task.items("train", 0), items))
    return asyncio.run(grow(strategy, engine, task, asked, seed=seed, patience=patience, **more))


def as_native(agent, task):
    """An agent under the native task's name, on which the streams of randomness depend."""
    made = AgentTask(agent, task=task)
    made.name = task.name
    return made


def same(ours, theirs):
    for tree, other in zip(ours, theirs, strict=True):
        for node, peer in zip(tree, other, strict=True):
            assert (node.role, node.actions.tolist()) == (peer.role, peer.actions.tolist())
            if node.logp is not None:
                assert np.allclose(node.logp, peer.logp, atol=1e-4)
            assert node.scores.get("reward") == peer.scores.get("reward")


@pytest.mark.parametrize("recipe", ["grpo", "treepo", "gigpo"])
def test_a_black_box_grows_the_native_forest_and_its_credit(recipe):
    """An agent that knows nothing of us, and the task that is part of us: token by token the same, credit to 1e-9."""
    forests = []
    for task in (as_native(agents.echo, NATIVE), NATIVE):
        parts = compose(RECIPES.find(recipe)())
        forests.append((grown(tiny_engine(), task, parts.strategy, items=3), parts.credit))
    (ours, credit), (theirs, _) = forests
    same(ours, theirs)
    assert {leaf.scores.get("reward") for _, leaf in ours.leaves()} >= {0.0, 1.0}
    first, second = (fold(table(f), credit(table(f)), leaf_weights(table(f), "sequence")) for f in (ours, theirs))
    assert np.allclose(first.gain, second.gain, atol=1e-9)
    assert np.allclose(first.loss, second.loss, atol=1e-9)
    assert first.gain.any()


def test_the_calculator_as_a_black_box_on_the_embedded_policy():
    """The same with a real policy; and what was recorded is what the engine scores."""
    native = Calculator(level=1, fail_rate=0.0, max_turns=40)
    forests = []
    for task in (as_native(agents.calculator, native), native):
        engine = LocalEngine("nano", threads=1)
        forests.append(grown(engine, task, Independent(3), items=1))
    same(*forests)

    async def check():
        for tree, node in forests[0].nodes():
            if node.trainable:
                whole = tree.prefix(node)
                scored = await engine.score(whole, len(whole) - len(node))
                assert np.allclose(scored.logp, node.logp, atol=1e-4)

    asyncio.run(check())


@dataclass
class Forks:
    """One rollout, and two more from each call of it."""

    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree, hand):
        first = await play(hand, tree.root)
        for node in [n for n in tree.path(first) if n.role == "env" and n is not first]:
            await asyncio.gather(*(play(hand, node, birth="vine") for _ in range(2)))


def test_forks_of_a_deterministic_agent_all_replay():
    """A black box branched at its calls: it is started again and led there; benchmarks/gateway.py forks makes 200."""
    forest = grown(tiny_engine(), AgentTask(agents.echo, task=NATIVE), Forks(), items=10, seed=5)
    leaves = [leaf for _, leaf in forest.leaves()]
    assert len(leaves) - len(forest) > 40
    assert all(leaf.status == "done" and "reward" in leaf.scores for leaf in leaves)


def test_an_agent_that_reads_the_clock_is_refused_with_the_first_difference():
    forest = grown(tiny_engine(), AgentTask(agents.clock, task=NATIVE), Forks(), items=1, seed=1)
    events = [e.why for tree in forest for e in tree.events if e.kind == "fail"]
    assert any("answered turn 1 of item" in why and "and before with" in why for why in events)
    assert any(leaf.status == "failed" and "reward" not in leaf.scores for _, leaf in forest.leaves())
    assert any(leaf.status == "done" for _, leaf in forest.leaves())


@pytest.mark.parametrize(
    ("agent", "said", "knobs"),
    [
        (agents.crashing, "on purpose", {}),
        (agents.hanging, "for 0.5 s", {"seconds": 0.5}),
    ],
)
def test_what_breaks_is_a_failed_rollout_and_never_a_zero(agent, said, knobs):
    forest = grown(tiny_engine(), AgentTask(agent, task=NATIVE, **knobs), Independent(2), items=1)
    for tree, leaf in forest.leaves():
        assert leaf.status == "failed"
        assert "reward" not in leaf.scores
        assert any(said in e.why for e in tree.events if e.kind == "fail")


def test_an_agent_gives_its_own_reward():
    forest = grown(tiny_engine(), AgentTask(agents.rewarding, task=NATIVE), Independent(2), items=1)
    assert {leaf.scores["reward"] for _, leaf in forest.leaves()} == {0.25}


def test_an_agent_rewards_its_calls_one_by_one():
    forest = grown(tiny_engine(), AgentTask(agents.stepping, task=NATIVE), Forks(), items=1)
    whole = 0
    for tree, leaf in forest.leaves():
        steps = [n.scores["step_reward"] for n in tree.path(leaf) if "step_reward" in n.scores]
        assert steps == [0.5, 1.5, 2.5][: len(steps)]  # those that were forked off begin with the same ones
        if len(steps) == 3:
            assert leaf.scores["reward"] == 0.25
            whole += 1
    assert whole > 1


def test_a_chat_agent_with_tools_is_one_branch_of_sampled_turns():
    call = '<tool_call>{"name":"add","arguments":{"a":2}}</tool_call>'
    engine = caller(call, "it is 4")

    class Sums:
        name, level, stop, max_tokens, max_turns = "sums", 0, (), 400, 0

        def items(self, split, seed=0):
            yield Item("one", "2+2? é", "4")

        def start(self, item):
            return None, None

        async def verify(self, item, state, text):
            return Verdict(float(item.answer in text), answer=text)

    task = spoken_by(AgentTask(agents.tooled, task=Sums()), engine.codec)
    (tree,) = grown(engine, task, Independent(1), items=1)
    (leaf,) = tree.leaves()
    assert leaf.scores["reward"] == 1.0
    said = [engine.codec.decode_exact(n.actions) for n in tree.path(leaf) if n.trainable]
    assert said == [f"{call}<|im_end|>", "it is 4<|im_end|>"]
    chat = [{"role": "user", "content": "2+2? é"}]
    prompt = tokenizer("hermes").apply_chat_template(
        chat, tools=[agents.TOOL], tokenize=False, add_generation_prompt=True
    )
    assert engine.codec.decode_exact(tree.root.actions) == prompt
    whole = engine.codec.decode_exact(tree.prefix(leaf))
    assert whole.startswith(f"{prompt}{call}<|im_end|>\n<|im_start|>user\n<tool_response>\n4")


def test_a_process_is_told_the_item_and_never_the_answer(tmp_path):
    script = tmp_path / "agent.py"
    script.write_text(
        "import json, os, sys, urllib.request\n"
        "item = json.loads(os.environ['ROLLTREE_ITEM'])\n"
        "assert set(item) == {'id', 'prompt', 'level'}, item\n"
        "body = json.dumps({'prompt': item['prompt'], 'stop': ['!']}).encode()\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/completions'\n"
        "head = {'Content-Type': 'application/json'}\n"
        "urllib.request.urlopen(urllib.request.Request(url, body, head)).read()\n"
        "print('deep in the stack', file=sys.stderr)\n"
        "sys.exit(3)\n"
    )
    forest = grown(tiny_engine(), AgentTask(f"{sys.executable} {script}", task=NATIVE), Independent(1), items=1)
    ((tree, leaf),) = forest.leaves()
    assert leaf.status == "failed"
    assert any("code 3: deep in the stack" in e.why for e in tree.events)


def test_a_stop_the_rollouts_do_not_have_is_named():
    task = AgentTask(agents.calculator, task=NATIVE, stop="?")
    with pytest.raises(TaskError, match="give the task stop"):
        next(task.items("train"))


def test_it_has_a_name_for_other_processes_and_commands():
    task = load_task("agent:tests.gateway.agents:calculator?task=calculator%3Ffail_rate%3D0&seconds=5", level=1)
    assert (task.name, task.level, task.inner.fail_rate) == ("agent:calculator", 1, 0)
    with pytest.raises(Exception, match="secnods"):
        load_task("agent:x:y?secnods=5")


def test_flags_name_it_so_that_it_is_found_again():
    flags = DataFlags(agent="tests.gateway.agents:echo?stop=%21&seconds=7")
    task = pickle.loads(pickle.dumps(load_task(flags.address("calculator?fail_rate=0"))))
    assert (task.stop, task._seconds, task.inner.fail_rate) == (("!",), 7, 0)


@pytest.mark.parametrize("named", ["python {}/played.py --fast", "{}/played.py:solve", "played:solve"])
def test_a_comparison_runs_again_when_its_agent_has_changed(named, tmp_path, monkeypatch):
    """Finished runs are found again by what they were made from, and the agent is part of that."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "played.py"
    file.write_text("def solve(item): return '1'\n")
    conditions = Conditions(DataFlags(agent=named.format(tmp_path)).address("countdown"), 1000)
    before = files_of(conditions)
    assert str(file) in before
    file.write_text("def solve(item): return '2'\n")
    assert files_of(conditions) != before


def test_train_takes_an_agent_and_so_does_rollout(tmp_path, capsys):
    """As a user types it: in this process, and as the example's process."""
    told = ["--task", "calculator?fail_rate=0", "--level", "1", "--group", "2", "--json"]
    inside = ["train", "grpo", *told, "--agent", "tests.gateway.agents:calculator", "--steps", "1", "--prompts", "1"]
    assert main([*inside, "--eval-every", "0", "--out", str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["step"] == 1
    script = Path(__file__).resolve().parents[2] / "examples/agents/calculator_agent.py"
    assert main(["rollout", "grpo", *told, "--agent", f"{sys.executable} {script}", "--items", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["failed"] == 0


def test_an_agent_whose_quotation_marks_do_not_close_is_one_sentence(capsys):
    assert main(["rollout", "grpo", "--task", "calculator", "--agent", "python 'my_agent.py"]) == 2
    said = capsys.readouterr().err.strip()
    assert "cannot be cut into words" in said
    assert "\n" not in said
