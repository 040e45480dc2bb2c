"""Growing one run: reserve, submit, write down, conclude.

A child node stands in the tree from the moment its request is submitted and grows as tokens arrive. Whatever happens
then (an end, a stop, a prune, a failure, a cancellation), what exists is kept and what was paid is counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rolltree.control.ledger import Hold
from rolltree.engine.protocol import Codec, EngineError, Request, Sample, Sampling, stop_text, tells_draws
from rolltree.generate.random import lineage, mix, next_run, tag_rng
from rolltree.generate.recorder import Recorder, latest_rollout
from rolltree.generate.requests import WRITTEN, Continuations, PendingRequest
from rolltree.generate.setting import Gone, HandError, attempt
from rolltree.tree import Birth, Finish, Node, Top
from rolltree.tree.node import PER_ACTION, Array, Kind, join_actions

# Stop strings that straddle two runs.
#
# An engine looks for stop strings in what one request wrote. A string that began in an earlier segment of the same turn
# and ends in this one would be missed, so segments would not stop where an unbroken rollout does. Such a run is
# shortened to the token that completed the string. Stopping is a function of the tokens alone, so the distribution
# stays the policy's; the tokens written after it stay paid and are reported as wasted.


def straddling_stop(codec: Codec, before: Array, written: Array, stops: Sequence[str]) -> tuple[int, str] | None:
    """How many tokens of `written` complete a stop string that began in `before`, and which; None = there is none."""
    longest = max(map(len, stops), default=0)
    if longest < 2 or len(before) == 0:
        return None
    tail = stop_text(codec, before[-longest:], stops)
    for k in range(1, min(longest, len(written)) + 1):
        text = tail + stop_text(codec, written[:k], stops)
        for stop in stops:
            at = text.find(stop, max(0, len(tail) - len(stop) + 1))
            if 0 <= at < len(tail):
                return k, stop
    return None


def shorten(node: Node, k: int) -> None:
    """Keep the first k actions of a leaf."""
    node.actions = node.actions[:k]
    for name in PER_ACTION:
        array = getattr(node, name)
        if array is not None:
            setattr(node, name, array[:k])
    if node.top is not None:
        node.top = node.top.cut(0, k)


_NOTHING = np.zeros(0, np.int32)
_FORKS: frozenset[Birth] = frozenset({"resample", "forced", "restart", "vine"})


def open_requests(hand: Recorder, node: Node, ask: Continuations, *, into: bool = False) -> list[PendingRequest]:
    """Reserve and submit n continuations of a node (`into`: one that writes on in the node itself)."""
    path = hand.tree.path(node)
    prefix = join_actions([x.actions for x in path])
    written = sum(len(x.actions) for x in latest_rollout(path) if x.role in WRITTEN)
    room = min(hand.limit - written, hand.engine.capabilities.max_context - len(prefix))
    if room <= 0:
        _refuse(hand, node, "length", f"{written} policy tokens on a prefix of {len(prefix)}: no room is left")
        return []
    asked = ask.draw.get("max_tokens")
    length = room if asked is None else min(room, asked)
    if length <= 0:
        _refuse(hand, node, "length", f"max_tokens is {asked}")
        return []
    _check_draws(hand, node, prefix, ask)
    pending_requests: list[PendingRequest] = []
    for _ in range(ask.n):
        holds = _reserve(hand, prefix, length, new_leaf=not into and (bool(node.children) or node.parent is None))
        if holds is None:
            why = f"{len(pending_requests)} of {ask.n} continuations could be paid"
            _refuse(hand, node, "budget", why, granted=len(pending_requests), n=ask.n)
            break
        at_limit: Finish | None = "budget" if holds[0].amount < length else "length" if length >= room else None
        if into:
            child, run = node, mix(lineage(hand.tree, node), len(prefix))
        else:
            child, run = _child(hand, node, len(prefix), ask.birth)
        request = _request(hand, prefix, ask, holds[0].amount, run)
        pending_requests.append(PendingRequest(child, request, *holds, at_limit))
        _submit(hand, pending_requests[-1])
    if pending_requests and not into:
        children = [s.node.id for s in pending_requests]
        first = pending_requests[0].node.birth
        kind: Kind = (
            "fork" if first in _FORKS or (len(node.children) > len(pending_requests) and first != "root") else "extend"
        )
        numbers = {**ask.numbers, "children": children, "max_tokens": length, "end": len(prefix)}
        hand.event(kind, node, ask.why or first, **numbers)
    return pending_requests


def may_fork(hand: Recorder, node: Node) -> bool:
    """Whether what follows a node is drawn at any temperature at all; the last step of a denoiser is not."""
    engine = hand.engine
    return not tells_draws(engine) or engine.draws(hand.tree.prefix(node), 1.0)


async def finish_request(hand: Recorder, pending: PendingRequest) -> None:
    """Wait for the whole sample and write it down; failures become a failed node."""

    async def once() -> Sample:
        if pending.run is None and pending.refused is None:
            _submit(hand, pending)
        run, refused = pending.run, pending.refused
        pending.run = pending.refused = None
        if run is None:
            raise refused or EngineError("the engine gave no run for a request")
        return await run

    patience, final = hand.setting.patience, (EngineError,)
    try:
        sample = await attempt(
            "the engine", once, patience, patience.engine_seconds, on_retry=hand.retried(pending.node), final=final
        )
    except Gone as gone:
        fail_request(hand, pending, gone.cause, gone.tries)
        return
    conclude(hand, pending, sample)


def conclude(hand: Recorder, pending: PendingRequest, sample: Sample) -> None:
    """Write down what is new in the whole sample, settle the accounts and say what becomes of the leaf."""
    try:
        _validate(pending, sample)
    except EngineError as error:
        fail_request(hand, pending, error, 1)
        return
    if len(sample.actions) > pending.written:
        write(hand, pending, _tail(sample, pending.written))
    _settle(hand, pending, sample.prefilled)
    node, sample = pending.node, _shortened(hand, pending, sample)
    if sample.hidden is not None:
        hand.setting.hidden[hand.tree.id, node.id] = sample.hidden
    if sample.stopped_by:
        node.notes["stopped_by"] = sample.stopped_by
    if node.status == "open":
        _end(hand, pending, sample)
    elif node.finish is None:
        node.finish = sample.finish
    if hand.setting.on_progress is not None:
        hand.setting.on_progress()


def write(hand: Recorder, pending: PendingRequest, part: Sample) -> None:
    """Append tokens to the node as they come."""
    node = pending.node
    if len(node) or node.status != "open":
        hand.tree.append(
            node,
            part.actions,
            logp=part.logp,
            sampling_logprob=part.sampling_logprob,
            version=part.version,
            entropy=part.entropy,
            top=part.top,
            keep=part.keep,
        )
    else:
        # The usual case, in one go: nothing stands in the node yet.
        node.actions, node.logp, node.sampling_logprob, node.version = (
            part.actions,
            part.logp,
            part.sampling_logprob,
            part.version,
        )
        node.entropy, node.top, node.keep = part.entropy, part.top, part.keep
    pending.written += len(part.actions)


def fail_request(hand: Recorder, pending: PendingRequest, error: Exception, tries: int) -> None:
    """The engine gave up on this node: keep what was streamed, mark it failed, never score it."""
    _settle(hand, pending, 0)
    hand.fail(pending.node, "the engine", error, tries=tries)


async def abandon(hand: Recorder, pending: PendingRequest) -> None:
    """The strategy was cancelled: stop the run, keep what it handed over, and pause the leaf."""
    sample: Sample | None = None
    run = hand.setting.runs.get((hand.tree.id, pending.node.id))
    if run is not None:
        try:
            run.stop("abort")
            async with asyncio.timeout(hand.setting.patience.stop_seconds):
                sample = await run
        except (Exception, asyncio.CancelledError):  # a second cancellation or a dead engine: nothing more to keep
            sample = None
    if sample is not None and sample.finish != "abort":
        conclude(hand, pending, sample)  # it had ended by itself: nothing may be written on behind an end
        return
    if sample is not None and len(sample.actions) <= pending.decoded.amount:
        if len(sample.actions) > pending.written:
            write(hand, pending, _tail(sample, pending.written))
        _settle(hand, pending, sample.prefilled)
    else:
        _settle(hand, pending, 0)
    if pending.node.status == "open":
        pending.node.finish = "abort"
        hand.pause(pending.node, "cancelled")


# -- inside ------------------------------------------------------------------------------------------------------------


def _check_draws(hand: Recorder, node: Node, prefix: Array, ask: Continuations) -> None:
    """Refuse a fork that would be copies of one path: without noise nothing is drawn."""
    temperature = ask.draw.get("temperature", hand.setting.sampling.temperature)
    engine = hand.engine
    if tells_draws(engine):
        copies = (ask.n > 1 or bool(node.children)) and not engine.draws(prefix, temperature)
    else:
        copies = ask.n > 1 and temperature == 0
    if copies:
        raise HandError(
            f"node {node.id} of tree {hand.tree.id!r} cannot fork at action {len(prefix)} with temperature "
            f"{temperature:g}: nothing is drawn there, so all branches would be one; fork where there is noise"
        )


def _request(hand: Recorder, prefix: Array, ask: Continuations, length: int, run: int) -> Request:
    base, draw = hand.setting.sampling, ask.draw
    sampling = Sampling(
        length,
        draw.get("temperature", base.temperature),
        draw.get("top_p", base.top_p),
        draw.get("top_k", base.top_k),
        (*hand.task.stop, *base.stop, *draw.get("stop", ())),
        (*base.stop_ids, *draw.get("stop_ids", ())),
        draw.get("ignore_eos", base.ignore_eos),
        mix(hand.rng.key, "draw", run),
        draw.get("hook", base.hook),
    )
    return Request(prefix, sampling, ask.want, hand.tree.id, draw.get("forks", "maybe"))


def _reserve(hand: Recorder, prefix: Array, length: int, *, new_leaf: bool) -> tuple[Hold, Hold] | None:
    budget = hand.budget
    if budget.seconds_left <= 0:
        return None
    prefilled = budget.reserve("prefilled", len(prefix))
    decoded = None if prefilled is None else budget.reserve("decoded", length, least=1)
    if prefilled is None or decoded is None or (new_leaf and not budget.take("leaves")):
        for hold in (prefilled, decoded):
            if hold is not None:
                hold.release()
        return None
    return decoded, prefilled


def _child(hand: Recorder, node: Node, end: int, birth: Birth | None) -> tuple[Node, int]:
    run = next_run(hand.tree, node, end)
    birth = birth or ("root" if node.parent is None else "boundary")
    child = hand.tree.extend(node, _NOTHING, actor=hand.actor, level=hand.level, birth=birth)
    if node.status == "open" and node.parent is not None:
        node.status = "done"
    return child, tag_rng(child, run)


def _refuse(hand: Recorder, node: Node, finish: Finish, why: str, **numbers: Any) -> None:
    hand.event("budget", node, why, **numbers)
    if node.is_leaf and node.status == "open" and node.parent is not None:
        hand.close(node, finish, why)


def _submit(hand: Recorder, pending: PendingRequest) -> None:
    pending.refused = None
    try:
        pending.run = hand.engine.submit(pending.request)
    except Exception as error:
        pending.refused = error
        return
    hand.setting.runs[hand.tree.id, pending.node.id] = pending.run
    left = hand.budget.seconds_left
    if left < math.inf:
        if pending.timer is not None:
            pending.timer.cancel()
        pending.timer = asyncio.get_running_loop().call_later(left, pending.run.stop, "budget")


def _settle(hand: Recorder, pending: PendingRequest, prefilled: int) -> None:
    if pending.timer is not None:
        pending.timer.cancel()
    hand.setting.runs.pop((hand.tree.id, pending.node.id), None)
    pending.decoded.commit(pending.written)
    pending.prefilled.commit(min(prefilled, pending.prefilled.amount))
    if prefilled > pending.prefilled.amount:
        hand.budget.charge("prefilled", prefilled - pending.prefilled.amount)


def _end(hand: Recorder, pending: PendingRequest, sample: Sample) -> None:
    node, finish = pending.node, sample.finish
    node.finish = finish
    if finish == "length" and pending.at_limit is not None and pending.written == pending.decoded.amount:
        hand.close(
            node, pending.at_limit, "the rollout's limit" if pending.at_limit == "length" else "the budget's last token"
        )
    elif finish == "abort" and not pending.halted:
        hand.pause(node, "the engine ended the run")
    elif finish == "stop" and sample.stopped_by in hand.task.stop:
        if not hand.interactive:
            hand.close(node, finish, f"the answer stands: {sample.stopped_by!r}")
    elif finish in ("stop", "length", "abort") and pending.written:
        pass  # The leaf stays open: a segment ended, and the strategy says what comes next.
    else:
        hand.close(node, finish, "" if pending.written else "the engine had nothing to add")


def _shortened(hand: Recorder, pending: PendingRequest, sample: Sample) -> Sample:
    """Honour a stop string that an earlier run of this turn began (see `stops`)."""
    if max(map(len, pending.request.sampling.stop), default=0) < 2:
        return sample
    kept = len(pending.node) - len(sample.actions)  # what stood in the node before a resumed run wrote on
    turn = hand.turn_actions(pending.node)
    found = straddling_stop(
        hand.codec, turn[: len(turn) - len(sample.actions)], sample.actions, pending.request.sampling.stop
    )
    if found is None or kept < 0:  # a run cut while it was streamed has been looked at by its strategy
        return sample
    k, stop = found
    wasted = len(sample.actions) - k
    if wasted:
        shorten(pending.node, kept + k)
    hand.event("note", pending.node, f"{stop!r} began in an earlier run", wasted=wasted)
    return replace(sample, finish="stop", stopped_by=stop, hidden=None if wasted else sample.hidden)


def _validate(pending: PendingRequest, sample: Sample) -> None:
    made, most = len(sample.actions), pending.request.sampling.max_tokens
    if made > most:
        raise EngineError(f"the engine returned {made} tokens where at most {most} were asked for")
    if not made == len(sample.logp) == len(sample.sampling_logprob) == len(sample.version):
        raise EngineError(
            f"the engine returned {made} tokens with {len(sample.logp)} logp, {len(sample.sampling_logprob)} "
            f"sampling_logprob and {len(sample.version)} versions; there must be one of each per token"
        )


def _tail(sample: Sample, start: int) -> Sample:
    if start == 0:
        return sample
    top = sample.top
    return replace(
        sample,
        actions=sample.actions[start:],
        logp=sample.logp[start:],
        sampling_logprob=sample.sampling_logprob[start:],
        version=sample.version[start:],
        entropy=None if sample.entropy is None else sample.entropy[start:],
        top=None if top is None else Top(top.ids[start:], top.logp[start:]),
        keep=None if sample.keep is None else sample.keep[start:],
    )
