"""Starting, resuming and ending a run: names become parts, parts are checked against each other, the loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rolltree.engine.choose import choose_engine, local_engine
from rolltree.engine.local.admit import is_shortage
from rolltree.engine.protocol import Engine, EngineError, Sampling
from rolltree.errors import did_you_mean
from rolltree.generate.random import mix
from rolltree.knobs.varying import schedule, schedules
from rolltree.metrics.log import MetricsLog, Tracker, read_metrics
from rolltree.policy.chat_template import told_of_template
from rolltree.policy.device import Placement, place
from rolltree.policy.load import LoadedModel, load_model
from rolltree.recipe.acted import CONFIGURED, Acted, acted_in, configured
from rolltree.recipe.check import check, check_rewards
from rolltree.recipe.compose import Course, moving
from rolltree.recipe.recipe import Parts, Peer, Recipe
from rolltree.recipe.registry import load_recipe
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.scheduled import schedule_of
from rolltree.rollout.underway import all_failed
from rolltree.rollout.widths import check_batch, check_width
from rolltree.task.protocol import Task, about, distinct, spoken_by
from rolltree.training.backward import DivergedError
from rolltree.training.checkpoint import latest
from rolltree.training.config import Optim, TrainConfig, TrainError, check_optim, known_fields
from rolltree.training.fits import check_fits
from rolltree.training.keep import as_json, check_same, keep_offender, load_run, save_run
from rolltree.training.learner import compute_of, make_learner
from rolltree.training.loop import Listen, Loop, RunEvent
from rolltree.training.needs import provided
from rolltree.training.optimizer import optim_at
from rolltree.training.peers import PeerPolicy, check_peers, peer_model
from rolltree.training.progress import FailureLog, Reporter, WarningLog, open_trackers
from rolltree.training.prompt import write_first
from rolltree.training.ranks.driver import check_count, crewed
from rolltree.training.ranks.start import follow, leads, settled
from rolltree.training.readings import make_readings
from rolltree.training.run import RunFolder
from rolltree.tree import Tree
from rolltree.tree.store.atomic import check_writable
from rolltree.tree.store.parquet import save_step

# What a run is given: names become parts, and single knobs a configuration.


def with_knobs(config: TrainConfig, knobs: Mapping[str, Any]) -> TrainConfig:
    """A configuration with single knobs replaced; an unknown one is refused with the nearest known."""
    run, optim = known_fields(TrainConfig), known_fields(Optim)
    for knob in knobs:
        if knob not in run and knob not in optim:
            way = did_you_mean(knob, [*run, *optim]) or f"there are {', '.join([*run, *optim])}"
            raise TrainError(f"training has no knob {knob!r}; {way}")
    mine = {k: v for k, v in knobs.items() if k in optim}
    rest = {k: v for k, v in knobs.items() if k in run}
    base = replace(config, **rest)
    return replace(base, optim=replace(base.optim, **mine)) if mine else base


def course_of(recipe: str | Recipe | Parts) -> Course:
    """The compositions of a run behind a name, a recipe or one composition for all steps."""
    return Course(load_recipe(recipe) if isinstance(recipe, str) else recipe)


def parts_of(recipe: str | Recipe | Parts) -> Parts:
    """The composition of the first step."""
    return course_of(recipe).at(0, {})


def task_of(task: str | Task) -> Task:
    """A task by name, or itself."""
    if not isinstance(task, str):
        return task
    from rolltree.task.registry import load_task

    return load_task(task)


LOST = 3
"""Steps in a row without a rollout that did not fail, after which a run ends; the first step of a run ends it alone."""


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run."""

    path: Path
    model: Any
    """The trained module, in memory; None on ranks beside the first."""
    metrics: list[dict[str, Any]]
    """All lines of metrics.jsonl."""
    why: str
    """Why it ended."""
    acted: Acted | None = None
    """Whether the recipe's mechanism acted; None where its card names no counter."""

    def last(self, kind: str) -> dict[str, Any]:
        """The last line of a kind ("train" or "eval")."""
        return next((line for line in reversed(self.metrics) if line["kind"] == kind), {})


def train(
    recipe: str | Recipe | Parts, model: str | Path | LoadedModel, task: str | Task, *, out: str | Path,
    config: TrainConfig | None = None, engine: Engine | str = "local", resume: bool = False, fallback: bool = False,
    listen: Listen | None = None, quiet: bool = False, **knobs: Any,
) -> Result:  # fmt: skip
    """Train a model on a task with a recipe, into a run folder. Extra keywords are knobs of `TrainConfig` or `Optim`.

    `resume` continues the run in `out` from its newest checkpoint exactly; a damaged one, or none where there were
    some, is refused unless `fallback` allows an older one or the beginning. `engine` is one on this model, or the name
    of one to start (see `rolltree.engine.choose`). Under torchrun every process calls this: rank 0 trains with the help
    of the others, and theirs return a result without model and metrics.
    """
    settings = settled(with_knobs(config or TrainConfig(), knobs))
    if not leads():
        follow(settings)
        return Result(Path(out), None, [], "the first rank has let go")
    course = course_of(recipe)
    stages = course.corners()
    for parts in stages:
        check_width(parts.strategy, parts.control)
        check_batch(parts.prompts or settings.prompts, parts.strategy)
        check_peers(parts)
        check_optim(optim_at(settings, parts), rests="lr" in schedules(settings.optim))
    where = place(settings.device, settings.dtype)
    check_count(settings.ranks, where.device)
    check_writable(Path(out), "out", folder=True)
    if not isinstance(model, LoadedModel):
        for parts in stages:
            check_fits(model, parts, settings, engine=engine == "local", moving=moving(stages))
    loaded = model if isinstance(model, LoadedModel) else load_model(model)
    whole: Any = loaded.model
    whole.to(where.device)
    asked = spoken_by(task_of(task), loaded.codec)
    folder = RunFolder(out, resume=resume)
    try:
        before = folder.config().get("train") if resume else None
        settings, said = provided(course.card, stages[0], asked, settings, loaded.name, before)
        job = _Job(stages, course, recipe, loaded, asked, folder, settings, quiet, tuple(said))
        return asyncio.run(_run(job, engine, listen, resume=resume, fallback=fallback))
    finally:
        folder.close()


@dataclass(frozen=True, slots=True)
class _Job:
    stages: list[Parts]
    """The parts at every step where something begins or ends, those of the first step first."""
    course: Course
    recipe: str | Recipe | Parts
    loaded: LoadedModel
    task: Task
    folder: RunFolder
    config: TrainConfig
    quiet: bool
    said: tuple[str, ...] = ()
    """What was set for the recipe, and what it lacks."""

    @property
    def parts(self) -> Parts:
        """Those of the first step."""
        return self.stages[0]

    @property
    def placement(self) -> Placement:
        """Where it computes."""
        return place(self.config.device, self.config.dtype)

    def described(self) -> dict[str, Any]:
        """All knobs, as config.json has them."""
        # What a task on data says of itself is part of it: a run is not resumed with other rewards.
        task = [self.task.name, self.task.level, *about(self.task).splitlines(), *told_of_template(self.loaded.path)]
        return as_json({"recipe": self.recipe, "parts": self.parts, "varying": self.course.texts,
                       "model": self.loaded.name, "task": task, "train": self.config,
                       CONFIGURED: configured(self.course.card)})  # fmt: skip


async def _run(job: _Job, asked: Engine | str, listen: Listen | None, *, resume: bool, fallback: bool) -> Result:
    config, folder = job.config, job.folder
    torch.manual_seed(config.seed)
    where = latest(folder.checkpoints, fallback=fallback) if resume else None
    if resume and where is None and not fallback:
        folder.check_beginning()
    described = job.described()
    if resume:
        check_same(folder.config(), described)
    if isinstance(asked, str):
        # Its first weights are the ones published before the first step, as version 0.
        draw = Sampling(temperature=config.temperature)
        # Where nothing runs beside training, lockstep makes a run repeatable.
        schedule = schedule_of(job.parts, config.scheduler, config.staleness)
        engine = await choose_engine(
            asked,
            job.loaded,
            version=-1,
            sampling=draw,
            updates=True,
            lockstep=schedule.lockstep or schedule.stop.abort,
            placement=job.placement,
            speculate=config.speculate,
            precision=config.engine_precision,
            lora=0 if config.lora is None else config.lora.rank,
        )
    elif config.speculate != "off":
        raise EngineError(
            f"speculate is {config.speculate!r}, and this run was given its engine; make that engine speculate instead"
        )
    elif config.engine_precision != "full":
        raise EngineError(
            f"engine_precision is {config.engine_precision!r}, and this run was given its engine; make that engine "
            "with this precision instead"
        )
    else:
        engine = asked
    peers: dict[str, PeerPolicy] = {}
    try:
        for parts in job.stages:
            check(parts, engine, job.task)
            check_rewards(parts, engine, job.task)
        peers |= {name: _fellow(job, peer, engine) for name, peer in job.parts.peers.items()}
        # Before the learner, which may wrap the model in adapters.
        read = frozenset[str]().union(*(parts.credit.needs for parts in job.stages))
        readings = make_readings(
            job.parts.credit, job.loaded.model, optim_at(config, job.parts), compute_of(config),
            adapted=config.lora is not None, more=read,
        )  # fmt: skip
        learner = make_learner(job.parts, job.loaded.model, config, job.stages)
        readings = readings.beside(learner.policy)
        read_by = readings if readings.asked else None
        cursor = Cursor(job.task, mix(config.seed, "items"), items=config.items)
        cursor.check()
        _check_held_out(job)
        loop = Loop(job.parts, engine, job.task, learner, config, cursor, read_by, peers=peers, course=job.course)
        with crewed(learner, job.parts, config.ranks):
            if where is not None:
                load_run(loop, where)
            title = f"{job.parts.name} on {job.task.name} (level {job.task.level}) from {job.loaded.name}"
            trackers = open_trackers(config.trackers, folder.path, described)
            folder.describe(title, described)
            if not resume:
                write_first(job.task, cursor.seed, engine.codec, folder.path)
            after = (where.step if where else -1) if resume else None
            return await _recorded(job, loop, trackers, listen, described, after=after)
    finally:
        for peer in peers.values():
            await peer.engine.close()
        if engine is not asked:
            await engine.close()


def _fellow(job: _Job, peer: Peer, engine: Engine) -> PeerPolicy:
    """A peer with an engine of its own, in step with the policy's, as it stands before the first step."""
    from rolltree.engine.local import LocalEngine

    loaded = peer_model(peer, job.loaded)
    learner = make_learner(job.parts, loaded.model, job.config, job.stages) if peer.trained else None
    where = job.placement
    beside = engine if isinstance(engine, LocalEngine) else None
    version = -1 if peer.trained or peer.bits else 0
    return PeerPolicy(
        local_engine(loaded, version=version, dtype=where.dtype, device=where.device, beside=beside), learner, peer.bits
    )


async def _recorded(
    job: _Job, loop: Loop, trackers: tuple[Tracker, ...], listen: Listen | None, described: Mapping[str, Any],
    *, after: int | None,
) -> Result:  # fmt: skip
    metrics = MetricsLog(job.folder.metrics, trackers, after=after)
    try:
        log = job.folder.path / "log.txt"
        with Reporter(log, job.config, quiet=job.quiet) as reporter, WarningLog(metrics) as warnings:
            for line in (*job.said, *about_data(job.task, job.config), *about_schedules(job.course, job.config)):
                reporter.say(line)
            loop.listen = _all(reporter, (FailureLog(metrics), warnings), listen)
            why = await _steps(loop, job.loaded, job.folder, metrics)
            if (found := acted_in(described, read_metrics(job.folder.metrics))) is not None:
                job.folder.tell_acted(found.as_json())
                reporter.say(str(found), style="" if found.acted else "yellow")
    except BaseException:
        # What went wrong is the news, not what goes wrong because of it.
        for close in (loop.close, partial(metrics.close, ended=False)):
            with suppress(Exception):
                if (closing := close()) is not None:
                    await closing
        raise
    await loop.close()
    metrics.close()
    return Result(job.folder.path, loop.learner.policy.model, read_metrics(job.folder.metrics), why, found)


async def _steps(loop: Loop, loaded: LoadedModel, folder: RunFolder, metrics: MetricsLog) -> str:
    c = loop.config
    await loop.publish()
    loop.listen(RunEvent("start", loop.done, note=loop.said))
    if loop.done == 0 and c.eval_every:
        metrics.write("eval", 0, await loop.evaluate(end=True))
        if loop.blind:
            raise TrainError(
                f"the first evaluation measured nothing, because {loop.blind}; mend the task or the engine, and "
                "start again with --resume"
            )
    lost, trees = 0, list[Tree]()
    while not (why := loop.over()):
        try:
            numbers, trees = await loop.step()
        except DivergedError as error:
            raise keep_offender(loop, folder, error) from error
        except (MemoryError, RuntimeError) as error:
            if is_shortage(error):
                raise _too_large(loop, error) from error
            raise
        metrics.write("train", loop.done, numbers)
        over = bool(loop.over())
        if c.forests_every and (loop.done == 1 or loop.done % c.forests_every == 0 or over):
            save_step(trees, folder.forests, loop.done, overwrite=True, states="drop")
        broken = all_failed(trees)
        lost = lost + 1 if broken else 0
        if lost == (1 if loop.done == 1 else LOST):
            raise TrainError(
                f"step {loop.done} had nothing to train on, because {broken}; mend the task or the engine, and "
                f"{'start again with --resume' if loop.done == 1 else 'resume from the newest checkpoint'}"
            )
        if c.eval_every and (loop.done % c.eval_every == 0 or over):
            metrics.write("eval", loop.done, await loop.evaluate(end=bool(over)))
        if over or (c.checkpoint_every and loop.done % c.checkpoint_every == 0):
            await loop.rest()
            save_run(loop, loaded, folder)
    running = loop.under_way(trees)
    note = f"; {running} rollouts under way were given up" if running else ""
    loop.listen(RunEvent("stop", loop.done, {"leaves.running": float(running)}, note=why + note))
    if loop.blind:
        raise TrainError(f"{why}, and the last evaluation measured nothing, because {loop.blind}; the model is saved")
    return why


def _too_large(loop: Loop, error: BaseException) -> TrainError:
    return TrainError(
        f"step {loop.done + 1} ran out of memory ({str(error).splitlines()[0][:200] or type(error).__name__}); lower "
        f"token_budget (now {loop.config.token_budget}), prompts or max_tokens, or free memory and resume"
    )


def about_data(task: Task, config: TrainConfig) -> list[str]:
    """What is said of a finite task before the first step."""
    said = about(task).splitlines()
    held = distinct(task, "test")
    if held is not None and config.eval_every:
        used = min(held, config.eval_items)
        said.append(f"every evaluation asks {used} of {held} distinct held-out items, each {config.eval_samples} times")
    return said


def about_schedules(course: Course, config: TrainConfig) -> list[str]:
    """What is said before the first step of schedules that the run ends before."""
    texts = course.texts | {f"optim.{name}": text for name, text in schedules(config.optim).items()}
    return [
        f"{name}={text!r} goes on behind the run's {config.steps} steps: what it says of later ones never happens; "
        'give more steps, or shares of the run, as in "1, 2 at 50%"'
        for name, text in texts.items() if (found := schedule(text)) is not None and found.lasts(config.steps)
    ]  # fmt: skip


def _check_held_out(job: _Job) -> None:
    if job.config.eval_every and distinct(job.task, "test") == 0:
        raise TrainError(
            f"{job.task.name} has no held-out items to evaluate on; hold some out (--holdout 0.1 or a file), or train "
            "without evaluations (--eval-every 0)"
        )


def _all(reporter: Reporter, logs: Sequence[Callable[[RunEvent], None]], listen: Listen | None) -> Listen:
    def tell(live: RunEvent) -> None:
        reporter(live)
        for log in logs:
            log(live)
        if listen is not None and (answer := listen(live)):
            for line in answer.splitlines():
                reporter.say(f"step {live.step}: {line}")

    return tell


__all__ = ["Result", "train"]
