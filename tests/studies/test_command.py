"""Studies as commands: one sentence and exit code 2 for bad input, help without a library's own words."""

import importlib
import inspect
import json
import subprocess
from functools import partial

import pytest

from rolltree.cli.helptext import help_of
from rolltree.compare.regimes import calibrated
from rolltree.knobs.help import COMMON, sentences
from studies import calibrate, confirm, warm
from studies.command import run_study
from studies.papers import studies_with
from studies.warm import STARTS, WarmSettings, WarmStart
from tests.studies.test_confirm import ASKED

STUDIES = ("board", "calibrate", "clock.__main__", "confirm", "exact.report", "history", "majority",
           "nano.learn", "nano.table", "power", "publish", "search.frozen", "variants", "warm")  # fmt: skip
OF_PAPERS = [study.__name__ for study in studies_with("main") if hasattr(study, "run_study")]


def run(module, shape, *arguments):
    return run_study(module.__name__.rpartition(".")[2], shape, module.main, module.__doc__, arguments)


def test_an_unknown_regime_is_one_sentence(capsys):
    assert run(calibrate, calibrate.CalibrateSettings, "nosuch") == 2
    said = capsys.readouterr().err
    assert said.startswith("studies.calibrate: ")
    assert "nosuch" in said
    assert said.count("\n") == 1


def test_a_confirmation_before_its_calibration_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(confirm, "calibrated", partial(calibrated, folder=tmp_path / "none yet"))
    (tmp_path / "mine.json").write_text(json.dumps({**ASKED, "regime": "mixed"}))
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert run(confirm, confirm.ConfirmSettings, "mine", "--folder", str(tmp_path)) == 2
    assert "run `python -m studies.calibrate mixed` first" in capsys.readouterr().err
    assert run(confirm, confirm.ConfirmSettings, "nosuch", "--folder", str(tmp_path)) == 2


def test_an_option_of_a_study_that_is_unknown_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        run(calibrate, calibrate.CalibrateSettings, "fresh", "--sed", "3")
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", [*(f"studies.{name}" for name in STUDIES), *OF_PAPERS])
def test_the_help_of_a_study_says_what_each_option_is(name):
    module = importlib.import_module(name)
    (shape,) = (cls for _, cls in inspect.getmembers(module, inspect.isclass)
                if cls.__module__ == module.__name__ and cls.__name__.endswith(("Settings", "Args")))  # fmt: skip
    told = help_of(shape, f"python -m {name}", module.__doc__ or "")
    assert "{None}" not in told
    assert told.startswith(f"usage: python -m {name} ")
    assert {field for field in shape.__dataclass_fields__ if field not in sentences(shape)} <= COMMON.keys()


def test_a_policy_is_written_without_bars(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(STARTS, "short", WarmStart("grid", 1, 0.2, 0.0, 1.0))
    capfd.readouterr()
    folder = warm.main(WarmSettings("short", items=1, out=tmp_path))
    assert (folder / "model.safetensors").exists()
    assert capfd.readouterr().err == ""
