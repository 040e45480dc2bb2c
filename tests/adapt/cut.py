"""One process of a TRL training whose model is cut: `python -m tests.adapt.cut HOW FOLDER`, started by torchrun.

Each process keeps its rollouts in FOLDER, the first one the learned weights. HOW = "again" is one process that trains
on the kept rollouts of all, which no cutting has touched.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.distributed.tensor import DTensor

import rolltree
from rolltree.integrations.data import prompt_dataset
from rolltree.integrations.trl import TreeRollouts, rolltree_reward
from rolltree.integrations.trl.whole import whole_model, whole_weights
from tests.adapt.small import items_of

STEPS, PROCESSES, GROUP = 3, 2, 4
ROWS = 2 * GROUP
"""Rows of one process and step."""


def as_with_cards(how: str) -> None:
    """accelerate cuts models only where it sees accelerators; torch and DeepSpeed cut them on a processor as well."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    begin = PartialState.__init__
    kind = DistributedType.DEEPSPEED if how == "deepspeed" else DistributedType.MULTI_GPU

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            PartialState._shared_state["distributed_type"] = kind

    PartialState.__init__ = start  # type: ignore[method-assign]


class Kept:
    """Rollouts that are written down, or read again in place of new ones."""

    def __init__(self, rollouts: TreeRollouts, folder: Path, again: bool) -> None:
        self._rollouts, self._folder, self._again = rollouts, folder, again

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        step = int(trainer.state.global_step)
        if not self._again:
            out = self._rollouts(prompts, trainer)
            torch.save((prompts, out), self._folder / f"rollouts-{step}-{trainer.accelerator.process_index}.pt")
            return out
        parts = [
            torch.load(self._folder / f"rollouts-{step}-{rank}.pt", weights_only=False) for rank in range(PROCESSES)
        ]
        assert prompts == [prompt for asked, _ in parts for prompt in asked]
        joined: dict[str, Any] = {}
        for name, first in parts[0][1].items():
            joined[name] = first if isinstance(first, dict) else [row for _, out in parts for row in out[name]]
        return joined


def trainer_of(how: str, folder: Path) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    from rolltree.integrations.trl import TreeGRPOTrainer

    class Watched(TreeGRPOTrainer):
        """Notes how far what the engine said of its tokens is from the trainer's own reading."""

        apart: ClassVar[list[float]] = []

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            out = super()._generate_and_score_completions(inputs)
            ids, seen = (torch.cat([out[f"prompt_{x}"], out[f"completion_{x}"]], 1) for x in ("ids", "mask"))
            with torch.no_grad():
                read = self._get_per_token_logps_and_entropies(self.model, ids, seen, out["completion_ids"].shape[1])[0]
            own = (out["completion_mask"] * out["tool_mask"]).bool()
            if own.any():
                self.apart.append(float((out["sampling_per_token_logps"] - read)[own].abs().max()))
            return out

    policy, task = rolltree.load("nano"), rolltree.load_task("arithmetic")
    items = items_of(task, 16)
    config = CUTS[how]() if how in CUTS else {}
    return Watched(
        model=policy.model, processing_class=policy.codec.tokenizer, train_dataset=prompt_dataset(items),
        reward_funcs=rolltree_reward, rollout_func=Kept(TreeRollouts("treepo", task, items), folder, how == "again"),
        args=GRPOConfig(
            output_dir=str(folder / "out"), per_device_train_batch_size=ROWS * (PROCESSES if how == "again" else 1),
            num_generations=GROUP, max_completion_length=64, max_steps=STEPS, learning_rate=0.5, optim="sgd",
            lr_scheduler_type="constant", report_to="none", save_strategy="no", bf16=False, seed=5,
            gradient_checkpointing=False, disable_tqdm=True, loss_type="dapo", use_cpu=True, **config,
        ),
    )  # fmt: skip


def fsdp() -> dict[str, Any]:
    return {"fsdp": True, "fsdp_config": {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}


def deepspeed() -> dict[str, Any]:
    # Without parameters that ZeRO-3 keeps whole because they are small.
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
    return {
        "deepspeed": {
            "zero_optimization": zero, "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto",
            "gradient_clipping": "auto", "zero_force_ds_cpu_optimizer": False,
        }
    }  # fmt: skip


CUTS = {"fsdp2": fsdp, "deepspeed": deepspeed}


def shares(model: Any) -> float:
    """How much of the weights this process holds."""
    held = whole = 0
    for p in model.parameters():
        here = p.to_local() if isinstance(p, DTensor) else getattr(p, "ds_tensor", p)
        held, whole = held + here.numel(), whole + getattr(p, "ds_numel", p.numel())
    return held / whole


def main(how: str, folder: Path) -> None:
    if how in CUTS:
        as_with_cards(how)
    trainer = trainer_of(how, folder)
    trainer.train()
    weights = whole_weights(trainer)
    for name, value in whole_model(trainer, weights).state_dict().items():
        assert torch.equal(value.cpu(), weights[name].cpu()), name
    if trainer.accelerator.process_index == 0:
        told = {"weights": weights, "share": shares(trainer.model), "apart": trainer.apart}
        torch.save(told, folder / f"{how}.pt")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
