"""What a recipe needs and its surroundings cannot supply, said before the first token."""

from __future__ import annotations

from rolltree.control.hints import solver
from rolltree.control.probe import PrunesInFlight
from rolltree.credit.advantage import Reading
from rolltree.engine.protocol import Engine
from rolltree.generate.probed import check_probe
from rolltree.generate.signals import features
from rolltree.generate.strategy import ChecksEngine, ChecksItem, check_needs, written
from rolltree.recipe.recipe import Parts, RecipeError
from rolltree.task.protocol import Task, distinct, measured

FROM_ENGINE = {"staleness": "versions"}
"""Needs of credits and objectives that an engine's feature meets."""
FROM_TASK = frozenset({"step_reward", "state_key"})
"""Needs of credits that only a task with an environment meets."""
ALWAYS = frozenset({"reward", "logp", "reference", "previous", "ewma", "forced", "logits", "group", "leaf-note:answer"})
"""Needs that any verified rollout or the trainer itself meets."""
FROM_TRAINER = frozenset(
    {"root:prior", "action:reference", "action:value", "turn:value_low", "turn:value_high", "turn:value_term"}
)
"""Needs of credits that the trainer's memory, reference policy and critic meet (`rolltree.training.readings`). A credit
of your own that needs the policy to read something meets it itself (`rolltree.credit.advantage.Reading`)."""


def check(recipe: Parts, engine: Engine, task: Task) -> None:
    """Raise one sentence naming the part that lacks something and the part that cannot supply it."""
    check_needs(recipe.strategy.needs, f"the strategy {type(recipe.strategy).__name__} of {recipe.name}", engine, task)
    if isinstance(recipe.strategy, ChecksEngine):
        recipe.strategy.check(engine, task)
    if isinstance(recipe.strategy, ChecksItem):
        recipe.strategy.check_item(next(task.items("test" if distinct(task, "train") == 0 else "train")))
    _check_control(recipe, engine, task)
    for kind, part, needs in (
        ("credit", recipe.credit, recipe.credit.needs), ("objective", recipe.objective, recipe.objective.needs),
    ):  # fmt: skip
        who = f"the {kind} {type(part).__name__} of {recipe.name}"
        reads = part.reads if isinstance(part, Reading) else frozenset[str]()
        for need in sorted(needs - ALWAYS - FROM_TRAINER - reads):
            _check_need(who, kind, need, recipe=recipe, engine=engine, task=task)


def check_rewards(recipe: Parts, engine: Engine, task: Task) -> None:
    """The same of what makes rewards of more than the verifier's word, which training alone does."""
    for shaper in recipe.shapers:
        who = f"the reward {type(shaper).__name__} of {recipe.name}"
        needs: frozenset[str] = getattr(shaper, "needs", frozenset[str]())
        for need in sorted(needs):
            kind, _, name = need.partition(":")
            if kind == "part":
                _check_part(who, name, recipe, task)
            else:
                _check_need(who, "reward", need, recipe=recipe, engine=engine, task=task)


def _check_part(who: str, name: str, recipe: Parts, task: Task) -> None:
    known = measured(task)
    if known is not None and name not in known and f"part:{name}" not in written(recipe.strategy):
        raise RecipeError(
            f"{who} reads the part {name!r} of each verdict, and the task {task.name!r} measures "
            f"{', '.join(sorted(known)) or 'none'}; choose a task that measures it, or give that part the weight 0"
        )


def _check_control(recipe: Parts, engine: Engine, task: Task) -> None:
    who = f"the control {type(recipe.control).__name__} of {recipe.name}"
    if isinstance(recipe.control, ChecksEngine):
        recipe.control.check(engine, task)
    if isinstance(recipe.control, PrunesInFlight):
        check_probe(recipe.control.over, who, recipe.strategy, engine, task)
    if recipe.control.needs & {"solution", "one turn"} and task.max_turns:
        raise RecipeError(
            f"{who} gives hints from a written answer, but answers of the task {task.name!r} are dialogues with its "
            "environment; choose a task without one, or another control"
        )
    if "solution" in recipe.control.needs:
        solve = solver(task)
        assert solve is not None
        solve(next(task.items("train")))


def _check_need(who: str, kind: str, need: str, *, recipe: Parts, engine: Engine, task: Task) -> None:
    if need in FROM_TASK:
        if task.max_turns == 0:
            raise RecipeError(
                f"{who} needs {need!r}, but the task {task.name!r} has no environment; choose another task"
            )
        return
    # The trainer computes an objective's entropies itself; a credit reads those the engine wrote.
    if kind == "objective" and need == "entropy":
        return
    if kind != "objective" and (need == "entropy" or need.startswith("top:")):
        _check_recorded(who, need, recipe, engine)
        return
    if need in FROM_ENGINE:
        if engine.capabilities.lacking(frozenset({FROM_ENGINE[need]})):
            raise RecipeError(
                f"{who} needs {need!r}, which the engine {type(engine).__name__} cannot report; choose another engine"
            )
        return
    if need == "sampled":
        if not engine.capabilities.samples_exactly:
            raise RecipeError(
                f"{who} needs the log-probs sampled with, but the engine {type(engine).__name__} only promises the "
                "most likely token; choose another engine"
            )
        return
    writers = (recipe.strategy, recipe.control, *recipe.shapers, task)
    if not any(need in getattr(part, "writes", ()) for part in writers):
        raise RecipeError(
            f"{who} needs {need!r}, which neither the strategy {type(recipe.strategy).__name__}, the control "
            f"{type(recipe.control).__name__} nor the task {task.name!r} writes; choose one that does"
        )


def _check_recorded(who: str, need: str, recipe: Parts, engine: Engine) -> None:
    """An extra per action: the engine must be able to report it and the strategy must ask for it."""
    if engine.capabilities.lacking(features({need})):
        raise RecipeError(
            f"{who} needs {need!r}, which the engine {type(engine).__name__} cannot report; choose another engine"
        )
    want: frozenset[str] = getattr(recipe.strategy, "want", frozenset())
    enough = need in want or (need[:4] == "top:" and any(w[:4] == "top:" and int(w[4:]) >= int(need[4:]) for w in want))
    if not enough:
        raise RecipeError(
            f"{who} needs {need!r}, which the strategy {type(recipe.strategy).__name__} does not record; "
            "let it ask the engine for that extra"
        )
