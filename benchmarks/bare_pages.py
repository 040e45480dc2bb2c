"""The barest pages of a saved forest, which the viewer is measured against: pyarrow reads columns, a script draws."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DRAWN = "[data-drawn]"
TREE = """<!doctype html><canvas id=c width=1200 height=800></canvas><script>
const data = DATA, count = data.parent.length, row = new Map(data.id.map((id, i) => [id, i]));
const [depth, leaves, at, used] = [0, 0, 0, 0].map(() => new Float64Array(count));
const above = data.parent.map((p) => p === null || p < 0 ? -1 : row.get(p)), forked = new Uint8Array(count);
let deepest = 1;
for (let i = 0; i < count; i++) if (above[i] >= 0) {
  depth[i] = depth[above[i]] + 1; forked[above[i]] = 1; deepest = Math.max(deepest, depth[i] + 1);
}
for (let i = count - 1; i >= 0; i--) {
  if (!forked[i]) leaves[i] = 1;
  if (above[i] >= 0) leaves[above[i]] += leaves[i];
}
const pen = document.getElementById('c').getContext('2d'), wide = 1200 / leaves[0], high = 800 / deepest;
for (let i = 0; i < count; i++) {
  if (above[i] >= 0) { at[i] = at[above[i]] + used[above[i]]; used[above[i]] += leaves[i]; }
  pen.fillStyle = data.reward[i] === null ? '#cccccc' : data.reward[i] > 0.5 ? '#1f7a5c' : '#c2512f';
  pen.fillRect(at[i] * wide, depth[i] * high, Math.max(leaves[i] * wide, 0.5), Math.max(high, 0.5));
}
document.getElementById('c').dataset.drawn = count;
</script>"""
STEP = """<!doctype html><table><tr><th>tree<th>reward</table><script>
const data = DATA;
for (const [tree, reward] of data) {
  const line = document.querySelector('table').insertRow();
  line.insertCell().textContent = tree;
  line.insertCell().textContent = reward;
}
document.querySelector('table').dataset.drawn = data.length;
</script>"""


def tree_page(folder: Path) -> str:
    """A rectangle per node."""
    read = columns(folder, "id", "parent")
    return TREE.replace("DATA", json.dumps(read.to_pydict()))


def step_page(folder: Path) -> str:
    """A row per tree, with its mean reward."""
    means = columns(folder, "tree").group_by("tree").aggregate([("reward", "mean")])
    return STEP.replace("DATA", json.dumps(list(zip(*means.to_pydict().values(), strict=True))))


def columns(folder: Path, *names: str) -> pa.Table:
    """Some columns of the nodes, and the reward of each."""
    read = pq.read_table(folder / "nodes.parquet", columns=[*names, "scores"])
    reward = pc.map_lookup(read["scores"], query_key="reward", occurrence="first")
    return read.drop_columns(["scores"]).append_column("reward", reward)


PAGES = {"tree": tree_page, "step": step_page}


@contextmanager
def serve_bare(folder: Path) -> Generator[str]:
    """The address of a server of bare pages: /tree/NAME and /step/NAME."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer with a page."""
            kind, _, name = self.path.strip("/").partition("/")
            if kind not in PAGES:  # browsers ask for an icon
                self.send_error(404)
                return
            made = PAGES[kind](folder / name).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(made)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
