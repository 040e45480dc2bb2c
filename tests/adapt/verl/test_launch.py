"""The launch of examples/verl against verl's own configuration, and what verl knows of us in each of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("verl.experimental.agent_loop.agent_loop", reason="verl is not installed: make test-verl")

import verl
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import resolve_config_path
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "verl"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """What run_8_gpus.sh hands to verl, word for word."""
    spy = tmp_path_factory.mktemp("bin") / "python"
    spy.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    spy.chmod(0o755)
    script = [str(EXAMPLE / "run_8_gpus.sh"), "trainer.total_epochs=5"]
    told = subprocess.run(script, env={**os.environ, "PYTHON": str(spy)}, capture_output=True, text=True, check=True)
    module, name, *words = told.stdout.splitlines()
    assert (module, name) == ("-m", "verl.trainer.main_ppo")
    return words


@pytest.fixture(scope="module")
def config(settings):
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        return compose("ppo_trainer", overrides=settings)


def test_verl_knows_every_setting_and_accepts_them_together(config):
    assert config.trainer.total_epochs == 5, "what follows the script's own settings counts"
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert not need_critic(config)
    assert not need_reference_policy(config)


def test_the_loop_that_is_named_is_made_from_its_file(config):
    rollout = config.actor_rollout_ref.rollout
    [entry] = OmegaConf.load(resolve_config_path(rollout.agent.agent_loop_config_path))
    assert entry.name == rollout.agent.default_agent_loop
    made = instantiate(OmegaConf.create({**entry, "_partial_": True}))
    assert made.func.__name__ == "TreeAgentLoop"


def test_every_process_of_verl_knows_our_names(config):
    plugins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["verl.plugins"]
    code = """
import verl
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as credits, POLICY_LOSS_REGISTRY as losses
print(*credits, *losses)
"""
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "VERL_USE_EXTERNAL_MODULES": plugins["rolltree"]},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = told.stdout.split()
    assert config.algorithm.adv_estimator in names
    assert config.actor_rollout_ref.actor.policy_loss.loss_mode in names
    assert {"rolltree_rloo", "rolltree_mc_grpo", "rolltree_cispo"} <= set(names)
    assert not {"rolltree_sibling", "rolltree_vineppo", "rolltree_gigpo"} & set(names), "verl shows them no tree"
