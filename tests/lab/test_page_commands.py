"""Every command that a recipe's page prints runs as printed, in small."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.cli import main
from rolltree.engine.local import LocalEngine
from rolltree.errors import RolltreeError
from rolltree.recipe.check import check, check_rewards
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.task.protocol import spoken_by
from rolltree.task.registry import load_task
from rolltree.training import run
from studies.lab.places import page_of
from tests.task.data.toy import rows, tokenizer

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "--steps": 1, "--prompts": 2, "--max-tokens": 16, "--eval-items": 1, "--eval-samples": 1, "--doctor": 0,
    "--forests-every": 0,
}  # fmt: skip
"""What makes any run small, whatever its recipe."""


def commands(name: str) -> list[list[str]]:
    """What stands behind `rolltree` in the commands of a recipe's page."""
    page = page_of(name).read_text(encoding="utf-8")
    return [shlex.split(line) for line in re.findall(r"^rolltree (.+)$", page, re.MULTILINE)]


@pytest.mark.parametrize("name", [card.name for card in list_recipes()])
def test_the_command_of_every_page_runs(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "studies").symlink_to(ROOT / "studies")  # some recipes' tasks stand there
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "surroundings", dict)  # reading all sources again takes longer than a step
    printed = commands(name)
    assert printed
    for command in printed:
        code = main([*command, "--json", *(str(word) for option in SMALL.items() for word in option)])
        assert code == 0, capsys.readouterr().err
        assert (tmp_path / command[command.index("--out") + 1] / "metrics.jsonl").is_file()


@pytest.fixture(scope="module")
def chat(tmp_path_factory) -> Path:
    """A folder with a tiny model that has a chat template, and rows of sums."""
    folder = tmp_path_factory.mktemp("chat")
    made = tokenizer()
    made.save_pretrained(folder / "model")
    config = LlamaConfig(
        vocab_size=len(made), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=None, eos_token_id=made.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    worked = ({"question": f"{k}+1=", "answer": k + 1, "solution": f"One more than {k} is {k + 1}."} for k in range(40))
    rows(folder / "sums.jsonl", *worked)
    return folder


def test_behind_a_chat_template_every_recipe_fits_or_is_refused_in_a_sentence(chat):
    engine = LocalEngine(chat / "model")
    task = spoken_by(load_task(str(chat / "sums.jsonl"), reward="number"), engine.codec)
    fits, refused = list[str](), list[str]()
    for card in list_recipes():
        parts = compose(load_recipe(card.name))
        try:
            check(parts, engine, task)
            check_rewards(parts, engine, task)
        except RolltreeError as error:
            refused.append(str(error))
        else:
            fits.append(card.name)
    asyncio.run(engine.close())
    assert not [said for said in refused if "\n" in said]
    assert {"grpo", "best_of_n", "treepo", "rtv", "guide", "adhint", "seele", "otr"} <= set(fits)
    assert not {"arpo", "slideforge", "label_tree", "fapo"} & set(fits)


@pytest.mark.parametrize("name", ["dapo", "treepo", "rtv", "guide", "self_pretraining"])
def test_recipes_train_behind_a_chat_template(name, chat, tmp_path):
    given = {"--task": chat / "sums.jsonl", "--reward": "number", "--policy": chat / "model", "--out": tmp_path / "run"}
    words = [str(word) for option in (given | SMALL).items() for word in option]
    code = main(["train", name, "--json", *words])
    assert code == (2 if name == "self_pretraining" else 0)  # nobody wrote what it imitates
    assert (tmp_path / "run" / "metrics.jsonl").is_file() == (code == 0)
