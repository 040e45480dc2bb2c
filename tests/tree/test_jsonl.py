"""The interchange format: exact both ways, writable by hand, and every mistake named by file, line and field."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from rolltree.tree import Forest, Tree
from rolltree.tree.store.fieldtypes import numbers
from rolltree.tree.store.jsonl import lines, parse, read, write, write_credit
from rolltree.tree.store.values import StoreError
from tests.tree.forest_strategies import assert_same_tree, forests

HAND_WRITTEN = """
{"tree":"t0","id":0,"role":"prompt","actions":[5,3],"task":"sum"}
{"tree":"t1","id":7,"role":"prompt","actions":[1]}
{"tree":"t0","id":2,"parent":0,"role":"policy","actions":[5,9,2],"logp":[-0.1,-1.2,null],"scores":{"reward":1.0}}
{"tree":"t0","id":3,"parent":0,"role":"env","actions":[4],"scores":{"step_reward":0.5},"state_key":"room 2"}
"""


def test_a_hand_written_file():
    forest = parse(HAND_WRITTEN.splitlines())
    tree = forest["t0"]
    policy, env = tree[2], tree[3]
    assert (tree.task, [n.id for n in tree], forest["t1"].root.id) == ("sum", [0, 2, 3], 7)
    np.testing.assert_array_equal(policy.logp, np.array([-0.1, -1.2, np.nan], np.float32))
    assert (policy.trainable, policy.status, policy.sampling_logprob, policy.scores) == (
        True,
        "done",
        None,
        {"reward": 1.0},
    )
    assert (env.trainable, env.state_key, env.scores) == (False, "room 2", {"step_reward": 0.5})


@settings(max_examples=50, deadline=None)
@given(forest=forests())
def test_round_trip_is_exact(forest: Forest):
    back = parse(lines(forest))
    assert [t.id for t in back] == [t.id for t in forest]
    for tree in forest:
        assert_same_tree(tree, back[tree.id], events=False)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64"])
@pytest.mark.parametrize("shape", [(0,), (3,), (0, 3), (2, 0), (2, 3)])
def test_actions_of_any_type_and_trailing_shape(dtype: str, shape: tuple[int, ...]):
    tree = Tree("t", (np.arange(np.prod(shape, dtype=int)) / 3).reshape(shape).astype(dtype))
    assert_same_tree(tree, parse(lines([tree]))["t"], events=False)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numbers_are_short_and_exact(dtype: type):
    bits = np.random.default_rng(0).integers(0, 2**63, 20_000, dtype=np.int64)
    array = bits.view(dtype)
    text = json.dumps(numbers(array), allow_nan=False)
    back = np.array([np.nan if v is None else float(v) for v in json.loads(text)], dtype)
    np.testing.assert_array_equal(back, array)
    assert json.dumps(numbers(np.array([-0.1, 1.2], np.float32))) == "[-0.1, 1.2]"


def test_lines_are_standard_json_with_defaults_left_out():
    tree = Tree("t0", [5, 3])
    tree.extend(0, [9], logp=[-0.1], sampling_logprob=[np.nan], status="done", scores={"reward": np.inf})
    assert list(lines([tree])) == [
        '{"tree":"t0","id":0,"parent":null,"role":"prompt","actions":[5,3],"status":"open","actor":"task"}',
        '{"tree":"t0","id":1,"parent":0,"role":"policy","actions":[9],"status":"done",'
        '"scores":{"reward":"inf"},"logp":[-0.1],"sampling_logprob":[null]}',
    ]


@pytest.mark.parametrize("name", ["$x", "$tuple", "$map", "reward"])
@pytest.mark.parametrize("value", [1.5, np.inf, np.nan])
def test_a_lone_score_may_have_any_name(name, value):
    tree = Tree("t0", [5, 3])
    tree.extend(0, [9], status="done", scores={name: value})
    (back,) = parse(lines([tree]))
    assert list(back[1].scores) == [name]
    np.testing.assert_equal(back[1].scores[name], value)


NODE = {"tree": "t", "id": 1, "parent": 0, "role": "policy", "actions": [1]}
MISSING = object()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": MISSING}, "field 'actions': is missing"),
        ({"role": "polcy"}, "field 'role': is 'polcy'; known: prompt, policy, env"),
        ({"scroes": {}}, "field 'scroes': is not part of the format; did you mean 'scores'?"),
        ({"zzz": 1}, "field 'zzz': is not part of the format; put data of your own under 'notes'"),
        ({"logp": [-1, -2]}, "field 'logp': has 2 entries for 1 actions"),
        ({"logp": ["x"]}, "field 'logp': must hold numbers, null for NaN"),
        ({"logp": [True]}, "field 'logp': must hold numbers, not True"),
        ({"version": [0.5]}, "field 'version': must hold integers, not 0.5"),
        ({"actions": [[1], [2, 3]]}, "field 'actions': must be a list whose entries all have one shape"),
        ({"actions": 7}, "field 'actions': must be a list, not 7"),
        ({"actions": [3000000000]}, 'field \'actions\': holds numbers beyond 32 bits; add "dtype":"int64"'),
        ({"actions": [300], "dtype": "uint8"}, "field 'actions': holds numbers that do not fit uint8"),
        ({"dtype": "O"}, "field 'dtype': is 'O'; known: bool, int8"),
        ({"shape": [2]}, "field 'shape': is [2] but each action has shape []"),
        ({"parent": 9}, "field 'parent': names node 9, which no line of tree 't' before this one defines"),
        ({"parent": MISSING}, "field 'parent': is missing: tree 't' already has the root 0"),
        ({"id": 0}, "field 'id': 0 stands twice in tree 't'"),
        ({"id": -1}, "field 'id': must be an integer from 0"),
        ({"trainable": "yes"}, "field 'trainable': must be true or false, not 'yes'"),
        ({"scores": {"reward": "good"}}, "field 'scores': must hold numbers"),
        ({"task": "x"}, "field 'task': belongs on the line of the tree's root"),
        ({"top": {"ids": [[1]]}}, "field 'top': must be an object"),
        ({"state": {"$object": ["os.system", "ls"]}}, "the file holds a os.system, which is not registered"),
        ({"state": {"$tuple": 3}}, "the stored value under '$tuple' makes no sense"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, object], said: str):
    row = {k: v for k, v in (NODE | change).items() if v is not MISSING}
    assert said in refusal(tmp_path, json.dumps(row))


def test_lines_that_are_no_objects(tmp_path: Path):
    assert "not a complete JSON object" in refusal(tmp_path, json.dumps(NODE)[:-9])
    assert "a line must be a JSON object, not '[1]'" in refusal(tmp_path, "[1]")


def refusal(folder: Path, line: str) -> str:
    path = folder / "nodes.jsonl"
    path.write_text('{"tree":"t","id":0,"role":"prompt","actions":[1]}\n' + line + "\n")
    with pytest.raises(StoreError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} line 2")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(StoreError, match=r"missing\.jsonl cannot be read: No such file"):
        read(tmp_path / "missing.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StoreError, match="binary is not UTF-8 text"):
        read(tmp_path / "binary")


def test_a_write_that_fails_leaves_no_file_and_none_is_overwritten(tmp_path: Path):
    tree = Tree("t", [1])
    tree.extend(0, [2], state=object())
    with pytest.raises(StoreError, match="storable"):
        write([tree], tmp_path / "f.jsonl")
    assert list(tmp_path.iterdir()) == []
    tree[1].state = None
    write([tree], tmp_path / "f.jsonl")
    with pytest.raises(StoreError, match="exists; choose another file"):
        write([tree], tmp_path / "f.jsonl")
    assert_same_tree(tree, read(tmp_path / "f.jsonl")["t"])


def test_credit_has_a_line_per_trained_node_that_got_some(tmp_path: Path):
    tree = Tree("t", [1])
    tree.extend(0, [2, 3], gain=[0.5, 0.25], loss=[0.0, -0.1])
    tree.extend(0, [4], loss=[-1])
    tree.extend(0, [5])
    tree.extend(0, [6], role="env", gain=[1.0])
    path = write_credit([tree], tmp_path / "adv.jsonl")
    assert path.read_text().splitlines() == [
        '{"tree":"t","id":1,"gain":[0.5,0.25],"loss":[0.0,-0.1]}',
        '{"tree":"t","id":2,"gain":[0.0],"loss":[-1.0]}',
    ]
