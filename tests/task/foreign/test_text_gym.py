"""Gymnasium environments: the contract of text and actions, seeds as items, copies as snapshots."""

from __future__ import annotations

import asyncio
import sys

import pytest

from rolltree.errors import RolltreeError
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.policy.codec import HFCodec
from rolltree.task.data.chat import Chat
from rolltree.task.protocol import spoken_by
from rolltree.task.registry import load_task
from rolltree.testing import task as contract
from tests.task.data.toy import CHATML, LLAMA, tokenizer
from tests.task.foreign.worlds import scripted

gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium is not installed: pip install 'rolltree[gymnasium]'")
LAKE = "gym:FrozenLake-v1?is_slippery=false&max_turns=12"
MOVES = ("left", "down", "right", "up")
WAY = ["down", "down", "right", "right", "down", "right"]


class Guess(gymnasium.Env):
    """Guess a word; the seed chooses it. Text in, text out."""

    def __init__(self, hands=None):
        chars = "abcdefghijklmnopqrstuvwxyz :!"
        self.observation_space = gymnasium.spaces.Text(64, charset=chars)
        self.action_space = gymnasium.spaces.Text(8, charset=chars)
        self.hands = hands

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = "".join(self.np_random.choice(list("abcdef"), 3))
        self.left = 3
        return f"starts with {self.word[0]}", {}

    def step(self, action):
        self.left -= 1
        right = action == self.word
        return ("right!" if right else "no"), float(right), right, self.left == 0, {}


gymnasium.register("Guess-v0", entry_point=Guess)


def test_a_text_environment_is_a_sound_task():
    task = load_task("gym:Guess-v0")
    assert (task.snapshots, task.max_turns) == ("copy", 64)
    contract.check_task(task)
    contract.check_items_repeat(task)
    contract.check_splits_disjoint(task, 64)
    item = next(task.items("train"))
    env = Guess()
    env.reset(seed=item.answer)
    asyncio.run(contract.check_reference(task, item, ["abc\n" if env.word != "abc" else "abd\n", f"{env.word}\n"]))
    asyncio.run(contract.check_functional(task, item, ["abc\n", "ABC!\n", "bcd\n"]))
    assert asyncio.run(contract.check_state_keys(task, item, [["abc\n", "bcd\n"], ["abc\n", "cde\n"]]))


def test_a_discrete_environment_is_played_by_the_names_of_its_actions():
    task = load_task(LAKE, actions=MOVES)
    item = next(task.items("train"))
    assert item.prompt.endswith("Actions: left, down, right, up\n")
    replies, state, verdict = asyncio.run(contract.perform(task, item, [f"{move}\n" for move in WAY]))
    assert [r.reward for r in replies] == [0, 0, 0, 0, 0, 1]
    assert (verdict.score, verdict.parts["steps"], state.done) == (1, 6, True)
    refused, _, _ = asyncio.run(contract.perform(task, item, ["jump\n"]))
    assert (refused[0].failed, refused[0].text) == (True, "no action 'jump'; there are left, down, right, up\n")
    numbered = load_task(LAKE, opens="<", closes=">")
    replies, _, _ = asyncio.run(contract.perform(numbered, item, [f"I go <{MOVES.index(m)}>" for m in WAY]))
    assert replies[-1].reward == 1


REGISTERS = """
import gymnasium
from tests.task.foreign.test_text_gym import Guess
gymnasium.register("NAME", entry_point=Guess, max_episode_steps=5)
"""


def test_the_module_or_file_that_registers_an_environment_is_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "games_of_mine.py").write_text(REGISTERS.replace("NAME", "InModule-v0"))
    (tmp_path / "file.py").write_text(REGISTERS.replace("NAME", "InFile-v0"))
    for name in ("gym:games_of_mine:InModule-v0", f"gym:{tmp_path / 'file.py'}:InFile-v0"):
        task = load_task(name)
        assert (task.name, task.max_turns) == (name, 5)
        contract.check_task(task)
    with pytest.raises(RolltreeError, match=r"'no_such:Name-v0' cannot be imported: No module named 'no_such'"):
        load_task("gym:no_such:Name-v0")


@pytest.mark.parametrize("template", [CHATML, LLAMA])
def test_a_chat_model_plays_in_its_template(template):
    plain = load_task("gym:Guess-v0?system=Play.")
    task = spoken_by(plain, HFCodec(tokenizer(template)))
    item, raw = next(task.items("train")), next(plain.items("train"))
    chat = Chat(tokenizer(template), "Play.")
    assert item.id == raw.id
    assert item.prompt == chat.prompt(raw.prompt.strip())
    env = Guess()
    env.reset(seed=item.answer)
    turns = ["abc<|im_end|>", "<think>is it\nDEF?</think>\nABC!<|im_end|>", f"{env.word}<|im_end|>"]
    replies, _, verdict = asyncio.run(contract.perform(task, item, turns))
    assert [(r.failed, r.done) for r in replies] == [(False, False), (True, False), (False, True)]
    assert (verdict.score, verdict.answer) == (1, "right!")
    # The whole conversation stands as the template itself writes it.
    said = [{"role": "system", "content": "Play."}, {"role": "user", "content": raw.prompt.strip()}]
    said += [{"role": "assistant", "content": "abc"}, {"role": "user", "content": "no"}]
    whole = str(item.prompt) + turns[0] + replies[0].text
    assert whole == tokenizer(template).apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    asyncio.run(contract.check_functional(task, item, turns))
    assert spoken_by(load_task("gym:Guess-v0?chat=off"), HFCodec(tokenizer(template))).chat is None
    assert spoken_by(load_task("gym:Guess-v0"), HFCodec(tokenizer(None))).chat is None


def test_in_a_chat_the_action_may_stand_between_tags():
    task = spoken_by(load_task(LAKE, actions=MOVES, opens="<do>", closes="</do>"), HFCodec(tokenizer()))
    item = next(task.items("train"))
    replies, _, verdict = asyncio.run(contract.perform(task, item, [f"I go\n<do>{m}</do>.<|im_end|>" for m in WAY]))
    assert (replies[-1].reward, verdict.score) == (1, 1)


def test_a_template_whose_turns_do_not_end_is_refused():
    endless = CHATML.replace("<|im_end|>", "").replace("<|im_start|>", "#")
    with pytest.raises(RolltreeError, match=r"ends a turn with no special token.*use --chat off"):
        spoken_by(load_task("gym:Guess-v0"), HFCodec(tokenizer(endless)))
    with pytest.raises(RolltreeError, match="--system needs the chat template: leave out --chat off"):
        spoken_by(load_task("gym:Guess-v0?chat=off&system=Play."), HFCodec(tokenizer()))


def test_where_all_starts_look_alike_the_seeds_are_split():
    task = load_task(LAKE)
    train = {next(task.items("train", seed)).id for seed in range(20)}
    test = {next(task.items("test", seed)).id for seed in range(20)}
    assert len(train) > 1
    assert not train & test


def test_an_environment_that_cannot_be_copied_is_played_again():
    task = load_task("gym:Guess-v0", hands=sys.stderr)
    assert (task.snapshots, task.lacks) == ("replay", {"snapshot"})
    item = next(task.items("train"))
    asyncio.run(contract.check_functional(task, item, ["abc\n", "bcd\n"]))


def test_a_crash_in_the_environment_is_a_failed_node():
    class Broken(Guess):
        def step(self, action):
            raise KeyError("bug")

    gymnasium.register("Broken-v0", entry_point=Broken)
    task = load_task("gym:Broken-v0")
    forest = asyncio.run(grow(Independent(2), scripted(lambda _: "abc"), task, [next(task.items("train"))]))
    assert {leaf.status for _, leaf in forest.leaves()} == {"failed"}


@pytest.mark.parametrize(
    ("name", "knobs", "says"),
    [
        ("gym:Nothing-v0", {}, "gymnasium cannot make 'Nothing-v0'"),
        ("gym:CartPole-v1", {}, "has no 'ansi' rendering, so a policy cannot read it; pass shows="),
        ("gym:Pendulum-v1", {"shows": str}, "acts in Box.* which has no names"),
        ("gym:FrozenLake-v1", {"actions": ("a", "b")}, "has 4 actions, but 2 names"),
        ("gym:FrozenLake-v1", {"snapshots": "no"}, "snapshots='no' makes no sense"),
    ],
)
def test_refusals(name, knobs, says):
    with pytest.raises(RolltreeError, match=says):
        load_task(name, **knobs)


def test_a_missing_library_is_one_sentence_naming_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"pip install 'rolltree\[gymnasium\]'"):
        load_task("gym:FrozenLake-v1")
