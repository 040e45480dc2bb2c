"""A small data set of one's own: `python examples/chat/make_sums.py sums.jsonl`, questions and answers, one a line."""

import json
import random
import sys
from pathlib import Path


def main(path: str) -> None:
    """Write 320 sums of numbers up to 20, each once, in an order that is always the same."""
    pairs = [(a, b) for a in range(1, 21) for b in range(1, 21)]
    random.Random(0).shuffle(pairs)
    lines = [json.dumps({"question": f"What is {a} + {b}?", "answer": str(a + b)}) for a, b in pairs[:320]]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
