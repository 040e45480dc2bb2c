"""What one session asked and was answered, written into a tree.

A prompt goes down the tree as far as its tokens are there: through given tokens of any session, through sampled ones of
its own session only. Where it leaves, a node is cut; what is left of it becomes a new node. So calls that go on, branch
off or begin anew are branches of one tree, and each sampled token stands in it once for each context it was sampled in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rolltree.engine.protocol import IntArray, Sample
from rolltree.gateway.contexts import ContextPrompt, shared
from rolltree.tree import Node, Role, Tree

RETRIED = "dropped: asked again"
PASSED_OVER = "dropped: another answer was taken"
ACTORS: Mapping[Role, str] = {"prompt": "task", "env": "client", "template": "template"}
NOTHING = "dropped: no token was sampled"
GIVEN_UP = "dropped: nobody waited for it"


@dataclass(repr=False)
class RecordedCall:
    """A call in the tree: where its prompt ends, and what was answered."""

    number: int
    prompt: ContextPrompt
    end: Node
    answers: dict[int, Node] = field(default_factory=dict[int, Node])
    """By the number of the turn."""


@dataclass(repr=False)
class CallRecord:
    """Writes one session into a tree, whose root may be bare and shared with other sessions of the item."""

    tree: Tree
    session: str
    clock: Callable[[], float] = lambda: 0.0
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])
    own: set[int] = field(default_factory=set[int])
    """Nodes that this session sampled."""
    passed: set[int] = field(default_factory=set[int])
    """Those of them that the client never heard: another answer was handed over."""

    def asked(self, prompt: ContextPrompt) -> RecordedCall:
        """Put the prompt of a call into the tree."""
        here, known = self._descend(prompt.ids)
        left = prompt.ids[known:]
        if len(left) or here.role == "policy":
            behind = any(one.role == "policy" for one in self.tree.path(here))
            role: Role = "template" if prompt.changed else "env" if behind else "prompt"
            here = self.tree.extend(here, left, role=role, actor=ACTORS[role], birth="boundary", status="done")
        call = RecordedCall(len(self.calls), prompt, here)
        self.calls.append(call)
        why = f"call {call.number} of {self.session}: {prompt.how}"
        self.tree.event(
            "act", here, why, at=self.clock(), session=self.session, call=call.number, how=prompt.how, shared=known,
            new=len(left), prompt=len(prompt.ids), sampled=prompt.spliced,
        )  # fmt: skip
        if prompt.changed:
            why = "the template writes earlier turns in another way"
            self.tree.event("note", here, why, at=self.clock(), session=self.session, turns=list(prompt.changed))
        return call

    def answered(self, call: RecordedCall, sample: Sample, turn: int) -> Node:
        """Put what was sampled for a call below it, as the session's turn of that number."""
        node = self.tree.extend(
            call.end, sample.actions, role="policy", birth="resample" if call.end.children else "boundary",
            logp=sample.logp, sampling_logprob=sample.sampling_logprob, version=sample.version,
            entropy=sample.entropy, top=sample.top, status="done", finish=sample.finish,
            notes={"session": self.session, "call": call.number, "turn": turn},
        )  # fmt: skip
        if sample.stopped_by:
            node.notes["stopped_by"] = sample.stopped_by
        if not len(node):
            node.usage = NOTHING
        self.own.add(node.id)
        call.answers[turn] = node
        return node

    def handed_over(self, call: RecordedCall, best: Node, turn: int) -> None:
        """Of all answers to a call the client hears one, as the session's turn of that number."""
        others = [node for node in call.answers.values() if node is not best]
        self.passed.update(node.id for node in others)
        for node in others:
            del node.notes["turn"]
        call.answers = {number: node for number, node in call.answers.items() if node is not best} | {turn: best}
        best.notes["turn"] = turn

    def given_up(self, node: Node, why: str = "the client hung up, or the call took too long") -> None:
        """The client did not take this answer; its tokens stay counted."""
        node.usage, node.status = GIVEN_UP, "pruned"
        self.tree.event("prune", node, why, at=self.clock(), session=self.session, tokens=len(node))

    def ends(self) -> list[Node]:
        """The last node of each context of the session: what its outcome is written on.

        Answers that nothing was built on are left out, and say why: those to a call that was made again, and those
        passed over for another answer to the same call.
        """
        used = {span.turn for call in self.calls for span in call.prompt.spans}
        used |= {turn for call in self.calls for turn in call.prompt.changed}
        again = Counter(_key(call) for call in self.calls)
        out: list[Node] = []
        for call in self.calls:
            again[_key(call)] -= 1
            some_used = any(turn in used for turn in call.answers)
            for turn, node in call.answers.items():
                if (
                    node.status != "done"
                    or node.id in self.passed
                    or node.usage == NOTHING
                    or any(one.id in self.own for one in self.tree.walk(node) if one is not node)
                ):
                    continue
                leaves = [leaf for leaf in self.tree.leaves(node) if leaf.status == "done"]
                why = "" if turn in used else PASSED_OVER if some_used else RETRIED if again[_key(call)] else ""
                if why:
                    for leaf in leaves:
                        leaf.usage = why
                        self.tree.event("drop", leaf, why, at=self.clock(), session=self.session, tokens=len(leaf))
                else:
                    out += leaves
        return out

    @property
    def sampled(self) -> int:
        """Tokens of this session that stand in the tree."""
        return sum(len(node) for node in self.tree if node.id in self.own)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _descend(self, ids: IntArray) -> tuple[Node, int]:
        """The node that ends where the prompt leaves the tree, and how many tokens stand up to there."""
        here, at = self.tree.root, 0
        if len(here):
            at = shared(here.actions, ids)
            if at < len(here):
                return self._cut(here, at), at
        while at < len(ids):
            best, most = None, 0
            for child in self.tree.children(here):
                if child.status in ("pruned", "failed") or child.id in self.passed:
                    continue
                if child.role == "policy" and child.id not in self.own:
                    continue
                count = shared(child.actions, ids[at:])
                if count > most:
                    best, most = child, count
            if best is None:
                break
            at += most
            if most < len(best):
                return self._cut(best, most), at
            here = best
        return here, at

    def _cut(self, node: Node, count: int) -> Node:
        head = self.tree.cut(node, count)
        if node.id in self.own:
            self.own.add(head.id)
            head.notes.update({name: node.notes[name] for name in ("session", "call", "turn") if name in node.notes})
        return head


def _key(call: RecordedCall) -> bytes:
    return call.prompt.ids.tobytes()
