"""What continues an interrupted request is what it would have become."""

import asyncio

import numpy as np
import pytest

from rolltree.cluster.resume import continuation, ending, straddling
from rolltree.engine.protocol import Request, Sample, Sampling
from rolltree.testing.tiny import CODEC, STOP, tiny_engine

PREFIX = np.array([3, 1, 4], np.int32)


def whole_and_rest(request: Request, k: int) -> tuple[Sample, Sample]:
    async def main() -> tuple[Sample, Sample]:
        engine = tiny_engine()
        whole = await engine.submit(request)
        return whole, await engine.submit(continuation(request, whole.actions[:k], offset=True))

    return asyncio.run(main())


class Forbid:
    """Forbids every token that was used before: depends on all that was generated."""

    def __call__(self, generated, logits):
        logits[list(generated)] = -np.inf
        return logits


@pytest.mark.parametrize("k", [1, 4, 9])
@pytest.mark.parametrize("hook", [None, Forbid()], ids=["plain", "hook"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_rest_is_what_is_missing(k: int, hook: Forbid | None, temperature: float) -> None:
    if hook is None and temperature == 0:
        pytest.skip("the most likely letter for ever")
    request = Request(PREFIX, Sampling(max_tokens=12, ignore_eos=True, seed=9, hook=hook, temperature=temperature))
    whole, rest = whole_and_rest(request, k)
    assert np.array_equal(rest.actions, whole.actions[k:])
    assert rest.finish == whole.finish == "length"


def test_without_the_feature_the_rest_has_a_stream_of_its_own() -> None:
    request = Request(PREFIX, Sampling(max_tokens=12, seed=9))
    made = np.array([1, 2], np.int32)
    rest = continuation(request, made, offset=False)
    assert rest.sampling.seed != 9
    assert rest.sampling.offset == 0
    assert continuation(request, made, offset=False).sampling.seed == rest.sampling.seed
    assert continuation(request, made[:1], offset=False).sampling.seed != rest.sampling.seed


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_that_has_ended_is_seen_to_have_ended(seed: int) -> None:
    async def main() -> None:
        engine = tiny_engine()
        s = Sampling(max_tokens=6, seed=seed, stop=("!", "ab"))
        whole = await engine.submit(Request(PREFIX, s))
        for k in range(len(whole.actions)):
            assert ending(Request(PREFIX, s), CODEC, whole.actions[:k], 4096) is None
        assert ending(Request(PREFIX, s), CODEC, whole.actions, 4096) == (whole.finish, whole.stopped_by)
        ids = Sampling(max_tokens=6, seed=seed, stop_ids=(STOP,))
        whole = await engine.submit(Request(PREFIX, ids))
        assert ending(Request(PREFIX, ids), CODEC, whole.actions, 4096) == (whole.finish, "")

    asyncio.run(main())


def test_a_full_context_is_an_end() -> None:
    request = Request(PREFIX, Sampling(max_tokens=50))
    assert ending(request, CODEC, np.array([1, 2], np.int32), 5) == ("length", "")
    assert ending(request, CODEC, np.array([1], np.int32), 5) is None


@pytest.mark.parametrize(
    ("text", "boundary", "seen", "found"),
    [
        ("xxabcyy", 4, 4, (5, "abc")),
        ("xxabcyy", 3, 3, (5, "abc")),
        ("xxabcyy", 3, 4, (5, "abc")),
        ("xxaxcyy", 3, 3, None),
        ("xxxxxxxxxabc", 3, 3, None),  # behind the boundary the engine sees it by itself
        ("xxabcyy", 0, 0, None),
    ],
)
def test_a_stop_string_over_the_boundary_is_found(
    text: str, boundary: int, seen: int, found: tuple[int, str] | None
) -> None:
    made = np.array(CODEC.encode(text), np.int32)
    assert straddling(("abc", "q"), CODEC, made, boundary, seen) == found
