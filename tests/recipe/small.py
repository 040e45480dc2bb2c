"""Knobs that make each recipe grow small trees under the contract's flat policy."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "treepo": {"leaves": 6, "segment": 4},
    "arpo": {"leaves": 6, "first": 3},
    "aepo": {"leaves": 6, "first": 3},
    "ettrl": {"stems": 3},
    "treeps_rag": {"leaves": 6, "ways": 3, "width": 2},
    "cleaner": {"group": 6},
    "reex_sql": {"group": 6, "exact": 0, "entities": 0},
    "poly_ppo": {"rollouts": 3, "vines": 4, "size": 2, "window": 1},
    "latr": {"leaves": 6, "absolute": 0.03, "relative": 0.5, "ages": (3,), "chunk": 4},
    "rose": {"leaves": 6, "top": 5},
    "echo": {"leaves": 6, "stems": 3, "entropy": 0.87, "confidence": 0.45, "rise": 0.0, "prune": "none"},
    "ets": {"width": 6, "step": 3, "delimiter": ""},
    "mars2": {"nodes": 6, "again": "{prompt}"},
    "gigpo": {},
    "hgpo": {},
    "himac": {"plans": 3, "executions": 3, "stop": "e", "phase": "macro"},
    "metaagent_x": {"designs": 3, "executions": 3, "stop": "e"},
    "mc_grpo": {},
    "rorecomp": {},
    "d3s": {"tokens": 0.5},
    "portool": {"leaves": 6, "ways": 2},
    "ui_s1": {"group": 5},
    "brpo": {"group": 8, "skew": 1.0},
    "rtv": {"attempts": 4, "shown": "{digest}"},
    "st_raptor": {"answers": 4, "ask": "{text}"},
    "sage": {"shown": "{digest}"},
    "tmas": {"attempts": 3, "turns": 2, "learned": "{record}", "tried": "{record}", "keep": 0.0, "explore": 0.5},
    "self_pretraining": {"rollouts": 3},
}
