#!/usr/bin/env bash
# TreePO on a model of seven billion inside verl 0.9.1, on one machine with eight cards of 80 GB.
#
#   pip install 'verl[vllm]==0.9.1' rolltree
#   python examples/verl/prepare.py --task 'hf:openai/gsm8k#main:train' --items 7000 --out data/gsm8k
#   bash examples/verl/run_8_gpus.sh
#
# More settings of verl may follow, for instance: trainer.nnodes=2 trainer.total_epochs=4
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=${DATA:-data/gsm8k}
model=${MODEL:-Qwen/Qwen2.5-7B-Instruct}

settings=(
  # Rolltree: a tree brings its own leaves, so one session a prompt; its credit is written into the rewards.
  actor_rollout_ref.rollout.agent.agent_loop_config_path="$here/tree.yaml"
  actor_rollout_ref.rollout.agent.default_agent_loop=tree
  actor_rollout_ref.rollout.n=1
  actor_rollout_ref.rollout.calculate_log_probs=True
  algorithm.adv_estimator=rolltree_given
  algorithm.use_kl_in_reward=False
  actor_rollout_ref.actor.policy_loss.loss_mode=rolltree_clipped
  actor_rollout_ref.actor.loss_agg_mode=token-mean
  actor_rollout_ref.actor.use_kl_loss=False

  # Data and lengths.
  data.train_files="$data/train.parquet"
  data.val_files="$data/test.parquet"
  data.return_raw_chat=True
  data.train_batch_size=128
  data.max_prompt_length=512
  data.max_response_length=1536

  # Model and optimizer.
  actor_rollout_ref.model.path="$model"
  actor_rollout_ref.model.enable_gradient_checkpointing=True
  actor_rollout_ref.actor.optim.lr=1e-6
  actor_rollout_ref.actor.ppo_mini_batch_size=128
  actor_rollout_ref.actor.use_dynamic_bsz=True
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384

  # Engines: vLLM on the same cards.
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.tensor_model_parallel_size=2
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6
  actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True

  trainer.n_gpus_per_node=8
  trainer.nnodes=1
  trainer.total_epochs=2
  trainer.test_freq=20
  trainer.save_freq=50
  trainer.project_name=rolltree
  trainer.experiment_name=treepo-7b
  'trainer.logger=[console]'
)
exec ${PYTHON:-python} -m verl.trainer.main_ppo "${settings[@]}" "$@"
