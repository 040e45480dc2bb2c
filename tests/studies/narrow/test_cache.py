"""The cache: what is a hit, what ends one, and that audits tell the truth about its errors."""

import numpy as np
import pytest

from studies.narrow.cache import BY_CATEGORY, CacheError, CacheRule, CategoryCache, played, traffic

HERE, NEAR = np.array([1.0, 0.0]), np.array([0.9, np.sqrt(1 - 0.81)])


def cache(**rule):
    return CategoryCache({"tools": CacheRule(**rule)}, audit=1.0)


def test_an_exact_rule_finds_the_same_text_of_the_same_version_alone():
    kept = cache(alike=1.1)
    kept.keep("tools", "2 + 2", HERE, "v1", 0.0, 4)
    assert kept.find("tools", "2 + 2", HERE, "v1", 9.0) == 4
    assert kept.find("tools", "2+2", HERE, "v1", 9.0) is None
    assert kept.find("tools", "2 + 2", HERE, "v2", 9.0) is None


def test_likeness_age_and_quota_decide():
    kept = cache(alike=0.85, age=10.0, quota=1)
    kept.keep("tools", "a", HERE, "v", 0.0, 1)
    assert kept.find("tools", "b", NEAR, "v", 5.0) == 1
    assert kept.find("tools", "b", np.array([0.0, 1.0]), "v", 5.0) is None
    assert kept.find("tools", "a", HERE, "v", 11.0) is None
    kept.keep("tools", "a", HERE, "v", 20.0, 1)
    kept.keep("tools", "b", -HERE, "v", 21.0, 2)
    assert kept.find("tools", "a", HERE, "v", 22.0) is None
    assert kept.find("tools", "b", -HERE, "v", 22.0) == 2


def test_audits_tell_the_error_of_hits():
    calls = traffic(3, 1500)
    loose = dict.fromkeys(BY_CATEGORY, CacheRule(0.7))
    worth = played(calls, loose)
    assert worth.wrong / worth.hits > 0.15
    assert worth.audited == pytest.approx(worth.wrong / worth.hits, abs=0.12)
    careful = played(calls, BY_CATEGORY)
    assert careful.wrong < 0.25 * worth.wrong


def test_what_no_rule_covers_is_one_sentence():
    with pytest.raises(CacheError, match="no rule for the category 'judge'"):
        cache(alike=0.9).find("judge", "x", HERE, "v", 0.0)
    with pytest.raises(CacheError, match="age"):
        CacheRule(0.9, age=0.0)
