"""The figures of the documentation in the light and in the dark."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studies.exact.chart import DARK

FIGURES = sorted((Path(__file__).parents[2] / "docs").rglob("*.svg"))


def test_every_figure_knows_the_dark():
    assert len(FIGURES) >= 8
    assert [f.name for f in FIGURES if DARK not in f.read_text()] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_stands_on_the_ground_of_its_page_and_is_read_there(browser: Any, tmp_path: Path, scheme: str):
    image = pytest.importorskip("PIL.Image", reason="Pillow is missing: pip install pillow")
    page = browser.new_page(color_scheme=scheme, viewport={"width": 700, "height": 400})
    (tmp_path / "figure.html").write_text(f'<body style="margin:0"><img src="{FIGURES[0].as_uri()}" width="640">')
    page.goto((tmp_path / "figure.html").as_uri())
    shot = np.asarray(image.open(BytesIO(page.locator("img").screenshot())).convert("L"), np.float64)
    page.close()
    ground, ink = (shot[2, 2], shot.min()) if scheme == "light" else (shot[2, 2], shot.max())
    assert (ground > 240) if scheme == "light" else (ground < 40)
    assert abs(ground - ink) > 150
