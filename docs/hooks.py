"""Pages of papers in the site: they lie in the folders of their papers and are read as `recipes/NAME.md`.

Links are written so that they work in the repository. Here they are turned to the pages of the site; a link to a file
of the code, or to a paper whose folder is gone, is its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAPERS = ROOT / "rolltree_papers"
_LINK = re.compile(r"\[([^\]\n]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")


def pages() -> dict[str, Path]:
    """The page of every recipe of a paper, by its name."""
    found = {path.parent.name: path for path in PAPERS.glob("[!_]*/page.md")}
    return found | {path.stem.removeprefix("page-"): path for path in PAPERS.glob("[!_]*/page-*.md")}


def on_config(config: Any) -> Any:
    """The navigation has every recipe behind the index of papers."""
    core = (path.stem for path in (ROOT / "docs" / "recipes").glob("*.md") if path.stem != "index")
    for section in config["nav"]:
        if "Recipes" in section:
            section["Recipes"] += [{name: f"recipes/{name}.md"} for name in sorted({*core, *pages()})]
    return config


def on_files(files: Any, config: Any) -> Any:
    """The pages of papers, read where they lie."""
    for name, path in pages().items():
        files.append(File.generated(config, f"recipes/{name}.md", content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links of the repository as links of the site."""
    name = page.file.src_uri
    places = {path.relative_to(ROOT).as_posix(): f"recipes/{name}.md" for name, path in pages().items()}
    stem = Path(name).stem
    own = name.startswith("recipes/") and stem in pages()
    base = posixpath.dirname(pages()[stem].relative_to(ROOT).as_posix() if own else f"docs/{name}")

    def turned(link: re.Match[str]) -> str:
        text, target, anchor = link[1], posixpath.normpath(posixpath.join(base, link[2])), link[3] or ""
        page = places.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else "")
        return f"[{text}]({posixpath.relpath(page, posixpath.dirname(name) or '.')}{anchor})" if page else text

    return _LINK.sub(turned, markdown)
