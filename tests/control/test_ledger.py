"""The ledger adds up under any interleaving, and no child ever spends what an ancestor has not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rolltree.control.ledger import RESOURCES, Budget, LedgerError, Limits


class LedgerMachine(RuleBasedStateMachine):
    """Random reserve / commit / release / charge / transfer on a growing tree of budgets, against naive sums."""

    def __init__(self) -> None:
        super().__init__()
        self.budgets = [Budget(Limits(decoded=100, leaves=9), name="run", clock=lambda: 0.0)]
        self.limits = {0: 100}
        self.above = {0: None}
        self.holds = []
        self.spent = []
        self.charged = False

    def line(self, i):
        while i is not None:
            yield i
            i = self.above[i]

    @rule(parent=st.integers(0, 99), limit=st.none() | st.integers(0, 60))
    def open_child(self, parent, limit):
        parent %= len(self.budgets)
        self.above[len(self.budgets)] = parent
        self.limits[len(self.budgets)] = math.inf if limit is None else limit
        self.budgets.append(self.budgets[parent].child("child", Limits(decoded=limit)))

    @rule(i=st.integers(0, 99), most=st.integers(0, 40), least=st.integers(0, 40))
    def reserve(self, i, most, least):
        i %= len(self.budgets)
        least = min(least, most)
        left = self.budgets[i].remaining("decoded")
        hold = self.budgets[i].reserve("decoded", most, least)
        if hold is None:
            assert left < least
        else:
            assert hold.amount == min(most, left)
            self.holds.append((i, hold))

    @rule(which=st.integers(0, 99), share=st.floats(0, 1))
    def settle(self, which, share):
        if not self.holds:
            return
        i, hold = self.holds.pop(which % len(self.holds))
        used = int(share * hold.amount)
        hold.commit(used)
        self.spent.append((i, used))
        with pytest.raises(LedgerError, match="twice"):
            hold.commit(0)

    @rule(i=st.integers(0, 99), j=st.integers(0, 99), amount=st.integers(0, 30))
    def transfer(self, i, j, amount):
        i, j = i % len(self.budgets), j % len(self.budgets)
        own = self.limits[i] - self.used(i)
        if math.inf in (self.limits[i], self.limits[j]) or amount > own:
            with pytest.raises(LedgerError, match="transfer"):
                self.budgets[i].transfer(self.budgets[j], "decoded", amount)
        else:
            self.budgets[i].transfer(self.budgets[j], "decoded", amount)
            self.limits[i] -= amount
            self.limits[j] += amount

    def used(self, i):
        held = sum(hold.amount for j, hold in self.holds if i in self.line(j))
        return held + sum(n for j, n in self.spent if i in self.line(j))

    @invariant()
    def accounts_agree_with_naive_sums(self):
        for i, budget in enumerate(self.budgets):
            budget.check()
            assert budget.spent.decoded == sum(n for j, n in self.spent if i in self.line(j))
            assert budget.held("decoded") == sum(hold.amount for j, hold in self.holds if i in self.line(j))
            assert budget.remaining("decoded") == max(0, min(self.limits[k] - self.used(k) for k in self.line(i)))
            assert self.used(i) <= self.limits[i]
            assert budget.overrun("decoded") == 0


TestLedger = LedgerMachine.TestCase


@given(left=st.integers(0, 1000), parts=st.integers(1, 20))
def test_split_shares_out_everything_evenly(left, parts):
    run = Budget(Limits(decoded=left))
    shares = [b.remaining("decoded") for b in run.split(parts)]
    assert sum(shares) == left
    assert max(shares) - min(shares) <= 1
    assert all(math.isinf(b.remaining("leaves")) for b in run.split(parts))


def test_what_one_child_leaves_its_siblings_may_use():
    run = Budget(Limits(decoded=10))
    one, two = run.child("one", Limits(decoded=8)), run.child("two", Limits(decoded=8))
    hold = one.reserve("decoded", 8)
    assert two.remaining("decoded") == 2
    hold.commit(3)
    assert two.remaining("decoded") == 7
    assert two.reserve("decoded", 8) is None
    assert two.reserve("decoded", 8, least=1).amount == 7


def test_a_charge_may_overrun_and_then_nothing_is_left():
    run = Budget(Limits(prefilled=10))
    prompt = run.child("prompt")
    prompt.charge("prefilled", 13)
    assert run.overrun("prefilled") == 3
    assert run.remaining("prefilled") == 0
    assert prompt.reserve("prefilled", 5, least=1) is None
    assert run.spent.prefilled == 13


def test_seconds_run_on_the_clock_that_was_given_and_end_with_the_nearest_deadline():
    now = [0.0]
    run = Budget(Limits(seconds=10), clock=lambda: now[0])
    now[0] = 4.0
    prompt, brief = run.child("prompt", Limits(seconds=100)), run.child("brief", Limits(seconds=1))
    assert (prompt.seconds_left, brief.seconds_left) == (6.0, 1.0)
    now[0] = 11.0
    assert prompt.seconds_left == 0.0
    assert (run.spent.seconds, prompt.spent.seconds) == (11.0, 7.0)


@pytest.mark.parametrize("bad", [{"leaves": -1}, {"seconds": float("nan")}])
def test_senseless_limits_are_refused_by_name(bad):
    with pytest.raises(LedgerError, match=next(iter(bad))):
        Limits(**bad)


def test_a_commit_never_exceeds_its_reservation():
    hold = Budget().reserve("decoded", 3)
    with pytest.raises(LedgerError, match="commit 4 of a reservation of 3"):
        hold.commit(4)
    assert {r: Budget().remaining(r) for r in RESOURCES} == dict.fromkeys(RESOURCES, math.inf)


def test_a_child_of_two_budgets_is_bound_by_both_and_counts_once_in_what_they_share():
    run = Budget(Limits(decoded=100))
    tree_budget, this_round = run.child("prompt", Limits(decoded=10)), run.child("round", Limits(decoded=30))
    both = tree_budget.child("share", also=this_round)
    assert both.inside(tree_budget)
    assert both.inside(this_round)
    assert not tree_budget.inside(this_round)
    both.reserve("decoded", 4).commit(4)
    assert (run.spent.decoded, tree_budget.spent.decoded, this_round.spent.decoded) == (4, 4, 4)
    assert (both.remaining("decoded"), this_round.remaining("decoded")) == (6, 26)
    assert this_round.reserve("decoded", 24) is not None
    assert both.remaining("decoded") == 2
