"""Fingerprints of code: they follow what is used and change with what it does, not with how or where it is written."""

import importlib
import itertools
import sys
from dataclasses import replace
from textwrap import dedent

import pytest

from rolltree.compare import sources
from rolltree.compare.arms import Arm
from rolltree.compare.definitions import Definition
from rolltree.compare.runner import Spec
from rolltree.compare.sources import changed, combined, fingerprint, reached, recipe_sources, roots
from rolltree.compare.trace import LabError
from rolltree.compare.train_runner import TrainRunner
from rolltree.recipe.registry import load_recipe
from rolltree.registry import FOREIGN
from tests.lab.simulated import conditions

NUMBER = itertools.count()


@pytest.fixture
def told(tmp_path, monkeypatch):
    """The fingerprint of `start` in `main.py` of a package made of these files."""

    def fingerprint_of(files, start="main:Method"):
        name = f"fingerprinted_{next(NUMBER)}"
        for path, text in {"__init__.py": "", **files}.items():
            place = tmp_path / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(dedent(text).replace("PACKAGE", name))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        FOREIGN.add(name)
        try:
            module, _, thing = start.partition(":")
            made = getattr(importlib.import_module(f"{name}.{module}"), thing)
            return fingerprint(reached(roots(made)))
        finally:
            FOREIGN.discard(name)

    return fingerprint_of


MAIN = """
    import math
    from dataclasses import dataclass

    from PACKAGE.near import helped

    SCALE = 3.0


    @dataclass(frozen=True)
    class Method:
        knob: float = SCALE

        def __call__(self, x: float) -> float:
            return math.sqrt(helped(x)) * self.knob
"""
NEAR = """
    from PACKAGE import far

    def helped(x):
        return far.deep(x) + 1
"""
FAR = """
    LIMIT = 7

    def deep(x):
        return min(x, LIMIT) * 2
"""
PLAIN = {"main.py": MAIN, "near.py": NEAR, "far.py": FAR}


def test_what_is_used_is_followed_through_methods_modules_and_constants(told):
    assert set(told(PLAIN)) == {"Method", "SCALE", "helped", "deep", "LIMIT"}


MERGED = NEAR.replace("from PACKAGE import far\n", "").replace("far.deep", "deep") + FAR
SAME = {
    "a definition in another module": {
        "main.py": MAIN,
        "near.py": NEAR.replace("import far", "import elsewhere").replace("far.deep", "elsewhere.deep"),
        "elsewhere.py": "from PACKAGE.far import LIMIT\n" + dedent(FAR).replace("LIMIT = 7\n", ""),
        "far.py": "LIMIT = 7\n",
    },
    "two modules merged": {"main.py": MAIN, "near.py": MERGED},
    "all merged": {"main.py": MERGED + MAIN.replace("    from PACKAGE.near import helped\n", "")},
    "a module renamed": {
        "main.py": MAIN.replace("PACKAGE.near", "PACKAGE.deeper.near_by"),
        "deeper/__init__.py": "", "deeper/near_by.py": NEAR, "far.py": FAR,
    },
    "a module that became a package": {
        "main.py": MAIN, "near/__init__.py": "from .words import helped\n", "near/words.py": NEAR, "far.py": FAR
    },
    "another import of the same": {
        "main.py": MAIN.replace("import math", "from math import sqrt as root").replace("math.sqrt", "root"),
        "near.py": NEAR.replace("PACKAGE import far", "PACKAGE.far import deep as d").replace("far.deep", "d"),
        "far.py": FAR,
    },
    "an import inside the function": {
        "main.py": MAIN,
        "near.py": "def helped(x):\n    from .far import deep\n    return deep(x) + 1\n",
        "far.py": FAR,
    },
    "an import of types alone": {
        "main.py": "import typing\nif typing.TYPE_CHECKING:\n    from PACKAGE.far import deep\n" + dedent(MAIN),
        "near.py": NEAR, "far.py": FAR,
    },
    "a definition that nothing uses, of a name that is another's local": {
        "main.py": MAIN + "\n    def x():\n        return 1\n\n    def knob():\n        return 2\n",
        "near.py": NEAR, "far.py": FAR + "\n    def x():\n        return 3\n",
    },
    "comments, docstrings and formatting": {
        "main.py": '"""Module."""\n' + dedent(MAIN), "near.py": NEAR,
        "far.py": 'LIMIT = 7  # seven\n\n\ndef deep(x):\n    """Doc."""\n    return (min(x,\n        LIMIT) * 2)\n',
    },
}  # fmt: skip


@pytest.mark.parametrize("how", SAME)
def test_where_code_lies_and_how_it_is_imported_changes_nothing(told, how):
    assert told(SAME[how]) == told(PLAIN)


OTHER = {
    "an operator two hops away": ({"far.py": FAR.replace("* 2", "+ 2")}, ["deep"]),
    "a constant three hops away": ({"far.py": FAR.replace("7", "8")}, ["LIMIT"]),
    "a default": ({"near.py": NEAR.replace("(x):", "(x, y=0):")}, ["helped"]),
    "another function of others": ({"main.py": MAIN.replace("math.sqrt", "math.exp")}, ["Method"]),
    "the same name from elsewhere": (
        {"main.py": MAIN.replace("import math", "import cmath as math")}, ["Method"]
    ),
    "the decorator": ({"main.py": MAIN.replace("frozen=True", "frozen=False")}, ["Method"]),
    "a constant put in later": ({"far.py": FAR + "\n    LIMIT += 1\n"}, ["LIMIT"]),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHER)
def test_what_code_does_is_told_by_name(told, what):
    files, names = OTHER[what]
    assert changed(told(PLAIN), told({**PLAIN, **files})) == names


def test_two_of_the_same_name_are_not_exchanged_unseen(told):
    files = {
        "main.py": "from PACKAGE.a import f\nfrom PACKAGE.b import g\ndef both(x):\n    return f(x) - g(x)\n",
        "a.py": "from PACKAGE.one import _step\ndef f(x):\n    return _step(x)\n",
        "b.py": "from PACKAGE.two import _step\ndef g(x):\n    return _step(x) + 1\n",
        "one.py": "def _step(x):\n    return x + 1\n",
        "two.py": "def _step(x):\n    return x + 2\n",
    }
    before = told(files, "main:both")
    swapped = {"a.py": files["a.py"].replace("one", "two"), "b.py": files["b.py"].replace("two", "one")}
    assert changed(before, told({**files, **swapped}, "main:both")) == ["f", "g"]
    assert "_step" in changed(before, told({**files, "two.py": files["two.py"].replace("2", "3")}, "main:both"))


def test_names_are_looked_up_in_their_scope(told):
    text = """
        import math as outer

        def used(): return 1
        def shadowed(): return 2
        def of_class(): return 3
        table = {}
        table["late"] = used

        class Method:
            of_class = 4

            def __call__(self, shadowed):
                def inner():
                    return of_class()
                return [shadowed for shadowed in self.rows], inner, {k: v for k, v in table.items()}
    """
    assert set(told({"main.py": text})) == {"Method", "of_class", "table", "used"}


def test_lambdas_and_wrapped_functions_are_found_where_their_code_stands(told):
    text = """
        from functools import wraps
        def helper(x): return x
        f = lambda x: helper(x)
        def twice(g):
            @wraps(g)
            def both(x): return g(g(x))
            return both
        @twice
        def h(x): return helper(x) + 1
    """
    assert set(told({"main.py": text}, "main:f")) == {"f", "helper"}
    assert set(told({"main.py": text}, "main:h")) == {"h", "helper", "twice"}


def test_registries_are_not_followed():
    found = reached(roots(load_recipe("grpo")))
    assert found
    assert not any(one.module.endswith(".registry") for one in found)


def test_a_recipe_rests_on_its_own_parts_only():
    def of(name):
        recipe = load_recipe(name)
        return recipe_sources(recipe, recipe.build())

    dapo, rloo = of("dapo"), of("rloo")
    assert {"Dapo", "Mixed", "Independent", "GRPO"} <= dapo.keys()
    assert not {"Dapo", "Mixed"} & rloo.keys()
    assert not {"Hand", "Tree", "Parts", "Card", "Uniform", "train"} & dapo.keys()


def test_a_run_rests_on_the_trainer_the_engine_and_the_task():
    spec = Spec(Arm("grpo", "grpo"), 0, conditions(task="arithmetic"))
    found = {one.name for one in reached(roots(tuple(TrainRunner().made_of(spec))))}
    assert {"TrainRunner", "train", "LocalEngine", "Grpo", "Clipped", "Arithmetic", "read_run"} <= found


def test_parts_inside_parts_are_found():
    recipe = load_recipe("gspo")
    assert any(one.module.startswith("rolltree.objective") for one in roots(recipe.build()))
    other = replace(recipe.build(), credit=lambda table: None)
    assert {"Parts"} <= {one.name for one in roots([other])}


def test_differences_are_named():
    assert changed({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
    assert combined({"a": "1", "b": "2"}) == combined({"b": "2", "a": "1"}) != combined({"a": "1"})


def test_what_all_share_is_found_where_it_is_and_missed_where_it_is_not():
    assert Definition("rolltree.generate.hand", "Hand") in sources.machinery()
    with pytest.raises(LabError, match=r"studies.lab.claim defines no Gone; name in rolltree.compare.sources"):
        sources._there("studies.lab.claim", ["Gone", "Measured"])


def test_a_check_counts_its_own_and_not_the_tools_it_is_run_with():
    found = sources.check_sources("studies.exact.votes", "ttrl")
    assert "ttrl" in found
    assert not {"Measured", "counted", "TrainRunner"} & found.keys()
    with pytest.raises(LabError, match=r"studies.exact.votes:gone cannot be found"):
        sources.check_sources("studies.exact.votes", "gone")
