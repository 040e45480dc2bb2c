"""What the knobs mean that many recipes, credits and controls share. A knob with a text of its own keeps that."""

from __future__ import annotations

COMMON = {
    "group": "Rollouts of each prompt.",
    "clip": "How far the ratio may leave 1 on either side before its gradient is cut.",
    "clip_low": "How far the ratio may fall below 1 before its gradient is cut.",
    "clip_high": "How far the ratio may rise above 1 before its gradient is cut.",
    "kl": "Weight of the KL penalty towards the starting policy; 0 = none.",
    "dual": "Bound of the loss where the advantage is negative (dual clip); none when left out.",
    "against": "What the ratio divides by: the weights at the start of the step, or the distribution sampled from.",
    "updates": "Optimizer updates on the rollouts of a step.",
    "gamma": "Discount of what comes later.",
    "leaves": "Finished rollouts of each prompt.",
    "rounds": "Most rounds of sampling in a step.",
    "sampling_rounds": "Most rounds of sampling while filters leave the step short of prompts.",
    "ways": "Branches of a fork.",
    "ddof": "1 divides the variance by the size of the group less one, 0 by its size.",
    "eps": "Added to a divisor so that it is never zero.",
    "by": "What the leaves are compared within: a tree, all trees of an item, or the batch.",
    "std": "Whether advantages are divided by the standard deviation.",
    "base": "The credit this one starts from, by name.",
    "correct": "Outcomes above this count as right.",
    "singleton": "What a group of one gets: zero, its raw reward, or nothing (it is skipped).",
    "backup": "How the value of a node follows from what is below it.",
    "place": "Whether eps is added inside the root or outside of it.",
    "whiten": "Whether advantages are shifted to mean 0 and scaled to deviation 1.",
    "averaging": "What the weight of a leaf is shared over: all tokens, its length, its group's tokens, a constant.",
    "overlong": "Whether answers that end at the token limit are punished for their length.",
    "seed": "Where chance starts: the same seed gives the same result.",
}
