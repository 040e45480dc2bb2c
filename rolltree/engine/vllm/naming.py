"""Names that both sides of vLLM agree on: this process, and vLLM's workers."""

ASKED = "rolltree_recorded"
"""Extra argument of a request whose distributions are recorded: the request's name."""
BEST = "rolltree_best"
"""The same: how many of the most likely tokens of each step are recorded too."""
RECORDER = "rolltree.engine.vllm.recorder:Recorder"
WORKER = "rolltree.engine.vllm.recorder.RecordingWorker"
RECORDING = {"logits_processors": [RECORDER], "worker_extension_cls": WORKER}
"""vLLM's settings for it."""
TAKEN = frozenset({*RECORDING, "speculative_config"})
"""Settings of the caller's that leave no room for it."""
