"""What somebody else's run, page or address may try on the viewer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rolltree.analysis.source import open_sources
from rolltree.errors import RolltreeError
from rolltree.view.runs import lines_of, summary
from tests.view.forests import a_run
from tests.view.test_guard import ask


@pytest.fixture
def run(tmp_path: Path):
    return a_run(tmp_path / "run")


@pytest.mark.parametrize("name", ["nodes", "events", "trees"])
def test_a_file_of_a_step_that_leads_out_of_the_run_is_not_opened(run: Path, tmp_path: Path, name: str):
    step = next((run / "forests").glob("step=*"))
    file = step / f"{name}.parquet"
    elsewhere = tmp_path / "secret.parquet"
    shutil.move(file, elsewhere)
    file.symlink_to(elsewhere)
    (source,) = open_sources([run])
    with pytest.raises(RolltreeError, match="leads out of"):
        source.archive(int(step.name[5:]))


def test_a_whole_step_or_folder_of_forests_that_leads_out_is_not_opened(run: Path, tmp_path: Path):
    (source,) = open_sources([run])
    shutil.move(run / "forests", tmp_path / "secret")
    (run / "forests").symlink_to(tmp_path / "secret")
    with pytest.raises(RolltreeError, match="leads out of"):
        source.steps()
    forests = tmp_path / "some"
    forests.mkdir()
    (forests / "step=1").symlink_to(next((tmp_path / "secret").glob("step=*")))
    (other,) = open_sources([forests])
    with pytest.raises(RolltreeError, match="leads out of"):
        other.archive(1)


@pytest.mark.parametrize("host", ["[", "[::1", "]", "", "127.0.0.1.evil.example", "127.0.0.1@evil"])
def test_a_host_that_is_none_is_refused_in_a_sentence(host: str):
    start, body = ask(None, host=host)
    assert start["status"] == 403
    assert body["body"].startswith(b"this viewer answers on this machine only")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", "http://127.0.0.1:9999", ""])
@pytest.mark.parametrize(
    ("kind", "method"), [("http", "GET"), ("http", "HEAD"), ("http", "POST"), ("websocket", "GET")]
)
def test_another_sites_page_may_not_even_read(origin: str, kind: str, method: str):
    """The socket's library falls back to polling by GET, and lets every origin read the answers."""
    sent = ask(None, kind=kind, method=method, origin=origin)
    assert sent[0].get("status", sent[0].get("code")) in (403, 1008)
    assert ask(None, kind=kind, method=method, origin="http://127.0.0.1:8642")[0]["status"] == 200


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "train", "step": 1, "reward": "much"},
        {"kind": "train", "step": 1, "reward": [1]},
        {"kind": "train", "step": 1, "reward": 10**400},
        {"kind": "train", "step": 1, "decoded": {}},
        {"kind": "train", "step": "one"},
        {"kind": ["train"], "step": 1},
        '{"kind": "train", "step": 1, "reward": ' + "[" * 5000 + "]" * 5000 + "}",
        "{",
    ],
)
def test_one_damaged_run_is_a_sentence_and_the_others_still_show(run: Path, tmp_path: Path, line: object):
    good = shutil.copytree(run, tmp_path / "good")
    with (run / "metrics.jsonl").open("a") as sink:
        sink.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    one, other = (summary(source) for source in open_sources([run, good]))
    assert "is damaged" in one.trouble
    assert "\n" not in one.trouble
    assert other.trouble == ""


@pytest.mark.parametrize("line", ["[1]", '"kind step"', "{}", '{"kind": "train"}', "null"])
def test_lines_of_another_kind_are_left_out(run: Path, line: str):
    (source,) = open_sources([run])
    before = lines_of(source)
    with (run / "metrics.jsonl").open("a") as sink:
        sink.write(line + "\n")
    assert lines_of(source) == before


def test_an_address_with_a_token_moves_within_the_viewer_alone():
    from rolltree.view import guard

    for path in ("/\\evil.example/", "//evil.example", "/a\r\nSet-Cookie: x=y"):
        sent = _welcome(guard, path)
        location = dict(sent[0]["headers"])[b"location"]
        assert location.startswith(b"/")
        assert location[1:2] not in (b"/", b"\\")
        assert not {b"\r", b"\n", b"\\"} & {bytes([c]) for c in location}


def _welcome(guard, path):
    import asyncio

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"token=secret",
             "headers": [(b"host", b"127.0.0.1:8642")]}  # fmt: skip
    asyncio.run(guard.Guard(None, "secret", True)(scope, None, send))
    return sent
