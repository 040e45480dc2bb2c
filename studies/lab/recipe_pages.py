"""Recipe pages, paper index and table of evidence, written from cards and findings.

Run `python -m studies.lab.recipe_pages` after a card or an entry changed, or a paper came or went. The page of a
paper's recipe lies in its folder.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rolltree.compare.regimes import PREFIX, regime
from rolltree.generate.strategy import TASK_NEEDS
from rolltree.knobs.help import COMMON, sentences
from rolltree.recipe.check import FROM_TASK
from rolltree.recipe.compose import compose
from rolltree.recipe.recipe import Card, Recipe
from rolltree.recipe.registry import list_recipes, load_recipe
from studies.lab.entry import load_entries, load_entry
from studies.lab.entry_family import FamilyVerdict, together
from studies.lab.evidence_pages import found, overview
from studies.lab.places import CHECKOUT, DOCS, EVIDENCE, PAPERS, in_folder, page_link, page_of

TABLE = CHECKOUT / "docs" / "measured" / "evidence.md"
_PLAIN = ((), None, {}, "")
_USUAL = ("anchor", "unit")
"""Parts that are only worth a line where they differ from the usual."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SET = re.compile(r"(?<=frozenset\(\{)[^{}]*(?=\}\))")


def page(name: str, evidence: Path = EVIDENCE) -> str:
    """One recipe: what it is, its claim, its knobs, its parts and what was found.

    Its links work where it lies, in `docs/recipes/` or in the folder of its paper.
    """
    recipe: Any = load_recipe(name)
    card, parts = recipe.card, compose(recipe)
    told = COMMON | sentences(type(recipe))
    knobs = "\n".join(f"| `{k}` | `{v}` | {_cell(told.get(k, ''))} |" for k, v in asdict(recipe).items())
    made = "\n".join(
        f"| {f.name} | `{_shown(getattr(parts, f.name))}` |"
        for f in fields(parts)
        if f.name != "name"
        and getattr(parts, f.name) not in _PLAIN
        and (f.name not in _USUAL or getattr(parts, f.name) != f.default)
    )
    text = (
        f"# {card.name}\n\n**{card.title}** ({card.year}, {_link(card)})\n\n{inspect.getdoc(type(recipe))}\n\n"
        f"**Claim.** {card.claim.rstrip('.')}.\n\n**Stages.** {', '.join(card.stages)}. "
        f"**Baseline.** {card.baseline or 'none'}. "
        f"**Acted where** {_counter(card)}.{_needs(card)}\n\n"
        f"```\nrolltree {example(recipe)}\n```\n\n"
        f"## Knobs\n\n| knob | default | meaning |\n|---|---|---|\n{knobs}\n\n"
        f"## Made of\n\n| part | is |\n|---|---|\n{made}\n\n"
        f"## Evidence\n\n{found(load_entry(card.name, evidence))}\n"
    )
    return text if in_folder(name, "page.md") is None else text.replace("](../", "](../../docs/")


def index(evidence: Path = EVIDENCE) -> str:
    """The paper index: every recipe with its paper, its stages and where its evidence stands."""
    verdicts = together(load_entries(evidence))
    rows = "\n".join(
        f"| [{c.name}]({_from_index(c.name)}) | {c.title} | {_link(c)} | {', '.join(c.stages)} "
        f"| {_verdict(c, verdicts)} |"
        for c in list_recipes()
    )
    return (
        "# Recipes and their papers\n\nWritten from the recipes' cards by `python -m studies.lab.recipe_pages`.\n\n"
        f"| recipe | method | paper | stages | evidence |\n|---|---|---|---|---|\n{rows}\n"
    )


def write(checkout: Path = CHECKOUT, evidence: Path = EVIDENCE) -> list[Path]:
    """All pages and the index, into a checkout; pages of recipes that are gone are removed."""
    texts = {page_of(card.name, checkout): page(card.name, evidence) for card in list_recipes()}
    texts[checkout / DOCS / "index.md"] = index(evidence)
    for stale in {*(checkout / DOCS).glob("*.md"), *checkout.glob(f"{PAPERS.name}/*/page*.md")} - texts.keys():
        stale.unlink()
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _from_index(name: str) -> str:
    """The page of a recipe as a link from `docs/recipes/`."""
    return page_link(name).removeprefix("../recipes/")


def _cell(text: str) -> str:
    """A sentence in a table: bars would end its cell."""
    return text.replace("|", "\\|")


def _shown(part: Any) -> str:
    """A part as text that is the same in every process: no addresses, and sets in order."""
    return _SET.sub(lambda found: ", ".join(sorted(found[0].split(", "))), _ADDRESS.sub("", repr(part)))


def _counter(card: Card) -> str:
    """What proves in a run that the mechanism acted."""
    if card.counter is None:
        return "nothing says"
    return f"`{card.counter.metric}` is not {card.counter.rest:g}"


def _needs(card: Card) -> str:
    """What a run must have so that the mechanism can act."""
    return f" **Needs** {' and '.join(map(str, card.needs))}." if card.needs else ""


def _link(card: Card) -> str:
    known = card.paper[:4].isdigit() and card.paper[4:5] == "."
    return f"[arXiv {card.paper}](https://arxiv.org/abs/{card.paper})" if known else card.paper


def example(recipe: Recipe) -> str:
    """The command that trains with a recipe as it is."""
    card = recipe.card
    options = f" {card.options}" if card.options else ""
    return f"train {card.name} --task {example_task(recipe)}{options} --out runs/{card.name}"


def example_task(recipe: Recipe) -> str:
    """A task the recipe accepts: that of its evidence, else one with an environment where it needs one."""
    named = recipe.card.task or (recipe.card.evidence.task if recipe.card.evidence else "")
    if named.startswith(PREFIX):
        named = regime(named.removeprefix(PREFIX)).task
    parts = recipe.build()
    needs = parts.strategy.needs | parts.credit.needs
    return named or ("lookup" if needs & (TASK_NEEDS | FROM_TASK) else "countdown")


def _verdict(card: Card, verdicts: Mapping[str, FamilyVerdict]) -> str:
    return verdicts[card.name].outcome if card.name in verdicts else "not measured yet"


if __name__ == "__main__":
    TABLE.write_text(overview(load_entries(EVIDENCE)), encoding="utf-8")
    print(TABLE)
    for path in write():
        print(path)
