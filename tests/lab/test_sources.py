"""Hashes of code: they follow what is used and change with what it does, not with how it is written."""

import ast
from dataclasses import replace

from rolltree.lab import sources
from rolltree.lab.sources import changed, closure, combined, modules_of, recipe_sources
from rolltree.recipe.registry import load_recipe


def shape(text):
    return sources._shape(ast.parse(text))


def test_writing_does_not_count():
    plain = "def f(x):\n    return x + 1\n"
    dressed = '"""Module."""\n# why\ndef f(x):\n    """Doc."""\n\n    return (x\n        + 1)  # one\n'
    assert shape(plain) == shape(dressed)


def test_meaning_counts():
    for other in (
        "def f(x):\n    return x + 2\n",
        "def f(x, y=0):\n    return x + 1\n",
        "def g(x):\n    return x + 1\n",
    ):
        assert shape(other) != shape("def f(x):\n    return x + 1\n")


def test_imports_are_followed_and_registries_are_not():
    found = closure({"rolltree.lab.compare"})
    assert {"rolltree.lab.contrast", "rolltree.lab.stats.student", "rolltree.errors"} <= found
    assert not any(name.endswith(".registry") for name in closure({"rolltree.recipe.grpo"}))


def test_a_recipe_rests_on_its_own_parts_only():
    def of(name):
        recipe = load_recipe(name)
        return set(recipe_sources(recipe, recipe.build()))

    dapo, rloo = of("dapo"), of("rloo")
    assert {"rolltree.recipe.dapo", "rolltree.filter.groups", "rolltree.generate.independent"} <= dapo
    assert "rolltree.recipe.dapo" not in rloo
    assert not any(n.startswith(("rolltree.train", "rolltree.engine", "rolltree.tree")) for n in dapo)
    assert "rolltree.generate.hand" not in dapo


def test_parts_inside_parts_are_found():
    recipe = load_recipe("gspo")
    assert any(m.startswith("rolltree.objective") for m in modules_of(recipe.build()))
    other = replace(recipe.build(), credit=lambda table: None)
    assert modules_of([other]) >= {"rolltree.recipe.recipe"}


def test_differences_are_named():
    assert changed({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
    assert combined({"a": "1", "b": "2"}) == combined({"b": "2", "a": "1"}) != combined({"a": "1"})
