"""What answers a rollout: the environment, the verifier, a judge, and the policy's own opinion of given tokens.

Each call has a time limit and a bounded number of tries; one that stays failed becomes a failed node with the
exception's text in its event. No crash ever turns into a reward of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from rolltree.engine.protocol import EngineError, Scored
from rolltree.engine.texts import actions_of
from rolltree.generate import aside
from rolltree.generate.answers import reply_of, start_of, verdict_of
from rolltree.generate.random import lineage, next_run, tag_rng
from rolltree.generate.recorder import Recorder
from rolltree.generate.setting import Gone, HandError, attempt
from rolltree.policy.quoted import Quoted
from rolltree.task.protocol import Artefact, Observation, ReadsAnswers, Reply, Verdict
from rolltree.task.spoken import Spoken
from rolltree.tree import Birth, Node, Role
from rolltree.tree.node import Array


async def score_forced(hand: Recorder, node: Node) -> None:
    """Record the policy's log-prob of tokens that a method chose; nothing was sampled, so `sampling_logprob` is NaN."""
    prefix = hand.tree.prefix(node)
    scored = await ask_engine(hand, node, prefix, len(prefix) - len(node), frozenset())
    if scored is None:
        return
    node.logp, node.sampling_logprob = scored.logp, np.full(len(node), np.nan, np.float32)
    node.version = np.full(len(node), scored.version, np.int32)
    hand.event("note", node, "log-prob of the forced run under the policy", logp=float(scored.logp.sum()))


async def ask_engine(hand: Recorder, node: Node, tokens: Array, start: int, want: frozenset[str]) -> Scored | None:
    """Score tokens[start:]; None where the budget is at its end (an event) or the engine broken (a failed node)."""
    hold = hand.budget.reserve("prefilled", len(tokens))
    if hold is None:
        hand.event("budget", node, f"no {len(tokens)} prefilled tokens are left to score with")
        return None
    patience = hand.setting.patience
    try:
        scored = await attempt(
            "scoring", lambda: hand.engine.score(tokens, start, want), patience, patience.engine_seconds,
            on_retry=hand.retried(node), final=(EngineError,),
        )  # fmt: skip
    except Gone as gone:
        hand.fail(node, "scoring", gone.cause, tries=gone.tries)
        return None
    finally:
        hold.commit(hold.amount)
    return scored


async def act(hand: Recorder, node: Node) -> Node | None:
    """One environment step from a node (see `Hand.act`)."""
    if not hand.interactive:
        raise HandError(
            f"task {hand.task.name!r} has no environment (max_turns is 0); only extend and verify its nodes"
        )
    state = await restore(hand, node)
    if state is None:
        return None
    text = hand.turn(node)
    reply = await _step(hand, node, state[0], text)
    if isinstance(reply, Reply) and reply.aside is not None:
        reply = await aside.answered(hand, node, reply, _step)
    if reply is None or node.status == "pruned":
        return None
    if node.role == "policy":
        node.finish, node.status = "tool", "done"
    heard, ids = "", node.actions[:0]
    if isinstance(reply, Reply):
        heard = _heard(hand, reply)
        try:
            ids = actions_of(hand.engine, heard, "the environment's answer")
        except Exception as error:  # what no action of this policy stands for
            reply = Gone("the environment", error, 1)
    if isinstance(reply, Gone):
        child = place(hand, node, node.actions[:0], "env", "boundary")
        hand.fail(node if child is None else child, "the environment", reply.cause, tries=reply.tries)
        return child
    child = place(hand, node, ids, "env", "boundary")
    if child is None:
        return None
    if isinstance(heard, str) and len(heard) < len(reply.text):
        child.notes["cut"] = len(reply.text)
        hand.event("note", child, f"the reply was cut to {len(heard)} characters", characters=len(reply.text))
    child.state, child.state_key = reply.state, reply.state_key
    child.scores.update({**reply.parts, "step_reward": reply.reward})
    if reply.failed:
        child.notes["failed"] = True
    hand.event("act", child, "", reward=reply.reward, done=reply.done, failed=reply.failed, tokens=len(child))
    if reply.done:
        hand.close(child, "stop", "the environment ended the episode")
    return child


async def restore(hand: Recorder, node: Node) -> tuple[Any, str | None] | None:
    """The environment's state after a node, and its key; None where the steps to reach it failed.

    The nearest ancestor that holds a state supplies it. Where states were lost (a tree read from disk), the steps since
    are taken again and must give the same observations.
    """
    path = hand.tree.path(node)
    marks = [i for i, n in enumerate(path) if n.role == "env" or n.parent is None]
    # A repaired turn may hold a state of its own: the one its tool is to be asked in.
    last = next((i for i in reversed(range(len(path))) if path[i].state is not None), 0)
    state, key = path[last].state, path[last].state_key
    if state is None:
        try:
            state, key = start_of(hand.task.start(hand.item))
        except Exception as error:
            hand.fail(node, "starting the environment", error)
            return None
        path[0].state, path[0].state_key = state, key
    for i in (i for i in marks if i > last):
        reply = await _step(hand, path[i], state, hand.turn(path[i - 1]))
        if reply is None:
            return None
        if isinstance(reply, Gone):
            hand.fail(node, "replaying the environment", reply.cause, tries=reply.tries)
            return None
        if reply.aside is not None:
            error = HandError("it was asked in contexts of its own, whose answers are not kept over a restart")
            hand.fail(node, "replaying the environment", error)
            return None
        if not np.array_equal(actions_of(hand.engine, _heard(hand, reply), "a replayed answer"), path[i].actions):
            error = HandError(f"on replay node {path[i].id} answered {reply.text!r}, which is not what it said before")
            hand.fail(node, "replaying the environment", error)
            return None
        state, key = path[i].state, path[i].state_key = reply.state, reply.state_key
    return state, key


async def verify(hand: Recorder, node: Node) -> Verdict | None:
    """Judge the path that ends in a leaf (see `Hand.verify`)."""
    if node.status in ("pruned", "failed"):
        raise HandError(
            f"cannot verify node {node.id} of tree {hand.tree.id!r}: it is {node.status}, which is no outcome"
        )
    if hand.item.answer is None:
        if isinstance(hand.task, ReadsAnswers):
            node.notes["answer"] = hand.task.answer_in(hand.item, hand.text(node))
        hand.event("note", node, "the item has no answer, so nothing says what this is worth")
        return None
    state = await restore(hand, node) if hand.interactive else (None, None)
    if state is None:
        return None
    held, patience = state[0], hand.setting.patience
    try:
        verdict = await attempt(
            "the verifier", lambda: verdict_of(hand.task.verify(hand.item, held, hand.text(node))),
            patience, patience.verify_seconds, on_retry=hand.retried(node),
        )  # fmt: skip
    except Gone as gone:
        hand.fail(node, "the verifier", gone.cause, tries=gone.tries)
        return None
    node.scores.update({**verdict.parts, "reward": verdict.score})
    if verdict.solved is not None:
        node.scores["solved"] = float(verdict.solved)
    node.notes["answer"] = verdict.answer
    hand.event("verify", node, verdict.why, reward=verdict.score, parts=dict(verdict.parts))
    return verdict


async def _step(hand: Recorder, node: Node, state: Any, text: Artefact) -> Reply | Gone | None:
    if not hand.budget.take("env_steps"):
        hand.event("budget", node, "no environment step is left")
        if node.is_leaf and node.status == "open" and node.parent is not None:
            hand.close(node, "budget", "no environment step is left")
        return None
    patience = hand.setting.patience
    try:
        return await attempt(
            "the environment", lambda: reply_of(hand.task.step(hand.item, state, text)), patience,
            patience.step_seconds, on_retry=hand.retried(node),
        )  # fmt: skip
    except Gone as gone:
        return gone


def _heard(hand: Recorder, reply: Reply) -> Observation:
    """What of a reply is written down: no context holds a megabyte of text, and tokenising it costs seconds."""
    text, most = reply.text, hand.setting.patience.reply_characters
    if not isinstance(text, str) or len(text) <= most:
        return text
    return text.part(0, most) if isinstance(text, Quoted) else text[:most]


def place(hand: Recorder, node: Node, actions: Array, role: Role, birth: Birth) -> Node | None:
    """Add a run that was given, not sampled; None where it would start a path that the budget does not allow."""
    if (node.children or node.parent is None) and not hand.budget.take("leaves"):
        hand.event("budget", node, f"no leaf is left for a run in role {role!r}", tokens=len(actions))
        return None
    run = next_run(hand.tree, node, sum(len(n) for n in hand.tree.path(node)))
    actor = {"env": "env", "policy": hand.actor}.get(role, role)
    forced = role == "policy"
    child = hand.tree.extend(node, actions, role=role, actor=actor, level=hand.level, birth=birth, forced=forced)
    tag_rng(child, run)
    return child


def asked_anew(hand: Recorder, node: Node, text: str) -> tuple[Node, Array | str]:
    """Where a text that asks again is written, and what: as it is, or as a message of the user in a chat.

    Where nobody has spoken yet it belongs into the prompt's own message, so that another prompt begins as this one
    does. Behind a turn of the policy it is the next message.
    """
    tree, prompt = hand.tree, hand.item.prompt
    if not isinstance(prompt, Spoken):
        return node, text
    codec, so_far = hand.codec, tree.prefix(node)
    if all(one.role == "prompt" for one in tree.path(node)):
        ids = np.asarray(codec.encode(prompt + text), np.int32)
        known = min(aside.shared(so_far, ids), len(ids) - 1)
        return _within(hand, node, known), ids[known:]
    ends, again = prompt.speaker.ends, prompt.speaker.again(text)
    if not ends or (len(so_far) and [int(so_far[-1])] == codec.encode(ends)):
        return node, again
    return node, Quoted(ends + again, tuple((a + len(ends), b + len(ends)) for a, b in again.data))


def _within(hand: Recorder, node: Node, known: int) -> Node:
    """The node that ends after the first tokens of a prompt; streams and scores stay with the place they belong to."""
    tree, start = hand.tree, 0
    for here in tree.path(node):
        if known <= start + len(here):
            if known == start + len(here):
                return here
            first, run = tree.root, lineage(tree, here)
            head = tree.cut(here, known - start) if known > start else tree.open_root()
            tag_rng(here, run)
            if tree.root is not first:
                head.scores.update(first.scores)
            else:
                tag_rng(head, run)
            return head
        start += len(here)
    return node


def behind_silence(path: Sequence[Node]) -> Node:
    """The first node, or the last of the answers of no tokens that follow it and are themselves followed by others."""
    return [path[0], *takewhile(lambda n: n.role == "env" and not len(n), path[1:-1])][-1]
