"""What a strategy can do with a hand, and what stands in the tree afterwards."""

import asyncio
import itertools
import math

import numpy as np
import pytest

from rolltree.control.ledger import Budget, Limits
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.hand import HandError
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import entries
from rolltree.generate.runner import open_hand
from rolltree.generate.turns import play, turns
from rolltree.testing.strategy import shape
from rolltree.testing.tiny import CODEC, STOP, SpellTask, Walk, policy, tiny_engine


def by_hand(use, *, task=None, engine=None, **options):
    """Run `use(hand)` on one fresh tree; returns the hand."""

    async def go():
        hand = open_hand(engine or tiny_engine(), task or SpellTask(), **options)
        mine = hand.on(hand.plant(next(hand.task.items("train"))))
        await use(mine)
        return mine

    return asyncio.run(go())


def endless():
    """An engine that writes "a" for ever."""
    return TabularEngine(lambda p: [1.0] + [0.0] * 25, Letters(CODEC.alphabet))


def kinds(hand):
    return [e.kind for e in hand.tree.events]


def test_extend_returns_children_with_everything_the_engine_said():
    async def use(hand):
        hand.kids = await hand.extend(hand.tree.root, n=5, want={"entropy", "top:3", "hidden"}, temperature=0.7)

    hand = by_hand(use)
    prefix = tuple(hand.tree.root.actions.tolist())
    assert [k.parent for k in hand.kids] == [0] * 5
    for node in hand.kids:
        for i, token in enumerate(node.actions):
            row = policy((*prefix, *node.actions[:i].tolist()))
            assert node.logp[i] == pytest.approx(math.log(row[token]), abs=1e-5)
        assert node.trainable
        assert not node.forced
        assert (node.version == 0).all()
        assert len(node.entropy) == len(node.top.ids) == len(node)
        assert (node.sampling_logprob != node.logp).any()
        assert hand.hidden(node).shape == (CODEC.vocab_size,)
        assert node.status == "done"
        assert node.finish in ("eos", "stop", "length")
    assert kinds(hand)[0] == "extend"
    assert hand.tree.events[0].numbers["children"] == [k.id for k in hand.kids]
    assert hand.budget.spent.decoded == sum(map(len, hand.kids))
    assert hand.budget.spent.leaves == 5
    with pytest.raises(HandError, match=r"want=.'hidden'"):
        hand.hidden(hand.tree.root)


def test_a_segment_stays_open_and_grows_on_until_the_rollouts_limit():
    async def use(hand):
        here = hand.tree.root
        hand.seen = []
        while here.status == "open":
            (here,) = await hand.extend(here, max_tokens=5)
            hand.seen.append((len(here), here.status, here.finish, here.birth))
        assert await hand.extend(here) == []

    hand = by_hand(use, engine=endless(), max_tokens=12)
    assert hand.seen == [
        (5, "open", "length", "root"), (5, "open", "length", "boundary"), (2, "done", "length", "boundary"),
    ]  # fmt: skip
    assert hand.budget.spent.leaves == 1
    assert "no room" in hand.tree.events[-1].why


def test_an_own_stop_string_ends_a_segment_and_the_tasks_ends_the_rollout():
    row = np.zeros(27)
    row[[0, STOP]] = 0.7, 0.3

    async def use(hand):
        hand.kids = await hand.extend(hand.tree.root, n=20, stop=("aa",))

    hand = by_hand(use, engine=TabularEngine(lambda p: row, CODEC))
    seen = {(hand.text(k)[-2:], k.status, k.notes["stopped_by"]) for k in hand.kids}
    assert seen == {("aa", "open", "aa"), ("a!", "done", "!"), ("!", "done", "!")}


@pytest.mark.parametrize("left", [0, 1, 7, 11, 12])
def test_the_budget_is_honoured_to_the_token_and_is_a_finish_reason(left):
    async def use(hand):
        hand.kids = await hand.extend(hand.tree.root, n=4, max_tokens=3)

    hand = by_hand(use, engine=endless(), budget=Limits(decoded=left))
    assert [len(k) for k in hand.kids] == [min(3, left - 3 * i) for i in range(4) if left > 3 * i]
    assert hand.budget.spent.decoded == min(left, 12)
    assert hand.budget.remaining("decoded") == max(0, left - 12)
    assert [k.finish for k in hand.kids] == ["length" if len(k) == 3 else "budget" for k in hand.kids]
    assert ("budget" in kinds(hand)) == (left < 10)


def test_fork_inside_a_run_cuts_it_and_keeps_every_handle():
    async def use(hand):
        leaf = await play(hand, hand.tree.root)
        while len(leaf) < 4:
            leaf = await play(hand, hand.tree.root)
        before = hand.tree.prefix(leaf).tolist(), dict(leaf.scores)
        start = len(hand.tree.root)
        hand.kids = await hand.fork(leaf, start + 2, n=3, why="the most uncertain token", numbers={"entropy": 2.5})
        again = await hand.fork(leaf, start + 2)
        deeper = await hand.fork(leaf, start + 3)
        assert hand.tree[deeper[0].parent].parent == again[0].parent
        assert hand.place(leaf, start) is hand.tree.root
        assert hand.place(leaf, start + 4) in hand.tree.path(leaf)
        for nowhere in (start - 1, 99):
            with pytest.raises(HandError, match=f"no place {nowhere} on the path.*from {start} "):
                hand.place(leaf, nowhere)
        assert (hand.tree.prefix(leaf).tolist(), dict(leaf.scores)) == before
        assert (
            hand.tree.prefix(leaf)[: len(hand.tree.root) + 2].tolist() == hand.tree.prefix(hand.kids[0].parent).tolist()
        )
        assert again[0].parent == hand.kids[0].parent

    hand = by_hand(use)
    assert {k.birth for k in hand.kids} == {"resample"}
    assert len({k.parent for k in hand.kids}) == 1
    (event,) = [e for e in hand.tree.events if e.why == "the most uncertain token"]
    assert event.kind == "fork"
    assert event.numbers["entropy"] == 2.5
    assert hand.budget.spent.leaves == len(hand.tree.leaves())


def test_a_forced_fork_records_the_policys_log_prob_and_that_it_was_forced():
    async def use(hand):
        (leaf,) = await hand.extend(hand.tree.root, max_tokens=6)
        hand.at = len(leaf) - 1
        hand.kids = await hand.fork(leaf, len(hand.tree.root) + hand.at, mode="forced", tokens="q")

    hand = by_hand(use)
    (kid,) = hand.kids
    forced = hand.tree.parent(kid)
    prefix = tuple(hand.tree.prefix(forced).tolist())
    assert (forced.role, forced.birth, forced.forced, forced.trainable) == ("policy", "forced", True, True)
    assert forced.logp[0] == pytest.approx(math.log(policy(prefix[:-1])[CODEC.encode("q")[0]]), abs=1e-5)
    assert np.isnan(forced.sampling_logprob).all()
    assert not kid.forced
    assert kid.birth == "boundary"


def test_hints_never_train_and_cost_no_decoding():
    async def use(hand):
        hint = await hand.force(hand.tree.root, "abc", why="half of the solution", numbers={"rate": 0.5})
        assert (hint.role, hint.trainable, hint.logp) == ("hint", False, None)
        leaf = await play(hand, hint)
        assert hand.text(leaf).startswith("abc")
        assert hand.budget.spent.decoded == len(leaf)
        assert hand.budget.spent.leaves == 1

    assert by_hand(use).tree.events[0].numbers["rate"] == 0.5


def test_the_environment_answers_in_nodes_with_states_and_rewards():
    async def use(hand):
        hand.leaf = await play(hand, hand.tree.root)

    hand = by_hand(use, task=Walk(), seed=3)
    path = hand.tree.path(hand.leaf)
    assert [n.role for n in path[1:]] == list(itertools.islice(itertools.cycle(["policy", "env"]), len(path) - 1))
    at = 4
    for policy_node, env in zip(path[1::2], path[2::2], strict=False):
        at += -1 if hand.codec.decode(policy_node.actions)[0] in CODEC.alphabet[:12] else 1
        assert (env.state, env.state_key, env.scores["step_reward"]) == (at, str(at), -0.01)
        assert env.logp is None
        assert not env.trainable
        assert policy_node.finish == "tool"
    assert turns(hand, hand.leaf) == hand.budget.spent.env_steps == len(path) // 2
    assert hand.leaf.status == "done"
    assert hand.leaf.scores["reward"] == float(at == 2)
    assert hand.leaf.notes["answer"] == str(at)


def test_lost_states_are_replayed_and_checked():
    async def use(hand):
        here = hand.tree.root
        while hand.tree.depth(here) < 2:
            (here,) = await hand.extend(here)
            if here.finish == "stop":
                here = await hand.act(here)
            else:
                here = hand.tree.root
        hand.kept = here.state
        for node in hand.tree:
            node.state = None
        assert await hand.restore(here) == (hand.kept, str(hand.kept))
        assert here.state == hand.kept
        for node in hand.tree:
            node.state = None
        here.actions = (here.actions + 1) % 20
        assert await hand.restore(here) is None
        assert here.status == "failed"

    hand = by_hand(use, task=Walk(), seed=3)
    assert "not what it said before" in hand.tree.events[-1].why


def test_episodes_end_at_the_limit_of_turns():
    async def use(hand):
        hand.leaves = [await play(hand, hand.tree.root) for _ in range(12)]

    hand = by_hand(use, task=Walk(max_turns=1), seed=1)
    assert "depth" in {leaf.finish for leaf in hand.leaves}
    assert all(turns(hand, leaf) <= 1 for leaf in hand.leaves)


def test_without_an_environment_act_is_refused():
    async def use(hand):
        with pytest.raises(HandError, match=r"tiny-spell.*no environment"):
            await hand.act(hand.tree.root)

    by_hand(use)


def test_score_under_another_context():
    async def use(hand):
        leaf = await play(hand, hand.tree.root)
        own, other = await hand.score(leaf), await hand.score(leaf, under=hand.codec.encode("xebra"))
        assert np.allclose(own.logp, leaf.logp, atol=1e-5)
        assert not np.allclose(other.logp, leaf.logp, atol=1e-2)
        assert hand.budget.spent.prefilled >= 2 * len(leaf)

    by_hand(use)


def test_judge_calls_are_paid_and_stop_with_the_budget():
    async def use(hand):
        leaf = await play(hand, hand.tree.root)
        judge, pair = MeasuredJudge(accuracy=1.0), entries(hand, [leaf, leaf])
        answers = await hand.judge(judge, [pair] * 3, about="pairs")
        assert sorted(answers[0]) == sorted(answers[1]) == [0.0, 1.0]
        assert answers[2] is None
        assert await hand.judge(judge, [pair], about="a pair") == [None]
        assert [e.numbers["judge"] for e in hand.tree.events if e.kind == "budget"] == [judge.name] * 2

    assert by_hand(use, budget=Limits(judge_calls=2)).budget.spent.judge_calls == 2


def test_a_pruned_branch_stops_being_written_and_stays_paid():
    async def use(hand):
        growing = asyncio.ensure_future(hand.extend(hand.tree.root, n=2))
        while not hand.tree.root.children:
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        hand.prune(hand.tree[1], why="looks like its sibling", similarity=0.9)
        hand.kids = await growing

    hand = by_hand(use, engine=endless())
    one, two = hand.kids
    assert (one.status, len(two)) == ("pruned", 16)
    assert 0 < len(one) < 16
    assert hand.budget.spent.decoded == len(one) + len(two)
    (event,) = [e for e in hand.tree.events if e.kind == "prune"]
    assert event.numbers["similarity"] == 0.9


def test_a_paused_leaf_is_resumed_in_the_same_node_under_new_weights():
    async def use(hand):
        growing = asyncio.ensure_future(hand.extend(hand.tree.root))
        for _ in range(4):
            await asyncio.sleep(0)
        hand.pause(hand.tree[1], "the round is over")
        (leaf,) = await growing
        assert leaf.status == "paused"
        hand.first = len(leaf)
        await hand.engine.update_weights(lambda p: [0.0, 1.0] + [0.0] * 24, 1)
        assert await hand.resume(leaf) is leaf
        hand.leaf = leaf

    hand = by_hand(use, engine=endless())
    leaf, k = hand.leaf, hand.first
    assert 0 < k < 16
    assert leaf.actions.tolist() == [0] * k + [1] * (16 - k)
    assert leaf.version.tolist() == [0] * k + [1] * (16 - k)
    assert (leaf.status, leaf.finish) == ("done", "length")
    assert hand.budget.spent.leaves == 1
    assert hand.budget.spent.decoded == 16


def test_two_copies_of_a_branch_do_not_continue_alike():
    async def use(hand):
        leaf = await play(hand, hand.tree.root, max_tokens=1)
        while leaf.finish == "eos" or len(leaf) < 3:
            leaf = await play(hand, hand.tree.root)
        head = hand.cut(leaf, 1)
        copies = [hand.tree.graft(hand.tree.root, hand.tree, head) for _ in range(2)]
        texts = [hand.text((await hand.extend(copy))[0]) for copy in (head, *copies)]
        assert len(set(texts)) == 3

    by_hand(use)


def test_which_cut_comes_first_does_not_change_what_grows_there():
    def texts(late_first):
        async def use(hand):
            leaf = await play(hand, hand.tree.root)
            while len(leaf) < 6:
                leaf = await play(hand, hand.tree.root)
            if late_first:
                late = hand.cut(leaf, 4)
                early = hand.cut(late, 2)
            else:
                early = hand.cut(leaf, 2)
                late = hand.cut(leaf, 2)
            assert hand.tree.path(leaf)[1:] == [early, late, leaf]
            hand.texts = [[hand.text(k) for k in await hand.extend(head, n=3)] for head in (early, late)]

        return by_hand(use).texts

    assert texts(late_first=True) == texts(late_first=False)


def test_shares_of_a_budget_keep_branches_apart():
    async def use(hand):
        shares = [hand.under(b) for b in hand.budget.split(3, "branch")]
        async with asyncio.TaskGroup() as group:
            for share in shares:
                group.create_task(play(share, share.tree.root))
        hand.spent = [share.budget.spent.decoded for share in shares]

    hand = by_hand(use, engine=endless(), budget=Budget(Limits(decoded=20)))
    assert hand.spent == [7, 7, 6]
    assert {leaf.finish for leaf in hand.tree.leaves()} == {"budget"}


def test_decisions_about_a_node_draw_the_same_numbers_whenever_they_are_asked():
    async def use(hand):
        kids = await hand.extend(hand.tree.root, n=2, max_tokens=2)
        draws = [hand.rng_at(k, "fork").uniform() for k in kids]
        await hand.extend(kids[0])
        assert [hand.rng_at(k, "fork").uniform() for k in kids] == draws
        assert draws[0] != draws[1]
        assert hand.rng_at(kids[0], "prune").uniform() != draws[0]
        hand.draws = draws

    assert by_hand(use).draws == by_hand(use).draws
    assert by_hand(use).draws != by_hand(use, seed=1).draws
    assert shape(by_hand(use).tree) == shape(by_hand(use).tree)


def test_unbound_hands_and_foreign_trees_are_told_the_way_out():
    hand = open_hand(tiny_engine(), SpellTask())
    with pytest.raises(HandError, match=r"take hand.on\(tree\) first"):
        hand.tree  # noqa: B018
    foreign = hand.forest.plant("foreign", [1, 2])
    with pytest.raises(HandError, match=r"plant it with hand.plant"):
        hand.on(foreign).item  # noqa: B018
