from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import rolltree
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.integrations.errors import AdaptError
from rolltree.integrations.trl import TreeRollouts
from rolltree.objective.registry import load_objective
from rolltree.policy.language import LanguagePolicy
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.testing.faulty import Flaky
from tests.adapt.small import batch_of, items_of, trainer_of

pytest.importorskip("trl", reason="TRL is not installed: pip install 'rolltree[trl]'")
# TRL's own std has ddof 1 and adds 1e-4.
FLAT = Parts(
    "flat", Independent(4), load_credit("grpo", ddof=1, eps=1e-4), load_objective("clipped"), averaging="sequence"
)
INPUTS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps")


def test_flat_rollouts_give_the_inputs_of_trls_own_math(tmp_path):
    task = rolltree.load_task("arithmetic")
    ours, theirs = (trainer_of(FLAT, task, tmp_path, own=own, temperature=0.8) for own in (True, False))
    one, two = (t._generate_and_score_completions(batch_of(t)) for t in (ours, theirs))
    for name in INPUTS:
        assert torch.equal(one[name], two[name]), name
    assert two["advantages"].abs().max() > 0.5, "no group told its members apart: the comparison would be of zeros"
    spread = two["advantages"][:, None] * one["completion_mask"] * one["tool_mask"]
    torch.testing.assert_close(one["advantages"], spread, atol=1e-5, rtol=0)
    ids = torch.cat([one["prompt_ids"], one["completion_ids"]], 1)
    seen = torch.cat([one["prompt_mask"], one["completion_mask"]], 1)
    recomputed, _, _ = ours._get_per_token_logps_and_entropies(ours.model, ids, seen, one["completion_ids"].shape[1])
    own = (one["completion_mask"] * one["tool_mask"]).bool()
    # TRL reads at the temperature sampled with, so this is the distribution the tokens were drawn from.
    torch.testing.assert_close(one["sampling_per_token_logps"][own], recomputed[own], atol=1e-4, rtol=0)


def test_tokens_of_the_environment_are_masked(tmp_path):
    task = rolltree.load_task("lookup")
    trees = []
    trainer = trainer_of(FLAT, task, tmp_path)
    trainer.rollout_func.watch = lambda _, forest: trees.extend(forest)
    out = trainer.rollout_func([row["prompt"] for row in batch_of(trainer)], trainer)
    codec, replies = rolltree.load("nano").codec, 0
    leaves = [(tree, leaf) for tree in trees for leaf in tree.leaves()]
    assert len(leaves) == len(out["completion_ids"])
    for (tree, leaf), ids, mask in zip(leaves, out["completion_ids"], out["env_mask"], strict=True):
        path = tree.path(leaf)
        assert ids == np.concatenate([n.actions for n in path[1:]]).tolist()
        assert mask == np.concatenate([np.full(len(n), n.role == "policy") for n in path[1:]]).tolist()
        said = codec.decode([i for i, own in zip(ids, mask, strict=True) if not own])
        assert said == "".join(codec.decode(n.actions) for n in path if n.role == "env")
        replies += bool(said)
    assert replies


def test_a_tree_inside_trl_has_the_gradient_of_rolltrees_own_step(tmp_path):
    """One step of TRL's loss on rows against the packed tree: shared prefixes, per-token credit, blank rows."""
    from rolltree.credit.fold import fold, leaf_weights
    from rolltree.training.backward import StepKnobs
    from rolltree.training.config import Optim
    from rolltree.training.step import Learner
    from rolltree.tree.table import table

    task = rolltree.load_task("arithmetic")
    parts = replace(load_recipe("treepo", segment=4).build(), filters=(), credit=load_credit("node_delta"))
    trees = []
    trainer = trainer_of(parts, task, tmp_path, loss_type="dapo", epsilon_high=0.28, max_grad_norm=0.0)
    trainer.rollout_func.watch = lambda _, forest: trees.extend(forest)
    inputs = trainer._generate_and_score_completions(batch_of(trainer))
    assert any(len(set(row)) > 2 for row in inputs["advantages"].tolist()), "credit should differ along a path"
    trainer.compute_loss(trainer.model, inputs).backward()
    theirs = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}

    model = rolltree.load("nano").model
    policy = LanguagePolicy(model)
    view = table(trees)
    advantage = parts.credit(view)
    folded = fold(view, advantage, leaf_weights(view, "token", counted=advantage.counted))
    # Plain SGD with rate 1 shows the gradient as the change of the weights.
    optim = Optim(lr=1.0, warmup=0, clip_norm=1e9)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    learner = Learner(policy, torch.optim.SGD(model.parameters(), lr=1.0), optim, {})
    learner.step(parts.objective, view, folded, None, version=0, knobs=StepKnobs(2048, False, 0.1, 1e4, 4))
    for name, p in model.named_parameters():
        torch.testing.assert_close(before[name] - p.detach(), theirs[name], atol=2e-5, rtol=1e-3, msg=name)


def test_training_moves_the_engines_weights_and_counts_versions(tmp_path):
    spoken = []
    trainer = trainer_of("treepo", rolltree.load_task("arithmetic"), tmp_path, max_steps=3)
    trainer.rollout_func.watch = lambda step, forest: spoken.append(
        (step, {int(v) for _, n in forest.nodes() if n.version is not None for v in n.version})
    )
    trainer.train()
    versions = [line["rolltree/version"] for line in trainer.state.log_history if "rolltree/version" in line]
    assert versions == [0, 1, 2]
    assert spoken == [(0, {0}), (1, {1}), (2, {2})]
    # The next generation is drawn from what TRL has trained: its own reading of the ids agrees.
    out = trainer._generate_and_score_completions(batch_of(trainer))
    ids, seen = (torch.cat([out[f"prompt_{x}"], out[f"completion_{x}"]], 1) for x in ("ids", "mask"))
    read, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, seen, out["completion_ids"].shape[1])
    own = (out["completion_mask"] * out["tool_mask"]).bool()
    torch.testing.assert_close(out["sampling_per_token_logps"][own], read[own], atol=1e-4, rtol=0)
    fresh = rolltree.load("nano").model
    assert any(not torch.equal(a, b) for a, b in zip(fresh.parameters(), trainer.model.parameters(), strict=True))


def test_failed_leaves_are_blank_rows_and_never_zero_rewards(tmp_path):
    task = Flaky(rolltree.load_task("arithmetic"), "verify")
    trainer = trainer_of(FLAT, task, tmp_path)
    rows = batch_of(trainer)
    out = trainer._generate_and_score_completions(rows)
    assert task.raised
    blank = [i for i, row in enumerate(rows) if row["rolltree_reward"] is None]
    assert 0 < len(blank) < len(rows)
    assert rows[0]["rolltree_numbers"]["blank_rows"] == rows[0]["rolltree_numbers"]["failed_leaves"] == len(blank)
    assert not (out["tool_mask"] * out["completion_mask"])[blank].any()
    assert not out["advantages"][blank].any()
    assert torch.isfinite(trainer.compute_loss(trainer.model, out))


def test_more_leaves_than_rows_are_a_subset_and_fewer_are_filled_with_blanks(tmp_path):
    task = rolltree.load_task("arithmetic")

    class Grows:
        needs: frozenset[str] = frozenset()

        def __init__(self, count: int) -> None:
            self.count = count

        async def grow_tree(self, tree, hand) -> None:
            await Independent(self.count).grow_tree(tree, hand)

    trainer = trainer_of(FLAT, task, tmp_path)
    prompts = [row["prompt"] for row in batch_of(trainer)]
    for made, surplus, blank in ((7, 6, 0), (3, 0, 2)):
        out = TreeRollouts(Grows(made), task, items_of(task))(prompts, trainer)
        assert len(out["completion_ids"]) == len(prompts)
        numbers = out["rolltree_numbers"]
        assert (numbers["surplus_leaves"], numbers["blank_rows"]) == (surplus, blank)
        assert sum(reward is None for reward in out["rolltree_reward"]) == blank


def test_messages_are_asked_through_the_chat_template(tmp_path):
    trainer = trainer_of(FLAT, rolltree.load_task("arithmetic"), tmp_path, chat=True)
    trainer.processing_class.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    rows = batch_of(trainer)
    out = trainer.rollout_func([row["prompt"] for row in rows], trainer)
    decoded = [trainer.processing_class.decode(ids).replace(" ", "") for ids in out["prompt_ids"]]
    assert decoded == [row["prompt"][0]["content"].replace(" ", "") for row in rows]


def test_evaluation_takes_independent_samples(tmp_path):
    trainer = trainer_of("treepo", rolltree.load_task("arithmetic"), tmp_path, per_device_eval_batch_size=4)
    numbers = trainer.evaluate()
    assert 0 <= numbers["eval_rolltree/solved"] <= 1


@pytest.mark.parametrize(
    ("config", "said"),
    [({"min_p": 0.1}, "min_p=0.1"), ({"repetition_penalty": 1.2}, "repetition_penalty=1.2")],
)
def test_settings_that_only_trls_generation_has_are_refused(tmp_path, config, said):
    trainer = trainer_of(FLAT, rolltree.load_task("arithmetic"), tmp_path, **config)
    with pytest.raises(AdaptError, match=said):
        trainer.rollout_func([row["prompt"] for row in batch_of(trainer)], trainer)


@pytest.mark.papers("dars")
def test_what_cannot_be_joined_is_refused_in_one_sentence(tmp_path):
    task = rolltree.load_task("arithmetic")
    trainer = trainer_of(FLAT, task, tmp_path)
    prompts = [row["prompt"] for row in batch_of(trainer)]
    with pytest.raises(AdaptError, match="whole groups of 4"):
        trainer.rollout_func(prompts[1:7], trainer)
    with pytest.raises(AdaptError, match="none of the 6 items"):
        trainer.rollout_func(["never seen"] * 4, trainer)
    with pytest.raises(AdaptError, match="decides which prompts"):
        TreeRollouts("dars", task, items_of(task))
    trainer.rollout_func = lambda prompts, _: {
        "prompt_ids": [[5]] * 8, "completion_ids": [[6]] * 8, "logprobs": [[-1.0]] * 8, "rolltree_reward": [0.0] * 8,
    }  # fmt: skip
    with pytest.raises(AdaptError, match="without advantages"):
        trainer._generate_and_score_completions(batch_of(trainer))
