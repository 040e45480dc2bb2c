"""A TRL-style environment class under a tree recipe, inside TRL's GRPO trainer, on the embedded policy.

`Library` is written as for TRL's `environment_factory`: public methods are tools, `reset` gets a row of the data set,
`get_reward` judges. ARPO grows a tree of turns for each prompt: branches share the calls before their fork, and the
environment is copied there. Run it with `python examples/trl_environment.py` (needs `pip install 'rolltree[trl]'`):
about a minute of one core.
"""

from __future__ import annotations

import sys
from itertools import islice
from tempfile import mkdtemp
from typing import Any

from trl import GRPOConfig

import rolltree
from rolltree.integrations.data import prompt_dataset
from rolltree.integrations.trl import TreeGRPOTrainer, TreeRollouts, grpo_settings, rolltree_reward
from rolltree.recipe.registry import load_recipe
from rolltree.task.foreign.calls import Lines
from rolltree.task.foreign.tool_class import ToolClass


class Library:
    """Facts about people, looked up one person at a time: `ko.b.h?` asks for the home of the boss of ko."""

    def reset(self, facts: dict[str, dict[str, str]], answer: str, **_: Any) -> None:
        self.facts, self.right, self.done = facts, answer, False
        self.said: str | None = None

    def search(self, person: str) -> str:
        """Everything that is known about a person.

        Args:
            person: Whom to look up.
        """
        if person not in self.facts:
            raise ValueError(f"nobody is called {person}")
        return " ".join(f"{relation}:{other}" for relation, other in self.facts[person].items())

    def answer(self, person: str) -> None:
        """Answer the question.

        Args:
            person: The answer.
        """
        self.said, self.done = person, True

    def get_reward(self) -> float:
        return float(self.said == self.right)


def rows(count: int) -> list[dict[str, Any]]:
    """Questions of the nano suite as a data set whose columns `reset` takes; every question once."""
    asked = {i.prompt: i for i in islice(rolltree.load_task("lookup", level=1).items("train"), 4 * count)}
    return [{"prompt": i.prompt, "facts": i.meta["facts"], "answer": i.answer, "split": "train"}
            for i in islice(asked.values(), count)]  # fmt: skip


def main(steps: int = 24) -> list[float]:
    recipe, policy = load_recipe("arpo"), rolltree.load("nano")
    # The embedded policy writes `?ko` and `=ko`, one call per line.
    task = ToolClass(Library, rows(96), calls=Lines({"?": "search", "=": "answer"}), max_tokens=32, max_turns=6)
    items = list(islice(task.items("train"), 96))
    config = GRPOConfig(
        output_dir=mkdtemp(), max_steps=steps, learning_rate=5e-4, lr_scheduler_type="constant", warmup_steps=2,
        per_device_train_batch_size=64, num_generations=8, max_completion_length=96,
        gradient_checkpointing=False, use_cpu=True, bf16=False, report_to="none", save_strategy="no", logging_steps=1,
        disable_tqdm=True, **grpo_settings(recipe),
    )  # fmt: skip
    trainer = TreeGRPOTrainer(
        model=policy.model, args=config, processing_class=policy.codec.tokenizer,
        train_dataset=prompt_dataset(items), reward_funcs=rolltree_reward,
        rollout_func=TreeRollouts(recipe, task, items),
    )  # fmt: skip
    trainer.train()
    lines = [line for line in trainer.state.log_history if "rolltree/outcome" in line]
    for number, line in enumerate(lines, 1):
        numbers = {name: line[f"rolltree/{name}"] for name in ("outcome", "decoded", "blank_rows", "version")}
        print(f"step {number:>2}  " + "  ".join(f"{name} {value:g}" for name, value in numbers.items()))
    return [line["rolltree/outcome"] for line in lines]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
