"""From what was measured to a page of the documentation."""

from __future__ import annotations

from typing import Any

HEAD = """# On a GPU

Made by `make gpu`, which needs a card and torch, transformers, numpy and pyarrow: numerics of the card against the
processor, the local engine against `generate`, packed trees against flat sequences, whole steps, and the packaged
policy learning. It takes at most eight minutes, writes `benchmarks/baselines/gpu.json` and this page, and what could
not be measured is listed with its reason.
"""
NONE = """
**Not run yet.** No card has been at hand for this version. The same script runs in the tests on a processor at toy
sizes, where FlexAttention has a forward pass alone and nothing is compiled. One command on a machine with a GPU fills
this page:

```
make gpu
```
"""
PARTS = {
    "numerics": ("Does the card compute what the processor computes?",
                 "Largest difference of a log-prob from the processor's in float32, and the cosine between gradients."),
    "sampled": ("Does the engine on the card say what the processor's says?",
                "Largest difference of a log-prob from the processor's in float32: of texts that the processor's "
                "engine wrote, read on the card, and of texts that the card's wrote, read on the processor. A seed "
                "draws the same token until rounding moves a probability across it; from there on the texts differ."),
    "engine": ("Sampling", "New tokens per second: the local engine with recorded steps (CUDA graphs), without, and "
               "transformers' `generate` as it comes. Prompts are read once a group by the engine, once a sample by "
               "`generate`."),
    "packed": ("Training on trees", "Trained tokens per second, forward and backward with activations computed again, "
               "against the same paths written out one by one without padding (SDPA), and against TRL's `TreeRow` "
               "where its kernels are at hand. The share is of the matrix product's speed above; what is computed "
               "again does not count."),
    "steps": ("Whole steps", "Rollouts, credit, one update and publishing; the second step of a run."),
    "learning": ("Learning", "Held-out items solved before and after, from the same seeds. The gap is how far engine "
                 "and policy in training lie apart on the same tokens (`policy/mismatch`)."),
}  # fmt: skip


def page(data: dict[str, Any] | None) -> str:
    """The page for a result; without one, how to get it."""
    if data is None:
        return HEAD + NONE
    about = data["machine"]
    out = [HEAD, f"\n{about['device']}, {about['dtype']}, torch {about['torch']}, transformers "
           f"{about['transformers']}, {about['measured']}; a large matrix product runs at "
           f"{about['matrix_peak'] / 1e12:.3g} TFLOP/s; "
           f"{about['seconds']:.0f} s in all.\n"]  # fmt: skip
    for part, (title, says) in PARTS.items():
        if rows := data["rows"].get(part):
            out.append(f"\n## {title}\n\n{says}\n\n{grid(rows)}\n")
    if data["left_out"]:
        out.append("\n## Left out\n\n" + "\n".join(f"- {line}" for line in data["left_out"]) + "\n")
    return "".join(out)


def grid(rows: list[dict[str, Any]]) -> str:
    """Rows as a table; columns that no row fills are left out."""
    keys = [k for k in dict.fromkeys(key for row in rows for key in row) if any(row.get(k) is not None for row in rows)]
    lines = ["| " + " | ".join(k.replace("_", " ") for k in keys) + " |",
             "|" + "|".join("---" if k == "what" else "---:" for k in keys) + "|"]  # fmt: skip
    lines += ["| " + " | ".join(cell(row.get(k)) for k in keys) + " |" for row in rows]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """One number for people."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
