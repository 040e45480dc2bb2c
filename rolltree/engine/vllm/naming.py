"""Names that both sides of vLLM agree on: this process, and vLLM's workers."""

ASKED = "rolltree_entropy"
"""Extra argument of a request whose entropies are recorded: the request's name."""
RECORDER = "rolltree.engine.vllm.recorder:EntropyRecorder"
WORKER = "rolltree.engine.vllm.recorder.EntropyWorker"
RECORDING = {"logits_processors": [RECORDER], "worker_extension_cls": WORKER}
"""vLLM's settings for it."""
TAKEN = frozenset({*RECORDING, "speculative_config"})
"""Settings of the caller's that leave no room for it."""
