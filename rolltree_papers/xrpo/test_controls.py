"""What `xrpo` promises beside what all of its kind do."""

import numpy as np

from rolltree_papers.xrpo import Xrpo
from studies.prompts.world import PromptWorld, run


def test_xrpo_asks_dead_prompts_with_others_answers_out_of_the_budget():
    world = PromptWorld(logits=np.array([50.0, 0.0, -50.0, -50.0]), drift=0.0, per_hint=0.0)
    (log,) = run(Xrpo(), world, 1, prompts=4, width=8)
    seeded = [d.order for d in log.delivered if d.order.arm == "seeded"]
    assert {o.prompt.uid for o in seeded} <= {"p2", "p3", "p1"}
    assert {"p2", "p3"} <= {o.prompt.uid for o in seeded}
    slots = [(o.brief["examples"], o.prompt.item.prompt) for o in seeded]
    assert all(slot.hidden and slot.before and prompt not in slot.text for slot, prompt in slots)
    assert log.rollouts == 32
