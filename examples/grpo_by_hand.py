"""A whole GRPO loop from the parts: grow, credit, fold, pack, learn, hand over the weights."""

import asyncio
from itertools import islice

import torch

from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.engine.local import LocalEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.objective.registry import load_objective
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.load import load_model
from rolltree.policy.publish import weights_of
from rolltree.task.registry import load_task
from rolltree.training.pack import micro_batches, objective_batch
from rolltree.tree.table import table


async def main(steps: int = 20, prompts: int = 16, group: int = 8) -> list[float]:
    model, task = load_model("nano"), load_task("arithmetic")
    policy, engine, rewards = LanguagePolicy(model.model), LocalEngine(model), []
    credit, objective = load_credit("grpo"), load_objective("clipped", clip_high=0.28)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-4)
    items = task.items("train")
    for version in range(1, steps + 1):
        rollouts = table(await grow(Independent(group), engine, task, islice(items, prompts), seed=version))
        folded = fold(rollouts, credit(rollouts), leaf_weights(rollouts, "sequence"))
        for micro in micro_batches(rollouts, folded, budget=2048):
            loss, _ = objective(objective_batch(micro, policy.read(micro.packed)))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        await engine.update_weights(weights_of(policy), version)
        rewards.append(float(rollouts.score("reward")[rollouts.leaf].mean()))
        print(f"step {version}: reward {rewards[-1]:.3f}")
    await engine.close()
    return rewards


if __name__ == "__main__":
    asyncio.run(main())
