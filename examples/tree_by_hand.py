"""A tree by hand: sample once, fork in the middle, credit every branch, pack the tree and take one step."""

import asyncio

import torch

from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.engine.local import LocalEngine
from rolltree.generate.runner import open_hand
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.load import load_model
from rolltree.task.registry import load_task
from rolltree.training.pack import micro_batches, objective_batch
from rolltree.tree.table import table


async def main(prompts: int = 4, forks: int = 3) -> tuple[int, int]:
    model, task = load_model("nano"), load_task("arithmetic", level=3)
    policy, engine = LanguagePolicy(model.model), LocalEngine(model)
    hand, items = open_hand(engine, task, seed=0), task.items("train")
    for _ in range(prompts):
        tree = hand.plant(next(items))
        branch = hand.on(tree)
        first = await play(branch, tree.root)
        middle = branch.place(first, (len(tree.root) + len(tree.prefix(first))) // 2)
        await asyncio.gather(*(play(branch, middle, birth="resample") for _ in range(forks)))
    forest = table(hand.forest)
    folded = fold(forest, load_credit("node_delta")(forest), leaf_weights(forest, "sequence"))
    for micro in (micros := micro_batches(forest, folded, budget=2048)):
        loss, _ = load_objective("clipped")(objective_batch(micro, policy.read(micro.packed)))
        loss.backward()
    torch.optim.AdamW(policy.parameters(), lr=5e-4).step()
    packed = sum(len(micro.packed) for micro in micros)  # what is shared is read once
    flat = sum(len(tree.prefix(leaf)) for tree, leaf in hand.forest.leaves())
    print(f"{len(forest.leaf)} leaves of {flat} tokens were read as {packed}")
    await engine.close()
    return packed, flat


if __name__ == "__main__":
    asyncio.run(main())
