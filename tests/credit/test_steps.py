"""Step and hierarchy credits by hand, with their neutral elements."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.advantage import CreditError
from rolltree.credit.gae import GAE
from rolltree.credit.needs import check_needs
from rolltree.credit.registry import load_credit
from rolltree.credit.steps import granted, steps, to_go
from rolltree.testing.forests import episodes, plans
from rolltree.tree import Tree
from rolltree.tree.table import table


def walks(*paths: tuple[str, float], id: str = "t") -> Tree:
    """Episodes as strings of states: "ab" answers state a, then b; the outcome comes at the end."""
    tree = Tree(id, [0])
    for states, reward in paths:
        above = tree[0]
        for i, state in enumerate(states):
            if i == 0:
                tree[0].state_key = state
            else:
                above = tree.extend(above, [9], role="env", status="done", state_key=state)
            above = tree.extend(above, [1, 2], status="done")
        above.scores["reward"] = reward
    return tree


def turns_of(tab, node_term):
    return node_term[steps(tab).row]


def test_returns_run_over_turns_and_keep_digits():
    tree = walks(("abc", 1.0))
    tree[2].scores["step_reward"] = 0.5
    tab = table([tree])
    np.testing.assert_allclose(to_go(tab, granted(tab), 0.5)[steps(tab).row], [0.5 + 0.25, 0.5, 1.0])
    long = table([walks(("a" * 60, 1.0))])
    assert to_go(long, granted(long), 0.1)[steps(long).row[-2]] == pytest.approx(0.1, rel=1e-12)


def test_gigpo_by_hand():
    tab = table([walks(("ab", 1.0), ("ab", 0.0), ("ac", 1.0))])
    got = load_credit("gigpo", gamma=0.5)(tab)
    np.testing.assert_allclose(got.leaf, [1 / 3, -2 / 3, 1 / 3])
    # state a: returns .5 0 .5; b: 1 0; c alone
    np.testing.assert_allclose(turns_of(tab, got.node), [1 / 6, 0.5, -1 / 3, -0.5, 1 / 6, 0], atol=1e-12)


def test_gigpo_neutral_elements():
    tab = table(episodes(np.random.default_rng(0)))
    no_step = load_credit("gigpo", omega=0.0, std=True)(tab)
    for node in tab.nodes:
        node.scores.pop("step_reward", None)
    tab = table(tab.trees)
    np.testing.assert_array_equal(load_credit("gigpo", omega=0.0, std=True)(tab).leaf, load_credit("grpo")(tab).leaf)
    assert no_step.node is None
    for i, node in enumerate(tab.nodes):
        if node.state_key:
            node.state_key = f"unique {i}"
    alone = table(list(tab.trees))
    node = load_credit("gigpo")(alone).node
    first = alone.depth[steps(alone).row] == 1
    assert not node[steps(alone).row][~first].any()


def test_gigpo_rows_weigh_long_episodes_more():
    tab = table([walks(("a", 1.0), ("abc", 0.0))])
    np.testing.assert_allclose(load_credit("gigpo", unit="rows", omega=0.0)(tab).leaf, [0.75, -0.25])
    one = table([walks(("a", 1.0))])
    assert load_credit("gigpo", singleton="raw", omega=0.0)(one).leaf[0] == 1.0


def test_states_of_different_prompts_never_meet():
    tab = table([walks(("ab", 1.0), id="x"), walks(("ab", 0.0), id="y")])
    assert not load_credit("gigpo")(tab).node.any()


@pytest.mark.papers("hgpo")
def test_hgpo_by_hand():
    tab = table([walks(("ac", 1.0), ("ac", 0.0), ("bc", 1.0))])
    tab.nodes[0].state_key = "r"
    got = turns_of(tab, load_credit("hgpo", history=1, gamma=1.0, std=False)(tab).node)
    # start: all three answered r. second turn: c (1, 0, 1) at depth 0 and (r, c) the same at depth 1
    np.testing.assert_allclose(got, [1 / 3, 1 / 3, -2 / 3, -2 / 3, 1 / 3, 1 / 3])


@pytest.mark.papers("hgpo")
def test_hgpo_tells_histories_apart_and_drops_zeros():
    tab = table([walks(("axc", 1.0), ("axc", 0.0), ("ayc", 1.0), ("ayc", 1.0))])
    kept = turns_of(tab, load_credit("hgpo", history=1, gamma=1.0, std=False, drop_zero=False)(tab).node)
    dropped = turns_of(tab, load_credit("hgpo", history=1, gamma=1.0, std=False)(tab).node)
    # last turn of the first: c → 1 − .75, (x, c) → 1 − .5; of the third: c → .25, (y, c) → exactly 0
    np.testing.assert_allclose(kept[[2, 8]], [(0.25 + 2 * 0.5) / 3, 0.25 / 3])
    np.testing.assert_allclose(dropped[[2, 8]], [(0.25 + 2 * 0.5) / 3, 0.25])


@pytest.mark.papers("hgpo")
def test_hgpo_without_history_is_gigpos_step_term():
    tab = table(episodes(np.random.default_rng(1)))
    np.testing.assert_allclose(
        load_credit("hgpo", history=0, std=False)(tab).node, load_credit("gigpo")(tab).node, atol=1e-12
    )


def test_a_missing_state_key_names_its_node():
    tree = walks(("ab", 1.0))
    tree[0].state_key = None
    with pytest.raises(CreditError, match=r"node 1 of tree 't' answers a state without a state_key"):
        load_credit("gigpo")(table([tree]))


def test_gae_by_hand_and_its_limits():
    tree = walks(("ab", 1.0))
    tree[2].scores["step_reward"] = 0.5
    tree[1].notes["value"], tree[3].notes["value"] = np.array([0.1, 0.2]), np.array([0.3, 0.4])
    tab = table([tree])
    taught = tab.loss_mask
    one_step = load_credit("gae", decay=0.0)(tab).action[taught]
    np.testing.assert_allclose(one_step, [0.1, 0.5 + 0.3 - 0.2, 0.1, 1 - 0.4])
    full = load_credit("gae", decay=1.0)(tab).action[taught]
    np.testing.assert_allclose(full, 1.5 - np.array([0.1, 0.2, 0.8, 0.9]))
    d = np.array([0.1, 0.6, 0.1, 0.6])
    half = load_credit("gae", decay=0.5)(tab).action[taught]
    np.testing.assert_allclose(half[0], d @ 0.5 ** np.arange(4))


def test_gae_whitens_by_the_deviation_that_is_named():
    tab = table([valued([0.1, 0.4], 1.0), valued([0.3], 0.0)])
    plain = load_credit("gae", decay=0.5)(tab).action[tab.loss_mask]
    for ddof in (0, 1):
        told = load_credit("gae", decay=0.5, whiten=True, ddof=ddof)(tab).action[tab.loss_mask]
        np.testing.assert_allclose(told, (plain - plain.mean()) / plain.std(ddof=ddof))
    default = load_credit("gae", decay=0.5, whiten=True)(tab).action[tab.loss_mask]
    assert default.std(ddof=1) == pytest.approx(1)


def valued(values, reward, finish="eos"):
    """A rollout of one run with a critic's values."""
    tree = Tree("v", [0])
    node = tree.extend(0, list(range(len(values))), scores={"reward": reward}, status="done", finish=finish)
    node.notes["value"] = np.array(values)
    return tree


@pytest.mark.parametrize("finish", ["length", "budget", "depth"])
@pytest.mark.parametrize(
    ("cut", "last", "behind"),
    [("zero", 0.4, 0.0), ("critic", 0.4, 0.4), ("pessimist", 0.4, 0.0),
     ("zero", -0.4, 0.0), ("critic", -0.4, -0.4), ("pessimist", -0.4, -0.4)],
)  # fmt: skip
def test_what_follows_a_rollout_that_a_limit_cut(cut, last, behind, finish):
    gamma, decay = 0.9, 0.5
    d1, d0 = 0.25 + gamma * behind - last, gamma * last - 0.1
    credit = load_credit("gae", gamma=gamma, decay=decay, cut=cut)
    tab = table([valued([0.1, last], 0.25, finish)])
    np.testing.assert_allclose(credit(tab).action[1:], [d0 + gamma * decay * d1, d1])
    ended = table([valued([0.1, last], 0.25, "eos")])
    np.testing.assert_allclose(credit(ended).action[1:], [d0 + gamma * decay * (0.25 - last), 0.25 - last])


def test_a_cut_behind_an_environments_answer_takes_the_value_of_the_turn_before_it():
    tree = Tree("v", [0])
    turn = tree.extend(0, [1, 2])
    turn.notes["value"] = np.array([0.1, 0.6])
    tree.extend(turn, [9], role="env", status="done", finish="depth", scores={"reward": 0.0})
    other = tree.extend(0, [1], status="done", finish="eos", scores={"reward": 1.0})
    other.notes["value"] = np.array([0.2])
    tab = table([tree])
    np.testing.assert_allclose(load_credit("gae", decay=1.0, cut="critic")(tab).action[tab.loss_mask], [0.5, 0, 0.8])
    np.testing.assert_allclose(load_credit("gae", decay=1.0)(tab).action[tab.loss_mask], [-0.1, -0.6, 0.8])


def test_where_branches_share_what_stands_before_the_future_is_the_mean_of_cut_and_ended():
    tree = Tree("v", [0])
    stem = tree.extend(0, [1])
    stem.notes["value"] = np.array([0.5])
    for reward, finish, value in ((0.0, "length", 0.8), (1.0, "eos", 0.4)):
        leaf = tree.extend(stem, [2], status="done", finish=finish, scores={"reward": reward})
        leaf.notes["value"] = np.array([value])
    tab = table([tree])
    got = load_credit("gae", decay=1.0, cut="critic")(tab).action[tab.loss_mask]
    np.testing.assert_allclose(got, [(0.8 + 1.0) / 2 - 0.5, 0.0, 0.6])


def test_an_unknown_end_is_refused():
    with pytest.raises(CreditError, match="cut='hope' is unknown; choose zero, critic, pessimist"):
        GAE(cut="hope")(table([valued([0.1], 1.0)]))


def test_gae_skips_masked_actions():
    tree = walks(("a", 1.0))
    tree[1].notes["value"] = np.array([0.25, np.nan])
    tree[1].keep = np.array([True, False])
    tab = table([tree])
    np.testing.assert_allclose(load_credit("gae")(tab).action[1:], [0.75, 0])
    tree[1].notes["value"][0] = np.nan
    with pytest.raises(CreditError, match=r"node 1 of tree 't' has no finite 'value'"):
        load_credit("gae")(table([tree]))


@pytest.mark.papers("hiper")
def test_hiper_by_hand():
    tree = walks(("abc", 1.0))
    for t, (node, switch) in enumerate(zip((tree[1], tree[3], tree[5]), (0, 0, 1), strict=True)):
        node.scores.update(switch=switch, value_low=0.1 * t, value_high=0.5, value_term=0.2)
        node.notes["spans"] = {"switch": (0, 1), "action": (1, 2)} if t < 2 else {"subgoal": (0, 1), "action": (1, 2)}
    tree[2].scores["step_reward"] = 0.3
    tab = table([tree])
    got = load_credit("hiper", whiten=False, segment_decay=0.5)(tab).action[tab.loss_mask]
    # segments {0, 1} and {2}: low of turn 1 = V_high − 0.1; of turn 0 = 0.3 + (0.1 − 0) + low(1)
    low = [0.3 + 0.1 + 0.4, 0.4, 1 - 0.2]
    term = [0.8 - 0.2, 0.5 - 0.2]
    np.testing.assert_allclose(got, [term[0], low[0], term[1], low[1], 1 - 0.5, low[2]])
    tree[1].notes["spans"] = {"subgoal": (0, 2)}
    high = load_credit("hiper", whiten=False, segment_decay=0.5)(table([tree])).action[tab.loss_mask][0]
    assert high == pytest.approx(0.3 + 0.5 - 0.5 + 0.5 * (1 - 0.5))


@pytest.mark.papers("hiper")
def test_hiper_whitens_over_the_turns_that_have_the_span():
    """A turn whose action could not be parsed says nothing about the scale of those that could."""
    tree = Tree("t", [1], item="t")
    for reward, spans in ((0.0, ("action",)), (1.0, ("action",)), (9.0, ("switch",))):
        scores = {"reward": reward, "switch": 1.0, "value_low": 0.0, "value_high": 0.0, "value_term": 0.0}
        tree.extend(0, [2], status="done", scores=scores, notes={"spans": dict.fromkeys(spans, (0, 1))})
    tab = table([tree])
    acted = load_credit("hiper")(tab).action[tab.loss_mask]
    np.testing.assert_allclose(acted[:2], [-(0.5**0.5), 0.5**0.5], atol=1e-6)
    assert acted[2] == 9.0, "one value alone stays as it is"


@pytest.mark.papers("hiper")
def test_hiper_refuses_shared_turns():
    tree = Tree("t", [0])
    head = tree.extend(0, [1], status="done", state_key="s")
    for _ in range(2):
        tree.extend(head, [1], status="done", scores={"reward": 1.0})
    with pytest.raises(CreditError, match="node 1 of tree 't' is shared by several leaves"):
        load_credit("hiper")(table([tree]))


@pytest.mark.papers("himac")
def test_two_levels_by_hand():
    tree = Tree("t", [0])
    for rewards in ((1.0, 0.0), (0.0, 0.0)):
        plan = tree.extend(0, [4], status="done", level=1)
        for r in rewards:
            tree.extend(plan, [5], status="done", scores={"reward": r})
    tab = table([tree])
    got = load_credit("himac", std=False)(tab)
    paths = got.leaf[:, None] * got.factor[[1, 2]] + got.action[[1, 2]]
    np.testing.assert_allclose(paths[0], [0.25, 0.5])  # the plan's 0.5 − 0.25; the run's 1 − 0.5
    for micro, taught in ((0.0, "action"), (1.0, "leaf")):
        tree.root.scores["learns_micro"] = micro
        alone = load_credit("himac", std=False)(tab)
        assert getattr(alone, taught).any()
        assert not getattr(alone, {"action": "leaf", "leaf": "action"}[taught]).any()
    best = load_credit("himac", std=False, best=True)(tab)
    assert not best.leaf[2:].any()
    question = load_credit("designer_executor", group="question", std=False)(tab).leaf
    design = load_credit("designer_executor", group="design", std=False)(tab).leaf
    np.testing.assert_allclose(question, [0.75, -0.25, -0.25, -0.25])
    np.testing.assert_allclose(design, [0.5, -0.5, 0, 0])


@pytest.mark.papers("himac")
def test_two_levels_need_a_plan():
    with pytest.raises(CreditError, match=r"needs a plan above node \d+ of tree 't0'"):
        load_credit("himac")(table(episodes(np.random.default_rng(0))))
    assert load_credit("designer_executor")(table(plans(np.random.default_rng(0)))).action.any()


def test_skill_chain_pays_maker_and_user_only_on_success():
    def chain(tree, first, second, used):
        a = tree.extend(0, [1], status="done", scores={"task_reward": first})
        tree.extend(a, [2], status="done", scores={"task_reward": second, "used_skill": used, "reward": second})

    tree = Tree("t", [0])
    chain(tree, 1.0, 1.0, 1.0)  # both earn the bonus
    chain(tree, 0.0, 1.0, 1.0)  # the user does, the maker failed
    chain(tree, 1.0, 0.0, 1.0)  # used in vain
    chain(tree, 1.0, 1.0, 0.0)  # not used
    got = load_credit("skill_chain")(table([tree])).node[1:].reshape(4, 2)
    np.testing.assert_allclose(got[:, 0], np.array([2, 0, 1, 1]) - 1.0)
    np.testing.assert_allclose(got[:, 1], np.array([2, 2, 0, 1]) - 1.25)


def test_semi_online_stops_returns_at_a_patch():
    tree = walks(("ab", 0.0), ("ab", 0.0))
    for node, reward, match in ((1, 1.0, 1), (3, 0.5, 1), (4, 1.0, 0), (6, 1.0, 1)):
        tree[node].scores.update(step_reward=reward, match=match)
    tab = table([tree])
    got = turns_of(tab, load_credit("semi_online", w_episode=0.0, std=False)(tab).node)
    # G: 1 + .5·.5, .5 | 1 (reset), 1
    np.testing.assert_allclose(got, [0.125, -0.25, -0.125, 0.25])
    rows = turns_of(tab, load_credit("semi_online", w_step=0.0, std=False)(tab).node)
    np.testing.assert_allclose(rows, np.array([1, 0.5, 1, 1]) - 0.875)


def test_a_patched_rollout_is_a_tree_and_nothing_flows_back_across_the_patch():
    """Two rollouts of three turns; the first leaves the demonstration at its second turn and is put back."""
    tree = Tree("t", [0])
    tree[0].state_key = "0"

    def turn(above, match, reward=None):
        node = tree.extend(above, [1], status="done", scores={"match": match, "step_reward": match})
        if reward is not None:
            node.scores["reward"] = reward
        return node

    def answer(above, key):
        return tree.extend(above, [2], role="env", status="done", state_key=key)

    first = turn(0, 1.0)
    state = answer(first, "1")
    left = turn(state, 0.0, reward=0.0)
    patch = tree.extend(state, [1], role="hint", forced=True, status="done", scores={"patch": 1.0})
    third = turn(answer(patch, "2"), 1.0, reward=1.0)
    other = [turn(0, 1.0)]
    for key in ("1", "2"):
        other.append(turn(answer(other[-1], key), 1.0))
    other[-1].scores["reward"] = 1.0
    tab = table([tree])
    check_needs(tab, load_credit("semi_online"))
    got = dict(
        zip((n.id for n in tab.nodes), load_credit("semi_online", w_episode=0.0, std=False)(tab).node, strict=True)
    )
    # G: 1 + 0.5·0, 0, (patched) 1  and  1 + 0.5·1.5, 1 + 0.5, 1; each less the mean of its step.
    assert [got[first.id], got[left.id], got[third.id]] == pytest.approx([-0.375, -0.75, 0.0])
    assert [got[node.id] for node in other] == pytest.approx([0.375, 0.75, 0.0])
    assert got[patch.id] == 0
    rows = load_credit("semi_online", w_step=0.0, std=False)(tab).node
    assert rows[[i for i, n in enumerate(tab.nodes) if n.id == left.id]] == pytest.approx([-5 / 6])


@pytest.mark.papers("hgpo")
def test_outcomes_alone_without_a_step_term_are_grpo():
    tab = table(episodes(np.random.default_rng(3)))
    got = load_credit("gigpo", omega=0.0, std=True, step_rewards=False)(tab).leaf
    np.testing.assert_allclose(got, load_credit("grpo")(tab).leaf, atol=1e-12)
    assert not np.allclose(got, load_credit("gigpo", omega=0.0, std=True)(tab).leaf)
    shaped, bare = (load_credit("hgpo", step_rewards=s)(tab).node for s in (True, False))
    assert not np.allclose(shaped, bare)
    for tree in tab.trees:
        for node in tree:
            node.scores.pop("step_reward", None)
    np.testing.assert_array_equal(load_credit("hgpo")(table(tab.trees)).node, bare)


@pytest.mark.papers("himac")
def test_every_turn_of_a_plan_shares_its_worth():
    tree = Tree("t", [0])
    first = tree.extend(0, [4], status="done", level=1)
    env = tree.extend(first, [3], role="env", status="done", level=1)
    for rewards in ((1.0, 0.0), (0.0, 0.0)):
        second = tree.extend(env, [4], status="done", level=1)
        for r in rewards:
            tree.extend(second, [5], status="done", scores={"reward": r})
    lone = tree.extend(0, [4], status="done", level=1, scores={"reward": 1.0})
    tab = table([tree])
    got = load_credit("himac", std=False)(tab)
    by_node = dict(zip((n.id for n in tab.nodes), got.action[tab.start], strict=True))
    mean = (0.5 + 0.0 + 1.0) / 3
    assert by_node[lone.id] == pytest.approx(1.0 - mean)
    seconds = [n.id for n in tree if n.parent == env.id]
    assert [by_node[i] for i in seconds] == pytest.approx([0.5 - mean, -mean])
    assert by_node[first.id] == pytest.approx(0.25 - mean)
    assert got.factor[tab.start[[i for i, n in enumerate(tab.nodes) if n.level]]].max() == 0
