"""The grid's rules, distances and state keys, against worlds small enough to check by hand."""

import asyncio
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.task.nano.grid import Grid
from rolltree.task.nano.world import MOVES, Walker, distances, parse, shortest
from rolltree.task.protocol import Item

LAYOUT = "@00 a20 A11- *22\n"
"""3x3: a wall along row 1 but for its door in the middle; the key below it, out of reach."""
OPEN = "@00 a02 A11- *22\n"
ITEM = Item("g", OPEN, 6, meta={"size": 3})


def walk(moves, item=ITEM, task=Grid()):  # noqa: B008 - tasks are immutable
    async def run():
        state, key = task.start(item)
        replies = []
        for move in moves:
            replies.append(await task.step(item, state, move))
            state = replies[-1].state
        text = "".join(move + reply.text for move, reply in zip(moves, replies, strict=True))
        return replies, await task.verify(item, state, text), key

    return asyncio.run(run())


def test_keys_open_doors_and_walls_stop():
    replies, verdict, _ = walk(">v>^<vv>")
    assert [reply.text for reply in replies] == ["01.", "01!", "02a", "02#", "01.", "11A", "21.", "22*"]
    assert [round(reply.reward, 3) for reply in replies] == [0, 0, 0.333, 0, 0, 0.333, 0, 0.333]
    assert replies[-1].done
    assert (verdict.score, verdict.parts) == (1, {"a": 1, "A": 1, "goal": 1})


def test_subgoals_are_paid_once_and_the_outcome_is_apart():
    replies, verdict, _ = walk(">><>")
    assert sum(reply.reward for reply in replies) == pytest.approx(1 / 3)
    assert (verdict.score, verdict.parts["a"], verdict.answer) == (0, 1, None)
    assert verdict.why == "stopped at 02 holding a"


def test_the_same_state_has_the_same_key_whatever_the_way():
    one, _, first = walk("><")
    two, _, _ = walk("^>>><<")
    three, _, _ = walk(">><<")
    assert first == one[-1].state_key == "g/00"
    assert two[-1].state_key == three[-1].state_key == "g/00a"


@pytest.mark.parametrize("text", ["", "x", ">>", " >", "v\n", "<x"])
def test_anything_but_one_arrow_fails_and_moves_nothing(text):
    replies, _, _ = walk([text])
    assert (replies[0].text, replies[0].failed, replies[0].state) == ("00?", True, Walker((0, 0)))


def test_a_layout_without_a_way_has_no_distance():
    assert Walker((0, 0)) not in distances(3, LAYOUT)
    assert distances(3, OPEN)[Walker((0, 0))] == 6


@pytest.mark.parametrize("level", [1, 2, 3])
def test_distances_equal_exhaustive_search(level):
    """The shortest of all move sequences, tried out one by one, is as long as the item says."""
    for item in islice((one for one in Grid(level=level).items("test") if one.answer <= 5), 5):
        world = parse(item.meta["size"], item.prompt)

        def arrives(moves, world=world):
            walker = Walker(world.start)
            for move in moves:
                walker, _ = world.move(walker, move)
                if walker.home:
                    return True
            return False

        lengths = [n for n in range(1, 6) if any(arrives(moves) for moves in product(MOVES, repeat=n))]
        assert lengths[0] == item.answer


@given(
    st.permutations([(r, c) for r in range(4) for c in range(4)]), st.integers(0, 4), st.sampled_from(["", "|", "-"])
)
def test_the_shortest_way_is_the_distance_of_the_start(places, walls, line):
    """Any layout at all: keys behind their own doors, doors beside the start, goals walled in."""
    spot = iter(f"{r}{c}" for r, c in places)
    things = [f"@{next(spot)}", f"*{next(spot)}", f"a{next(spot)}", f"A{next(spot)}{line}", f"b{next(spot)}",
              f"B{next(spot)}", *(f"#{next(spot)}" for _ in range(walls))]  # fmt: skip
    layout = " ".join(things)
    assert shortest(4, layout) == distances(4, layout).get(Walker(parse(4, layout).start))


def test_every_door_stands_in_the_way():
    """Without its key, no item of a level with doors can be solved."""
    for level, doors in ((2, 1), (3, 1), (4, 2)):
        for item in islice(Grid(level=level).items("train"), 20):
            size = item.meta["size"]
            assert len(parse(size, item.prompt).doors) == doors
            for letter in "ab"[:doors]:
                keyless = " ".join(thing for thing in item.prompt.split() if thing[0] != letter)
                assert Walker(parse(size, keyless).start) not in distances(size, keyless)
