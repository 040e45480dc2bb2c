"""What every engine must do. Run these checks on an engine of your own: each makes a fresh one and closes it.

    @pytest.mark.parametrize("name", ENGINE_CHECKS)
    def test_my_engine(name):
        ENGINE_CHECKS[name](make_engine)

Sampling distributions are tested against the engine's own `score`, so an engine needs a vocabulary of at most a few
hundred tokens here (a tiny model, a table); what an engine does not claim in its capabilities is not asked of it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.engine.protocol import Codec, Engine, EngineError, Request, Sample, Sampling, token_codec

MAX_VOCAB = 512
"""Largest vocabulary whose distribution is enumerated."""


@dataclass(frozen=True, slots=True)
class EngineProbe:
    """A fresh engine, a prefix it can extend, and how to ask it."""

    engine: Engine
    prefix: NDArray[np.int32]

    @property
    def codec(self) -> Codec:
        """Its tokenizer."""
        return token_codec(self.engine, "this contract")

    async def sample(self, want: frozenset[str] = frozenset(), **knobs: Any) -> Sample:
        """One sample of the prefix; knobs are those of `Sampling`."""
        return await self.engine.submit(Request(self.prefix, Sampling(**knobs), want))

    async def distribution(self, prefix: Sequence[int] | NDArray[np.int32]) -> NDArray[np.float64]:
        """Log-probs of every next token after a prefix, by scoring each."""
        at = np.asarray(prefix, np.int32)
        jobs = [self.engine.score(np.append(at, v), len(at)) for v in range(self.codec.vocab_size)]
        return np.array([float(s.logp[0]) for s in await asyncio.gather(*jobs)])


Check = Callable[[EngineProbe], Coroutine[Any, Any, None]]


def run_check(check: Check, make_engine: Callable[[], Engine], prefix: Sequence[int] | None = None) -> None:
    """Run one check on a fresh engine and close it; a broken promise raises AssertionError naming it."""

    async def main() -> None:
        engine = make_engine()
        codec = token_codec(engine, "this contract")
        start = prefix or [i for i in range(min(8, codec.vocab_size)) if i != codec.eos_id][:3]
        try:
            await check(EngineProbe(engine, np.asarray(start, np.int32)))
        finally:
            await engine.close()

    asyncio.run(main())


def hold(promise: bool | np.bool_, sentence: str) -> None:
    """Raise the sentence where a promise is broken."""
    if not promise:
        raise AssertionError(sentence)


def same(a: Sample, b: Sample) -> bool:
    """Whether two samples are the same tokens with the same ending."""
    return np.array_equal(a.actions, b.actions) and a.finish == b.finish and a.stopped_by == b.stopped_by


def _close(a: NDArray[np.floating], b: NDArray[np.floating], tolerance: float = 2e-4) -> bool:
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance))


def misfit(counts: NDArray[np.int64], sampling_logprob: NDArray[np.float64]) -> float:
    """Chi-square misfit of counts to a distribution, in standard deviations (Wilson–Hilferty); rare tokens are pooled.

    Infinite where a token of probability zero was drawn.
    """
    expected = np.exp(sampling_logprob) * counts.sum()
    if counts[expected == 0].any():
        return float("inf")
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    keep = expected > 1e-9
    observed, expected = observed[keep], expected[keep]
    dof = len(expected) - 1
    if dof < 1:
        return 0.0
    ratio = float((((observed - expected) ** 2) / expected).sum()) / dof
    spread = 2 / (9 * dof)
    return float((np.cbrt(ratio) - (1 - spread)) / np.sqrt(spread))


def truncated(logp: NDArray[np.float64], temperature: float, top_k: int, top_p: float) -> NDArray[np.float64]:
    """The distribution after temperature, then top-k, then top-p (the smallest set reaching it), as log-probs."""
    scaled = logp / temperature
    order = np.argsort(-scaled, kind="stable")
    keep = np.zeros(len(logp), np.bool_)
    keep[order[: top_k or len(logp)]] = True
    mass = np.exp(scaled - scaled.max()) * keep
    mass /= mass.sum()
    before = np.cumsum(mass[order]) - mass[order]
    keep[order[(before >= top_p) & (np.arange(len(logp)) > 0)]] = False
    mass = mass * keep
    with np.errstate(divide="ignore"):
        return np.log(mass / mass.sum())


async def sampling_follows_the_distribution(ask: EngineProbe) -> None:
    """First tokens of many samples fit the scored distribution under temperature, top-k and top-p; sampling_logprob is
    the distribution's."""
    if not ask.engine.capabilities.samples_exactly or ask.codec.vocab_size > MAX_VOCAB:
        return
    logp = await ask.distribution(ask.prefix)
    hold(abs(np.exp(logp).sum() - 1) < 1e-3, "The scored probabilities of all next tokens do not add up to 1.")
    for t, k, p in ((1.0, 0, 1.0), (0.6, 0, 1.0), (1.2, 5, 1.0), (1.3, 6, 0.7)):
        runs = [
            ask.sample(max_tokens=1, ignore_eos=True, temperature=t, top_k=k, top_p=p, seed=seed)
            for seed in range(1000)
        ]
        samples = await asyncio.gather(*runs)
        distribution = truncated(logp, t, k, p)
        first = np.array([int(s.actions[0]) for s in samples])
        setting = f"temperature {t}, top_k {k}, top_p {p}"
        z = misfit(np.bincount(first, minlength=len(logp)), distribution)
        hold(
            z < 4.5,
            f"Samples do not follow the distribution under {setting}: chi-square {z:.1f} standard deviations off.",
        )
        sampling_logprob = np.array([float(s.sampling_logprob[0]) for s in samples])
        hold(
            _close(sampling_logprob, distribution[first], 1e-3),
            f"sampling_logprob is not the log-prob of the sampling distribution under {setting}.",
        )


async def logp_is_what_score_says(ask: EngineProbe) -> None:
    """logp is the full softmax at temperature 1 whatever the sampling was; at temperature 1 sampling_logprob equals
    it."""
    for t in (1.0, 0.5):
        s = await ask.sample(max_tokens=12, ignore_eos=True, temperature=t, seed=3)
        scored = await ask.engine.score(np.concatenate([ask.prefix, s.actions]), len(ask.prefix))
        hold(_close(s.logp, scored.logp), f"logp of a sample at temperature {t} is not what score gives.")
        hold(
            t != 1.0 or _close(s.sampling_logprob, s.logp),
            "At temperature 1 without truncation sampling_logprob differs from logp.",
        )
        hold(
            len(s.logp) == len(s.sampling_logprob) == len(s.version) == len(s.actions),
            "Arrays of a sample differ in length.",
        )


async def greedy_takes_the_best(ask: EngineProbe) -> None:
    """Temperature 0 takes the argmax at every step, and its sampling_logprob is NaN."""
    if "greedy" not in ask.engine.capabilities.features or ask.codec.vocab_size > MAX_VOCAB:
        return
    s = await ask.sample(max_tokens=4, temperature=0.0, ignore_eos=True)
    hold(bool(np.isnan(s.sampling_logprob).all()), "sampling_logprob of a greedy sample is not NaN.")
    for i, action in enumerate(s.actions.tolist()):
        distribution = await ask.distribution(np.concatenate([ask.prefix, s.actions[:i]]))
        hold(
            distribution[action] >= distribution.max() - 1e-5, f"Greedy token {i} is {action}, not the most likely one."
        )


async def seeds_decide(ask: EngineProbe) -> None:
    """The same seed gives the same sample alone and in company; different seeds differ somewhere."""
    alone = await ask.sample(max_tokens=16, ignore_eos=True, seed=11)
    crowd = await asyncio.gather(*(ask.sample(max_tokens=16, ignore_eos=True, seed=s) for s in range(24)))
    hold(same(alone, crowd[11]), "A seeded sample changes with what else is in the batch.")
    hold(len({s.actions.tobytes() for s in crowd}) > 1, "Different seeds all give the same sample.")


async def continuations_stay_in_the_stream(ask: EngineProbe) -> None:
    """A request for the rest of a sample, past the draws already made, gives the tokens the sample would have had."""
    if "offset" not in ask.engine.capabilities.features:
        return
    whole = await ask.sample(max_tokens=12, ignore_eos=True, seed=5)
    for k in (1, 5, 11):
        rest = Sampling(max_tokens=12 - k, ignore_eos=True, seed=5, offset=k)
        got = await ask.engine.submit(Request(np.append(ask.prefix, whole.actions[:k]), rest))
        hold(np.array_equal(got.actions, whole.actions[k:]), f"What continues a sample at {k} draws something else.")


async def stop_ids_end_and_belong(ask: EngineProbe) -> None:
    """A stop id ends the sample and is its last token; eos does so unless ignored."""
    free = await ask.sample(max_tokens=16, ignore_eos=True, seed=5)
    hold(len(free.actions) == 16 and free.finish == "length", "A sample with eos ignored ended before its limit.")
    target = int(free.actions[7])
    first = free.actions.tolist().index(target)
    got = await ask.sample(max_tokens=16, ignore_eos=True, seed=5, stop_ids=(target,))
    hold(got.finish == "stop", f"A stop id gave finish {got.finish!r} instead of 'stop'.")
    hold(np.array_equal(got.actions, free.actions[: first + 1]), "A stop id does not end the sample with itself.")
    eos = await asyncio.gather(*(ask.sample(max_tokens=64, seed=s) for s in range(32)))
    for s in eos:
        at = np.flatnonzero(s.actions == ask.codec.eos_id)
        wanted = [len(s.actions) - 1] if s.finish == "eos" else []
        hold(at.tolist() == wanted, "eos stands elsewhere than at the end of a sample that it ended.")


async def stop_strings_end_and_belong(ask: EngineProbe) -> None:
    """A sample ends with the first token after which its text contains a stop string, which it names."""
    codec = ask.codec
    free = await ask.sample(max_tokens=24, ignore_eos=True, seed=7)
    text = codec.decode(free.actions)
    if len(text) < 2:
        return
    for stop in {text[len(text) // 2 : len(text) // 2 + 2], text[len(text) // 3]}:
        got = await ask.sample(max_tokens=24, ignore_eos=True, seed=7, stop=("\u2603\u2603", stop))
        end = next(i for i in range(1, len(free.actions) + 1) if stop in codec.decode(free.actions[:i]))
        hold((got.finish, got.stopped_by) == ("stop", stop), f"Stop string {stop!r} did not end the sample by name.")
        hold(np.array_equal(got.actions, free.actions[:end]), f"Stop string {stop!r} did not end the sample in time.")


async def stopping_keeps_what_exists(ask: EngineProbe) -> None:
    """stop() keeps every token already streamed, also none; increments add up to the sample; it is idempotent."""
    features = ask.engine.capabilities.features
    if "abort" not in features:
        return
    knobs = Sampling(max_tokens=64, ignore_eos=True, seed=1)
    run = ask.engine.submit(Request(ask.prefix, knobs))
    run.stop()
    run.stop()
    none = await run
    hold(none.finish == "abort" or len(none.actions) == 64, "A run stopped at once did not end as aborted.")
    hold(len(none.logp) == len(none.actions), "A run stopped at once has arrays of different length.")
    if "stream" not in features:
        return
    whole = await ask.engine.submit(Request(ask.prefix, knobs))
    run, parts = ask.engine.submit(Request(ask.prefix, knobs)), list[Sample]()
    async for part in run:
        parts.append(part)
        if sum(len(p.actions) for p in parts) >= 5:
            run.stop("budget")
    got = await run
    run.stop()
    joined = np.concatenate([p.actions for p in parts])
    hold(np.array_equal(joined, got.actions), "The increments do not add up to the awaited sample.")
    hold(
        np.array_equal(whole.actions[: len(got.actions)], got.actions), "A stopped sample is not a prefix of the whole."
    )
    hold(got.finish == "budget" or len(got.actions) == 64, "stop('budget') did not set the finish.")


async def pausing_only_delays(ask: EngineProbe) -> None:
    """A run submitted during a pause waits and then gives the same sample."""
    free = await ask.sample(max_tokens=16, ignore_eos=True, seed=2)
    await ask.engine.pause()
    run = ask.engine.submit(Request(ask.prefix, Sampling(max_tokens=16, ignore_eos=True, seed=2)))
    await ask.engine.resume()
    hold(same(await run, free), "A pause changed a seeded sample.")


async def extras_describe_the_policy(ask: EngineProbe) -> None:
    """Entropy and alternatives are those of the full distribution at temperature 1, whatever the sampling was."""
    able = ask.engine.capabilities
    if ask.codec.vocab_size > MAX_VOCAB:
        return
    distribution = await ask.distribution(ask.prefix)
    if "entropy:full" in able.features:
        s = await ask.sample(frozenset({"entropy"}), max_tokens=1, ignore_eos=True, temperature=0.5, seed=1)
        truth = float(-(np.exp(distribution) * distribution).sum())
        hold(s.entropy is not None and abs(float(s.entropy[0]) - truth) < 1e-3, "Entropy is not that of the policy.")
    if "top" in able.features:
        k = min(3, able.max_top)
        s = await ask.sample(frozenset({f"top:{k}"}), max_tokens=1, ignore_eos=True, temperature=0.5, seed=1)
        best = np.sort(distribution)[::-1][:k]
        hold(s.top is not None and _close(s.top.logp[0], best, 1e-3), "Alternatives are not the policy's most likely.")
        hold(
            s.top is not None and _close(distribution[s.top.ids[0]], best, 1e-3),
            "Ids and log-probs of alternatives disagree.",
        )


async def what_cannot_fit_is_refused(ask: EngineProbe) -> None:
    """A prefix beyond the context raises EngineError at submit, naming the length; later requests still work."""
    limit = ask.engine.capabilities.max_context
    long = np.resize(ask.prefix, limit + 1)
    try:
        ask.engine.submit(Request(long, Sampling(max_tokens=1)))
    except EngineError as error:
        hold(str(limit + 1) in str(error), f"The refusal does not name the length {limit + 1}: {error}")
    else:
        raise AssertionError(f"A prefix of {limit + 1} tokens was accepted by a context of {limit}.")
    hold(len((await ask.sample(max_tokens=2, ignore_eos=True)).actions) == 2, "A refusal broke the engine.")


async def versions_are_reported(ask: EngineProbe) -> None:
    """Every token carries the version of the weights that wrote it."""
    s = await ask.sample(max_tokens=4, ignore_eos=True)
    hold(bool((s.version == ask.engine.version).all()), "Tokens do not carry the engine's version.")


CHECKS: tuple[Check, ...] = (
    sampling_follows_the_distribution,
    logp_is_what_score_says,
    greedy_takes_the_best,
    seeds_decide,
    continuations_stay_in_the_stream,
    stop_ids_end_and_belong,
    stop_strings_end_and_belong,
    stopping_keeps_what_exists,
    pausing_only_delays,
    extras_describe_the_policy,
    what_cannot_fit_is_refused,
    versions_are_reported,
)
"""What an engine promises; each is awaited with an `EngineProbe`."""

ENGINE_CHECKS: dict[str, Callable[..., None]] = {
    getattr(check, "__name__", ""): functools.partial(run_check, check) for check in CHECKS
}
"""Checks by name; each takes what makes an engine, and the prefix to extend if the default ids will not do."""


def check_engine(make_engine: Callable[[], Engine], prefix: Sequence[int] | None = None) -> None:
    """Run every check, each on a fresh engine."""
    for check in ENGINE_CHECKS.values():
        check(make_engine, prefix)


async def check_running(engine: Engine, prefix: Sequence[int], skip: Sequence[str] = ()) -> None:
    """Run every check, but for those named, on an engine that is up: for engines that take long to start."""
    for name, check in zip(ENGINE_CHECKS, CHECKS, strict=True):
        if name not in skip:
            await check(EngineProbe(engine, np.asarray(prefix, np.int32)))
