"""What a confirmation will be about, written down and committed before it runs (`studies/preregistered/NAME.json`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rolltree.compare.regimes import REGIMES
from rolltree.compare.trace import LabError
from studies.power import ALPHA, CANDIDATES, LOOKS
from studies.tables import TableArm

FOLDER = Path(__file__).parent / "preregistered"
FRESH = 2000
"""Seeds from here on are for confirmations; none serves two of the same regime."""


@dataclass(frozen=True, slots=True)
class Preregistration:
    """The claims of one confirmation, a family, in one regime."""

    name: str
    regime: str
    baseline: TableArm
    claims: tuple[TableArm, ...]
    least: float
    """The effect claimed for each, as a share."""
    first_seed: int
    looks: tuple[int, ...] = LOOKS
    alpha: float = ALPHA
    why: str = ""
    """The screen that these claims come from."""


def read(path: Path) -> Preregistration:
    """A preregistration; one that promises what the procedure does not is refused."""
    try:
        raw = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        made = Preregistration(
            path.stem, str(raw["regime"]), _arm(raw["baseline"]), tuple(_arm(one) for one in raw["claims"]),
            float(raw["least"]), int(raw["first_seed"]), tuple(raw.get("looks", LOOKS)),
            float(raw.get("alpha", ALPHA)), str(raw.get("why", "")),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"cannot read the preregistration {path}: {error!r}; docs/howto/regimes.md shows one") from error
    if made.regime not in REGIMES:
        raise LabError(f"{path}: there is no regime {made.regime!r}; choose {', '.join(REGIMES)}")
    if not 1 <= len(made.claims) <= CANDIDATES:
        raise LabError(f"{path} has {len(made.claims)} claims; one to {CANDIDATES} are a family whose power is known")
    if made.first_seed < FRESH:
        raise LabError(f"{path}: first_seed={made.first_seed} was seen by screens; give {FRESH} or more")
    for other in sorted(path.parent.glob("*.json")):
        if other != path and not other.name.endswith(".result.json"):
            _apart(made, json.loads(other.read_text(encoding="utf-8")), other)
    return made


def committed(path: Path) -> str:
    """The commit that holds the file as it stands; one that is not committed, or was changed since, is refused."""
    folder = path.resolve().parent

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)

    tracked = git("ls-files", "--error-unmatch", path.name).returncode == 0
    if not tracked or git("diff", "--quiet", "HEAD", "--", path.name).returncode:
        raise LabError(f"{path} is not committed as it stands; commit it before its runs, that is what it is for")
    return git("log", "-1", "--format=%H", "--", path.name).stdout.strip()


def _arm(raw: Mapping[str, Any]) -> TableArm:
    return TableArm(str(raw["label"]), str(raw["recipe"]), tuple(map(str, raw.get("knobs", ()))))


def _apart(made: Preregistration, other: Mapping[str, Any], path: Path) -> None:
    first, last = int(other["first_seed"]), int(other["first_seed"]) + max(other.get("looks", LOOKS))
    if other["regime"] == made.regime and first < made.first_seed + made.looks[-1] and made.first_seed < last:
        raise LabError(f"{made.name}: seeds {made.first_seed} and on are those of {path.name} too; give {last} or more")
