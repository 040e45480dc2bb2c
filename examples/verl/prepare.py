"""Writes the data that verl reads: the prompts of a task, each with the name by which the tree's verifier finds it.

    python examples/verl/prepare.py --task 'hf:openai/gsm8k#main:train' --items 7000 --out data/gsm8k

Task, number and seed must be those of tree.yaml. Held-out prompts are the task's own.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from rolltree import load_task
from rolltree.integrations.data import distinct_items, write_verl


def main() -> None:
    """Both files."""
    parser = ArgumentParser(description="Write a task's prompts as verl's data files.")
    parser.add_argument("--task", required=True, help="as `rolltree train --task` takes it")
    parser.add_argument("--items", type=int, required=True, help="training prompts")
    parser.add_argument("--held-out", type=int, default=256, help="prompts of the evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder of train.parquet and test.parquet")
    asked = parser.parse_args()
    task = load_task(asked.task)
    asked.out.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", asked.items), ("test", asked.held_out)):
        items = distinct_items(task, count, split=split, seed=asked.seed)
        print(f"{write_verl(items, asked.out / f'{split}.parquet', task.name)}: {len(items)} prompts")


if __name__ == "__main__":
    main()
