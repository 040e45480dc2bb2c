"""Experiments that could not have answered are void, by each rule alone, and are no verdict in any count."""

from dataclasses import asdict, replace

import pytest

from rolltree.compare.trace import Trace
from rolltree.compare.void import acted, reasons
from rolltree.metrics.registry import metric_of
from rolltree.recipe.recipe import Counter, Evidence
from rolltree.recipe.registry import list_recipes, load_recipe
from studies.lab.claim import Claim, claims
from studies.lab.entry import SeedResult, load_entries, save_entry
from studies.lab.entry_family import counted, together
from studies.lab.evidence import judged, measure, rejudged
from studies.lab.evidence_command import EvidenceConfig, main
from studies.lab.places import EVIDENCE
from tests.lab.simulated import Simulated
from tests.lab.test_evidence import quiet, training

ASKED = Evidence("pass@1", "grpo", task="countdown", budget=10_000)
CARD = replace(load_recipe("rloo").card, evidence=ASKED, counter=Counter("policy/clip_high"))
GOOD = {"eval/pass@1": (0.5, 0.4), "eval/pass@8": (0.8, 0.7), "reward/solved": (0.4, 0.4),
        "reward/zero_variance": (0.2, 0.2), "policy/clip_high": (0.01, 0.0)}  # fmt: skip
LEARNED = {"rloo": (0.2, 0.5), "grpo": (0.2, 0.4)}


def seeds(learned=LEARNED, **changes):
    also = GOOD | {name.replace("__", "/"): value for name, value in changes.items()}
    return [SeedResult(s, 0.5 + 0.01 * s, 0.4, {}, also, learned) for s in range(3)]


def test_a_sound_experiment_is_judged():
    assert reasons(CARD, ASKED, seeds()) == []
    assert judged(CARD, ASKED, "training", seeds())[1].outcome == "holds"


@pytest.mark.parametrize(
    ("results", "says"),
    [
        (seeds(policy__clip_high=(0.0, 0.0)), "the mechanism never acted (`policy/clip_high` is 0 throughout)"),
        (seeds(reward__solved=(0.03, 0.3)), "3.0 % of the treated arm's rollouts are right"),
        (seeds(reward__zero_variance=(0.85, 0.3)), "85 % of the treated arm's groups are without variance"),
        (seeds(**{"eval/pass@1": (0.95, 0.94)}), "the baseline stands at its ceiling (pass@1 94.0 %)"),
        (seeds({"rloo": (0.3, 0.5), "grpo": (0.3, 0.1)}), "the baseline collapsed (pass@1 from 30.0 % to 10.0 %)"),
        (seeds({"rloo": (0.3, 0.31), "grpo": (0.3, 0.33)}), "neither arm learned (pass@1 +3.0 points at most)"),
    ],
)  # fmt: skip
def test_each_rule_alone(results, says):
    (reason,) = reasons(CARD, ASKED, results)
    assert reason.startswith(says)
    _, said = judged(CARD, ASKED, "training", results)
    assert said.outcome == "void"
    assert said.words == f"void: {reason}"


def test_a_mechanism_that_acted_in_few_runs_never_acted():
    rows = [replace(r, also={**r.also, "policy/clip_high": (0.01 * (r.seed == 0), 0.0)}) for r in seeds()]
    assert reasons(CARD, ASKED, rows) == ["the mechanism never acted (`policy/clip_high` is 0 in 2 of 3 runs)"]
    rows[1] = replace(rows[1], also=rows[0].also)
    assert reasons(CARD, ASKED, rows) == []


def test_shorter_answers_that_are_less_often_right_are_worse(tmp_path):
    asked = replace(ASKED, metric="eval/length", direction="lower")

    def shorter(right, spread):
        ends = {r.seed: {"eval/pass@1": (right + spread * (r.seed - 1), 0.4)} for r in seeds()}
        return [replace(r, value=10.0 + r.seed, baseline=30.0, also={**r.also, **ends[r.seed]}) for r in seeds()]

    stored = measure(training(), Simulated({"grpo": 0.1, "rloo": 0.25}), tmp_path, quiet())
    # 39 % against 40, over seeds that differ by more than that: no loss is shown.
    for right, spread, outcome in ((0.1, 0.01, "worse"), (0.39, 0.05, "holds"), (0.5, 0.01, "holds")):
        rows = shorter(right, spread)
        effect, said = judged(CARD, asked, "training", rows)
        assert said.outcome == outcome
        entry = replace(stored, question=asdict(asked), results=tuple(rows), effect=effect, outcome=said.outcome)
        assert together([entry])["rloo"].outcome == outcome
    lost = judged(CARD, asked, "training", shorter(0.1, 0.01))[1].words
    assert lost.startswith(
        "worse: shorter at the price of right answers, -30.0 points in pass@1 (-32.5 to -27.5); rloo"
    )


def test_a_baseline_at_its_ceiling_on_hard_items_is_one_at_its_ceiling():
    asked = replace(ASKED, metric="pass@1 hard")
    (reason,) = reasons(CARD, asked, seeds(**{"eval/pass@1": (0.95, 0.94)}))
    assert reason.startswith("the baseline stands at its ceiling")


def test_a_metric_that_the_shape_of_trees_decides_is_void():
    asked = replace(ASKED, metric="decoded_per_leaf", direction="lower")
    tree = replace(CARD, stages=("generate", "credit"))
    assert "follows from how rloo builds its trees" in reasons(tree, asked, seeds())[0]
    assert reasons(CARD, asked, seeds()) == [], "a method that builds no trees may spend less by learning"


def test_what_was_not_recorded_makes_nothing_void():
    bare = [SeedResult(s, 0.5, 0.4) for s in range(3)]
    assert reasons(CARD, ASKED, bare) == []
    assert acted(CARD, bare) == "`policy/clip_high` not recorded"
    assert acted(CARD, seeds()) == "`policy/clip_high` 0.01"


def test_a_check_that_counted_nothing_but_zeros_is_void():
    rows = [SeedResult(s, 0.5 + 0.01 * s, 0.4, also={"merges": (0.0, 0.0), "asked": (float(s), 0.0)}) for s in range(3)]
    assert judged(CARD, ASKED, "simulated", rows)[1].outcome == "holds"
    assert acted(CARD, rows, "simulated") == "`merges` 0; `asked` 1"
    still = [replace(r, also={"merges": (0.0, 0.0)}) for r in rows]
    assert judged(CARD, ASKED, "simulated", still)[1].words == "void: the mechanism never acted (merges: 0 throughout)"
    uncounted = [replace(r, also={}) for r in rows]
    assert judged(CARD, ASKED, "simulated", uncounted)[1].outcome == "holds"


def test_one_rollout_a_prompt_is_no_group_without_variance():
    assert reasons(CARD, ASKED, seeds(reward__zero_variance=(1.0, 1.0))) == []


def test_a_counter_next_to_its_rest_is_at_rest():
    near = reasons(CARD, ASKED, seeds(policy__clip_high=(6e-5, 0.0)))
    assert near == ["the mechanism never acted (`policy/clip_high` is within 0.0001 of 0 throughout)"]
    fine = replace(CARD, counter=Counter("policy/clip_high", least=1e-5))
    assert reasons(fine, ASKED, seeds(policy__clip_high=(6e-5, 0.0))) == []


def test_a_counter_may_rest_at_another_number_than_zero():
    card = replace(CARD, counter=Counter("policy/clip_high", rest=1.0))
    assert "is 1 throughout" in reasons(card, ASKED, seeds(policy__clip_high=(1.0, 1.0)))[0]
    assert reasons(card, ASKED, seeds(policy__clip_high=(0.0, 1.0))) == []


def test_the_ceiling_of_pass_at_k_is_that_of_pass_at_k():
    asked = replace(ASKED, metric="pass@k")
    assert reasons(CARD, asked, seeds(**{"eval/pass@8": (0.99, 0.97)})) == [
        "the baseline stands at its ceiling (pass@8 97.0 %)"
    ]


def test_every_card_names_a_registered_counter():
    for card in list_recipes():
        assert card.counter is not None, card.name
        assert not metric_of(card.counter.metric).own, card.name


def test_runs_record_the_counter_and_evidence_stores_it(tmp_path):
    runner = Simulated({"grpo": 0.1, "rloo": 0.25})
    name = load_recipe("rloo").card.counter.metric
    plain = runner.run

    def counting(spec, folder, tick):
        made = plain(spec, folder, tick)
        value = 0.0 if spec.arm.recipe == "grpo" else 0.3
        return Trace(made.label, made.seed, tuple({**row, name: value} for row in made.rows))

    runner.run = counting
    entry = measure(training(), runner, tmp_path, quiet())
    assert entry.results[0].also[name] == pytest.approx((0.3, 0.0))
    assert set(entry.results[0].learned) == {"grpo", "rloo"}
    runner.run = lambda spec, folder, tick: Trace(
        spec.arm.label, spec.seed, tuple({**row, name: 0.0} for row in plain(spec, folder, tick).rows)
    )
    assert measure(training(), runner, tmp_path / "idle", quiet()).outcome == "void"


def test_void_entries_are_in_no_family_and_in_no_count(tmp_path):
    claim = Claim(CARD, ASKED)
    entry = measure(training(), Simulated({"grpo": 0.1, "rloo": 0.25}), tmp_path, quiet())
    entry, void = replace(entry, name="tis"), replace(entry, name="gpg", outcome="void", words="void: x")
    both = together([entry, void])
    assert both["tis"].family == 1
    assert both["gpg"].found is None
    assert counted(both) == {"holds": 1, "void": 1}
    save_entry(entry, tmp_path / "evidence")
    save_entry(void, tmp_path / "evidence")
    main(EvidenceConfig(("tis", "gpg"), list=True, folder=tmp_path / "evidence"), console=(out := quiet()))
    assert "1 verdicts: 1 × holds; 1 void entries are none." in out.file.getvalue()
    stale = rejudged(claim, entry)
    assert stale.outcome == "void"
    assert "now asks something else" in stale.words


def test_stored_entries_have_the_verdict_of_the_rules():
    made = {claim.name: claim for claim in claims() if claim.complete}
    stored = load_entries(EVIDENCE)
    assert [e.name for e in stored if rejudged(made[e.name], e).words != e.words] == []
