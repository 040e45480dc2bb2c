"""Starting, resuming and ending a run: names become parts, parts are checked against each other, the loop runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rolltree.engine.choose import choose_engine
from rolltree.engine.local.shortage import is_shortage
from rolltree.engine.protocol import Engine, EngineError, Sampling
from rolltree.errors import did_you_mean
from rolltree.generate.random import mix
from rolltree.metrics.log import MetricsLog, Tracker, read_metrics
from rolltree.policy.device import Placement, place
from rolltree.policy.load import LoadedModel, load_model, read_weights
from rolltree.policy.lora import load_lora
from rolltree.policy.weights import load_weights
from rolltree.recipe.check import check
from rolltree.recipe.compose import Course, moving
from rolltree.recipe.recipe import Parts, Peer, Recipe
from rolltree.recipe.registry import load_recipe
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.scheduled import schedule_of
from rolltree.rollout.widths import check_batch, check_width
from rolltree.task.protocol import Task, about, distinct, spoken_by
from rolltree.train.backward import DivergedError
from rolltree.train.checkpoint import Checkpoint, latest, read_state, save_checkpoint, understood
from rolltree.train.config import Optim, TrainConfig, TrainError, check_optim, known_fields
from rolltree.train.failure_log import FailureLog
from rolltree.train.failures import all_failed
from rolltree.train.fits import check_fits
from rolltree.train.learner import compute_of, make_learner
from rolltree.train.loop import Listen, Loop, RunEvent
from rolltree.train.peers import PeerPolicy, check_peers, peer_model
from rolltree.train.progress import Reporter
from rolltree.train.prompt import write_first
from rolltree.train.ranks import crewed
from rolltree.train.ranks_torchrun import follow, leads, settled
from rolltree.train.readings import make_readings
from rolltree.train.run import RunFolder, plain
from rolltree.train.stage import optim_at
from rolltree.train.trackers import open_trackers
from rolltree.tree import Tree
from rolltree.tree.parquet import save, save_step
from rolltree.varying import schedules

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
    where = place(settings.device, settings.dtype)
    if not isinstance(model, LoadedModel):
        for parts in stages:
            check_fits(model, parts, settings, engine=engine == "local", moving=moving(stages))
    loaded = model if isinstance(model, LoadedModel) else load_model(model)
    whole: Any = loaded.model
    whole.to(where.device)
    asked = spoken_by(task_of(task), loaded.codec)
    folder = RunFolder(out, resume=resume)
    job = _Job(stages, course, recipe, loaded, asked, folder, settings, quiet)
    try:
        return asyncio.run(_run(job, engine, listen, resume=resume, fallback=fallback))
    finally:
        folder.close()


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
        task = [self.task.name, self.task.level, *about(self.task).splitlines()]
        return _plain({"recipe": self.recipe, "parts": self.parts, "varying": self.course.texts,
                       "model": self.loaded.name, "task": task, "train": self.config})  # fmt: skip


async def _run(job: _Job, asked: Engine | str, listen: Listen | None, *, resume: bool, fallback: bool) -> Result:
    config, folder = job.config, job.folder
    torch.manual_seed(config.seed)
    where = latest(folder.checkpoints, fallback=fallback) if resume else None
    if resume and where is None and not fallback:
        folder.check_beginning()
    described = job.described()
    if resume:
        _same(folder.config(), described)
    if isinstance(asked, str):
        # Its first weights are the ones published before the first step, as version 0.
        draw = Sampling(temperature=config.temperature)
        # Where nothing runs beside training, the engine's reactions make a scheduled run repeatable.
        schedule = schedule_of(job.parts, config.scheduler, config.staleness)
        engine = await choose_engine(
            asked,
            job.loaded,
            version=-1,
            sampling=draw,
            updates=True,
            lockstep=schedule.stop.abort,
            placement=job.placement,
            speculate=config.speculate,
        )
    elif config.speculate != "off":
        raise EngineError(
            f"speculate is {config.speculate!r}, and this run was given its engine; make that engine speculate instead"
        )
    else:
        engine = asked
    peers: dict[str, PeerPolicy] = {}
    try:
        for parts in job.stages:
            check(parts, engine, job.task)
            check_width(parts.strategy, parts.control)
            check_batch(config.prompts, parts.strategy)
            check_peers(parts)
            check_optim(optim_at(config, parts), rests="lr" in schedules(config.optim))
        peers |= {name: _fellow(job, peer) for name, peer in job.parts.peers.items()}
        # Before the learner, which may wrap the model in adapters.
        read = frozenset[str]().union(*(parts.credit.needs for parts in job.stages))
        readings = make_readings(
            job.parts.credit, job.loaded.model, optim_at(config, job.parts), compute_of(config),
            adapted=config.lora is not None, more=read,
        )  # fmt: skip
        learner = make_learner(job.parts, job.loaded.model, config, job.stages)
        readings = readings.beside(learner.policy)
        cursor = Cursor(job.task, mix(config.seed, "items"), items=config.items)
        cursor.check()
        _check_held_out(job)
        loop = Loop(job.parts, engine, job.task, learner, config, cursor, readings, peers=peers, course=job.course)
        with crewed(learner, job.parts, config.ranks):
            if where is not None:
                _load(loop, where)
            title = f"{job.parts.name} on {job.task.name} (level {job.task.level}) from {job.loaded.name}"
            trackers = open_trackers(config.trackers, folder.path, described)
            folder.describe(title, described)
            if not resume:
                write_first(job.task, cursor.seed, engine.codec, folder.path)
            return await _recorded(job, loop, trackers, listen, after=(where.step if where else -1) if resume else None)
    finally:
        for peer in peers.values():
            await peer.engine.close()
        if engine is not asked:
            await engine.close()


def _fellow(job: _Job, peer: Peer) -> PeerPolicy:
    """A peer with an engine of its own, as it stands before the first step."""
    from rolltree.engine.local import LocalEngine

    loaded = peer_model(peer, job.loaded)
    learner = make_learner(job.parts, loaded.model, job.config, job.stages) if peer.trained else None
    where = job.placement
    engine = LocalEngine(loaded, version=-1 if peer.trained else 0, dtype=where.dtype, device=where.device)
    return PeerPolicy(engine, learner)


async def _recorded(
    job: _Job, loop: Loop, trackers: tuple[Tracker, ...], listen: Listen | None, *, after: int | None
) -> Result:
    metrics = MetricsLog(job.folder.metrics, trackers, after=after)
    try:
        with Reporter(job.folder.path / "log.txt", job.config, quiet=job.quiet) as reporter:
            for line in about_data(job.task, job.config):
                reporter.say(line)
            loop.listen = _all(reporter, FailureLog(metrics), listen)
            why = await _steps(loop, job.loaded, job.folder, metrics)
    except BaseException:
        # What went wrong is the news, not what goes wrong because of it.
        for close in (loop.close, metrics.close):
            with suppress(Exception):
                if (closing := close()) is not None:
                    await closing
        raise
    await loop.close()
    metrics.close()
    return Result(job.folder.path, loop.learner.policy.model, read_metrics(job.folder.metrics), why)


async def _steps(loop: Loop, loaded: LoadedModel, folder: RunFolder, metrics: MetricsLog) -> str:
    c = loop.config
    await loop.publish()
    loop.listen(RunEvent("start", loop.done, note=loop.said))
    if loop.done == 0 and c.eval_every:
        metrics.write("eval", 0, await loop.evaluate(end=True))
        if loop.blind:
            raise TrainError(
                f"the first evaluation measured nothing, because {loop.blind}; mend the task or the engine"
            )
    lost, trees = 0, list[Tree]()
    while not (why := loop.over()):
        try:
            numbers, trees = await loop.step()
        except DivergedError as error:
            raise _keep_offender(loop, folder, error) from error
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
                f"{'start again' if loop.done == 1 else 'resume from the newest checkpoint'}"
            )
        if c.eval_every and (loop.done % c.eval_every == 0 or over):
            metrics.write("eval", loop.done, await loop.evaluate(end=bool(over)))
        if over or (c.checkpoint_every and loop.done % c.checkpoint_every == 0):
            await loop.rest()
            _save(loop, loaded, folder)
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


def _save(loop: Loop, loaded: LoadedModel, folder: RunFolder) -> None:
    note = f"{loop.recipe.name} on {loop.task.name}, after step {loop.done}. See the README two folders up.\n"
    saved = save_checkpoint(
        folder.checkpoints, loop.done, model=loop.learner.policy.model, tokenizer=loaded.codec.tokenizer,
        state=loop.state(), keep=loop.config.keep_checkpoints, note=note,
        peers={name: peer.learner.policy.model for name, peer in loop.peers.items() if peer.learner is not None},
        more=loop.save_buffers,
    )  # fmt: skip
    loop.listen(RunEvent("checkpoint", loop.done, note=f"saved {saved.path.name}"))


def _load(loop: Loop, where: Checkpoint) -> None:
    state = read_state(where)
    if loop.config.lora is not None:
        load_lora(loop.learner.policy.model, where.path)
    else:
        load_weights(loop.learner.policy.model, read_weights(where.path), where.path)
    with understood(where):
        loop.restore(state)
        loop.load_buffers(where.path)
        torch.set_rng_state(state["torch_rng"])


def _keep_offender(loop: Loop, folder: RunFolder, error: DivergedError) -> TrainError:
    place = folder.path / "offending" / f"step-{loop.done + 1:06d}"
    micro = error.micro
    trees: list[Tree] = error.trees
    save(trees, place, overwrite=True, states="drop")
    if micro is not None:
        arrays = {n: getattr(micro, n) for n in ("gain", "loss", "weight", "engine", "sampled", "version", "forced")}
        np.savez(place / "batch.npz", tokens=micro.packed.tokens, action=micro.packed.action, **arrays)
    return TrainError(
        f"step {loop.done + 1} diverged: {error}; the batch is in {place}; look at it, or resume from the newest "
        "checkpoint with a lower learning rate"
    )


def about_data(task: Task, config: TrainConfig) -> list[str]:
    """What is said of a finite task before the first step."""
    said = about(task).splitlines()
    held = distinct(task, "test")
    if held is not None and config.eval_every:
        used = min(held, config.eval_items)
        said.append(f"every evaluation asks {used} of {held} distinct held-out items, each {config.eval_samples} times")
    return said


def _check_held_out(job: _Job) -> None:
    if job.config.eval_every and distinct(job.task, "test") == 0:
        raise TrainError(
            f"{job.task.name} has no held-out items to evaluate on; hold some out (--holdout 0.1 or a file), or train "
            "without evaluations (--eval-every 0)"
        )


def _all(reporter: Reporter, failed: FailureLog, listen: Listen | None) -> Listen:
    def tell(live: RunEvent) -> None:
        reporter(live)
        failed(live)
        if listen is not None and (answer := listen(live)):
            for line in answer.splitlines():
                reporter.say(f"step {live.step}: {line}")

    return tell


def _plain(described: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = json.loads(json.dumps(described, default=plain))
    return out


def _same(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume under other knobs; only where to stop and what never changes a number may."""
    free = {"steps", "decoded", "seconds", "trackers", "keep_checkpoints", "ranks", "device", "gradient_checkpointing",
            "piece"}  # fmt: skip
    old, new = (Path(str(about["model"])).name if about.get("model") else "" for about in (before, now))
    if old and old != new:  # the same weights may lie in another place now
        raise TrainError(f"the run was started with the model {old} and cannot be resumed with {new}")
    knobs: Any = now["train"]["optim"]
    steps = [about["train"].get("steps") for about in (before, now) if "train" in about]
    if knobs["lr_schedule"] != "constant" and knobs["lr_updates"] is None and len(set(steps)) > 1:
        raise TrainError(
            f"the run was started with train.steps={steps[0]}, over which its learning rate falls, and cannot be "
            f"resumed with {steps[1]}; give lr_updates at the start of a run whose end is not known"
        )
    for part in ("parts", "varying", "task", "train"):
        old, new = before.get(part), now[part]
        if isinstance(old, dict) and isinstance(new, dict):
            # A knob the run was started without did not exist yet.
            changed = [k for k in new if k not in free and k in old and old[k] != new[k]]
            if changed:
                k = changed[0]
                raise TrainError(
                    f"the run was started with {part}.{k}={old.get(k)} and cannot be resumed with {new[k]}"
                )
        elif old != new:
            raise TrainError(f"the run was started with {part} {old} and cannot be resumed with {new}")


__all__ = ["Result", "make_learner", "parts_of", "task_of", "train", "with_knobs"]
