"""What `gdro` promises beside what all of its kind do."""

import pytest

from rolltree_papers.gdro import Bins, DualPrice, Exp3P


def test_bins_change_only_past_the_margin():
    bins = Bins(count=10, window=0, margin=0.05, graded=True)
    bins.observe("a", 0.59, 1)
    assert bins.of("a") == 5
    bins.observe("a", 0.64, 1)  # mean 0.615: past the border at 0.6, not by enough
    assert bins.of("a") == 5
    bins.observe("a", 1.0, 1)
    assert bins.of("a") == 7
    for _ in range(200):
        bins.observe("a", 1.0, 1)
    assert bins.of("a") == 9
    assert bins.of("never seen") == 5


def test_bandits_follow_what_they_see_and_the_price_follows_use():
    game = Exp3P(3, eta=2.0, gamma=0.3, beta=0.5)
    for _ in range(20):
        game.observe(1, 1.0)
    shares = game.shares()
    assert shares.sum() == pytest.approx(1)
    assert shares[1] == max(shares)
    assert min(shares) >= 0.3 / 3
    price = DualPrice(0.1)
    price.observe(10, 8)
    assert price.price == pytest.approx(0.2)
    price.observe(0, 8)
    assert price.price == 0
