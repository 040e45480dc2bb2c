"""What `dars` promises beside what all of its kind do."""

from rolltree_papers.dars import Dars
from rolltree_papers.dars import study as dars_study
from studies.prompts.checks import mostly_hard, until


def test_dars_widens_groups_until_hard_prompts_weigh_more():
    for schedule in ("even", "hard"):
        share, used = dars_study.hard_share(schedule, 0)
        assert share > 1.5 * dars_study.hard_share(None, 0, round(used))[0]


def test_the_rollouts_that_were_given_are_drawn():
    logs = until(Dars(), mostly_hard(0), 3000)
    assert 3000 <= sum(log.rollouts for log in logs) < 3000 + 16 * 32
