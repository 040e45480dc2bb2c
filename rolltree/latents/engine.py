"""The engine of denoisers: one action is one step of a flow model, sampled in batches of steps of any index.

It knows no images and no rewards. The first action of a path is a draw from the prior, the last has no noise; a step's
`logp` is its density at the noise it was drawn with, its `sampling_logprob` the density it was really drawn from, which
differs where a hook moved the mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.protocol import Caches, Capabilities, EngineError, Generation, Request, Sample, Scored
from rolltree.engine.run import ToldRun
from rolltree.engine.samples import join, nothing
from rolltree.latents.denoiser import Denoiser, LatentChannel, entropy, log_density, step
from rolltree.tree.node import Array, Finish

FEATURES = frozenset({
    "abort", "entropy:full", "greedy", "hidden", "hook", "latents", "offset", "score", "stream", "update", "versions",
})  # fmt: skip
ROWS = 32
"""Steps are computed so many at once, always: what a step comes to must not depend on what else is in the batch."""


@dataclass(eq=False)
class _LatentRun(ToldRun):
    """A path under way."""

    def __init__(self, request: Request, label: int, steps: np.ndarray[Any, Any]) -> None:
        super().__init__(request)
        self.label = label
        self.latent = steps[-1, :-1] if len(steps) else None
        self.made = len(steps)
        """Latents on the path so far."""
        self.parts: list[Sample] = []
        self.guess: np.ndarray[Any, Any] | None = None
        self.prefilled = 0
        """Calls that made no action."""

    def _halt(self, finish: Finish) -> None:
        self.ended = True
        self.over(finish)

    def over(self, finish: Finish) -> None:
        """It ends as it stands."""
        whole = join(self.parts) if self.parts else nothing(finish)
        self.end(Sample(whole.actions, whole.logp, whole.sampling_logprob, whole.version, finish, entropy=whole.entropy,
                        keep=whole.keep, hidden=self.guess, prefilled=self.prefilled))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What a batch of steps came to, row by row."""

    latent: np.ndarray[Any, Any]
    noise: np.ndarray[Any, Any]
    logp: np.ndarray[Any, Any]
    sampled: np.ndarray[Any, Any]
    entropy: np.ndarray[Any, Any]


@dataclass(slots=True)
class LatentEngine:
    """Samples and scores a flow model in this process."""

    model: Denoiser
    version: int = 0
    calls: int = 0
    """Calls of the denoiser, one a step and path: what methods are compared at."""
    codec: LatentChannel = field(init=False)
    capabilities: Capabilities = field(init=False)
    _runs: list[_LatentRun] = field(default_factory=list[_LatentRun])
    _task: asyncio.Task[None] | None = None
    _paused: bool = False

    def __post_init__(self) -> None:
        # What is trained goes on changing; what samples changes between two updates never.
        module: Any = deepcopy(self.model)
        # On the processor in float32, wherever and however the trained one is computed.
        self.model = module.requires_grad_(False).eval().to("cpu", torch.float32)
        self.codec = self.model.channel
        self.capabilities = Capabilities(FEATURES, self.steps + 2)

    @property
    def steps(self) -> int:
        """Calls of the denoiser on a whole path."""
        return len(self.model.sigmas) - 1

    def draws(self, prefix: Array, temperature: float) -> bool:
        """Whether the next step is drawn: the first latent always is, the last step never."""
        made = len(self.codec.split(prefix)[1])
        return made == 0 or (temperature > 0 and made < self.steps)

    def submit(self, request: Request) -> Generation:
        """Denoise on from a path; see `Engine.submit`."""
        s = request.sampling
        if s.stop or s.stop_ids or s.top_k or s.top_p < 1:
            raise EngineError("a denoiser has no stop strings, top_k or top_p; leave them out")
        if len(request.prefix) > self.capabilities.max_context:
            raise EngineError(
                f"a path of {len(request.prefix)} actions does not fit: a label and {self.steps + 1} latents are "
                f"{self.capabilities.max_context}"
            )
        label, steps = self.codec.split(request.prefix)
        if len(steps) > self.steps:
            raise EngineError(f"the image after {self.steps} steps is finished; fork before its end")
        run = _LatentRun(request, label, steps)
        if s.max_tokens < 1:
            run.over("length")
            return run
        self._runs.append(run)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())
        return run

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """Densities of the latents from `start` on, each at the noise it carries; NaN where there was none."""
        label, steps = self.codec.split(tokens)
        first = max(start - 1, 0)
        rows = [(steps[i - 1, :-1] if i else None, i, label, float(steps[i, -1])) for i in range(first, len(steps))]
        mean, std = self._means(rows)
        target = torch.from_numpy(steps[first:, :-1])
        logp = log_density(target, mean, std).numpy()
        spread = entropy(std, self.codec.size).numpy() if "entropy" in want else None
        self.calls += sum(i > 0 for _, i, _, _ in rows)
        return Scored(logp, self.version, spread)

    async def pause(self) -> None:
        """See `Engine.pause`."""
        self._paused = True

    async def resume(self) -> None:
        """See `Engine.resume`."""
        self._paused = False

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """See `Engine.update_weights`; there are no caches."""
        del caches
        given: Mapping[str, Tensor] = weights
        module: Any = self.model
        module.load_state_dict(given)
        self.version = version

    async def close(self) -> None:
        """See `Engine.close`."""
        for run in self._runs:
            run.stop()
        if self._task is not None:
            self._paused = False
            await self._task

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            # Requests that are made in one turn of the event loop are one batch.
            await asyncio.sleep(0)
            self._runs = [run for run in self._runs if not run.ended]
            if not self._runs:
                return
            if self._paused:
                await asyncio.sleep(0.001)
                continue
            runs = list(self._runs)
            try:
                drawn = self._draw(runs)
                for i, run in enumerate(runs):
                    if not run.ended:
                        self._tell(run, drawn, i)
            except BaseException as error:  # every run taken ends, whatever raises
                for run in runs:
                    run.settle(error)

    def _tell(self, run: _LatentRun, drawn: _Drawn, i: int) -> None:
        run.begun = True
        wanted = "entropy" in run.request.want
        part = Sample(
            np.append(drawn.latent[i], drawn.noise[i]).astype(np.float32)[None], drawn.logp[i : i + 1],
            drawn.sampled[i : i + 1], np.full(1, self.version, np.int32), "length",
            entropy=drawn.entropy[i : i + 1] if wanted else None,
            keep=np.array([run.made > 0 and drawn.noise[i] > 0]),
        )  # fmt: skip
        run.parts.append(part)
        run.latent, run.made = drawn.latent[i], run.made + 1
        if len(run.parts) < run.request.sampling.max_tokens and run.made <= self.steps:
            run.tell(part)
            return
        run.tell(part)
        if "hidden" in run.request.want:
            run.guess = self._guess(run)
        run.over("eos" if run.made > self.steps else "length")

    def _draw(self, runs: list[_LatentRun]) -> _Drawn:
        rows = [(r.latent, r.made, r.label, self._noise(r)) for r in runs]
        mean, std = self._means(rows)
        self.calls += sum(r.made > 0 for r in runs)
        moved = mean.clone()
        for i, run in enumerate(runs):
            moved[i] = self._guided(run, mean[i])
        noise = torch.from_numpy(np.array([self._normal(r) for r in runs], np.float32))
        x = moved + std[:, None] * noise
        greedy = std.numpy() == 0
        return _Drawn(
            x.numpy(), np.where(greedy, 0.0, [n for *_, n in rows]).astype(np.float32),
            log_density(x, mean, std).numpy(), log_density(x, moved, std).numpy(),
            entropy(std, self.codec.size).numpy(),
        )  # fmt: skip

    def _guided(self, run: _LatentRun, mean: Tensor) -> Tensor:
        """The mean after the run's hook; a hook that fails ends its own run only."""
        if run.request.sampling.hook is None:
            return mean
        try:
            return _checked(run.request.sampling.hook([p.actions[0] for p in run.parts], mean.clone()), mean)
        except EngineError as error:
            run.settle(error)
        except BaseException as error:  # a hook of the user's may raise anything
            run.settle(EngineError(f"The hook raised {type(error).__name__}: {error}"))
        return mean

    def _guess(self, run: _LatentRun) -> np.ndarray[Any, Any]:
        """The clean image that the denoiser expects from here: one call more, none at the end of a path."""
        assert run.latent is not None
        if run.made > self.steps:
            return run.latent
        self.calls += 1
        run.prefilled = 1
        x = torch.from_numpy(run.latent)[None].repeat(ROWS, 1)
        sigma, label = torch.full((ROWS,), self.model.sigmas[run.made - 1]), torch.full((ROWS,), run.label)
        with torch.no_grad():
            return (x - sigma[:, None] * self.model(x, sigma, label))[0].numpy()

    def _noise(self, run: _LatentRun) -> float:
        """The prior is what it is at any temperature."""
        return 1.0 if run.made == 0 else run.request.sampling.temperature

    def _normal(self, run: _LatentRun) -> np.ndarray[Any, Any]:
        s = run.request.sampling
        seed = s.seed if s.seed is not None else int(np.random.default_rng().integers(2**63))
        return np.random.default_rng([seed, s.offset + len(run.parts)]).standard_normal(self.codec.size)

    @torch.no_grad()
    def _means(self, rows: list[tuple[np.ndarray[Any, Any] | None, int, int, float]]) -> tuple[Tensor, Tensor]:
        size, count = self.codec.size, len(rows)
        means, stds = torch.zeros(count, size), torch.ones(count)
        at = [i for i, (latent, *_) in enumerate(rows) if latent is not None]
        for begin in range(0, len(at), ROWS):
            mine = at[begin : begin + ROWS]
            x, index = torch.zeros(ROWS, size), torch.zeros(ROWS, dtype=torch.long)
            label, noise = torch.zeros(ROWS, dtype=torch.long), torch.zeros(ROWS)
            for j, i in enumerate(mine):
                latent, made, label[j], noise[j] = rows[i]  # pyright: ignore[reportArgumentType]
                x[j], index[j] = torch.from_numpy(np.asarray(latent)), made - 1
            sigma = torch.tensor(self.model.sigmas)[index]
            mean, std = step(x, self.model(x, sigma, label), index, noise, self.model.sigmas, self.model.eta)
            means[mine], stds[mine] = mean[: len(mine)], std[: len(mine)]
        return means, stds


def _checked(new: Any, old: Tensor) -> Tensor:
    """What a hook returned, refused where it is no mean."""
    moved = torch.as_tensor(new)
    if moved.shape != old.shape:
        raise EngineError(f"The hook returned shape {tuple(moved.shape)} instead of {tuple(old.shape)}.")
    if not bool(torch.isfinite(moved).all()):
        raise EngineError("The hook returned a mean with NaN or infinity.")
    return moved
