"""The page of `rolltree.lab.controllers`."""

from pathlib import Path
from rolltree.lab.compare import Comparison, as_json
from rolltree.lab.trace import write_json


def write_page(folder: Path, result: Comparison) -> None:
    write_json(folder / "controllers.json", as_json(result))
