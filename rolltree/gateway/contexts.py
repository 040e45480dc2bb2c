"""Which tokens a call stands for: what the policy wrote before comes back as the very ids it sampled.

A client sends text. Encoded again, the policy's own words need not give the tokens it sampled, and a log-prob recorded
for one cannot be trained on the other. So nothing the policy wrote is encoded again: a call is matched with the calls
before it, and goes on from the tokens of the one that reaches farthest. What the template writes around turns is
encoded; where it writes an earlier turn in another way (a thought left out), the call leaves the earlier context there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rolltree.engine.protocol import Codec, IntArray, exact_text
from rolltree.gateway.ask import Ask, Message, named, same
from rolltree.gateway.how import ConversationHistory, How
from rolltree.gateway.template import Template, rendered
from rolltree.tree.node import Array


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of a prompt that the policy sampled in an earlier turn; `turn` is its number."""

    start: int
    stop: int
    turn: int


@dataclass(frozen=True, slots=True)
class ContextPrompt:
    """A call as tokens: which of them were sampled before, and which earlier turns were written in another way."""

    ask: Ask
    text: str
    """As the template writes it."""
    ids: IntArray
    spans: tuple[Span, ...] = ()
    changed: tuple[int, ...] = ()
    """Turns the template writes differently now, so that their tokens are not part of this context as sampled."""
    names: tuple[str, ...] = ()
    """Of the beginnings of its messages."""
    how: How = "begins"
    """How it stands to the calls before it."""

    @property
    def spliced(self) -> int:
        """Tokens of it that the policy sampled before."""
        return sum(span.stop - span.start for span in self.spans)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the policy answered to a call."""

    number: int
    prompt: ContextPrompt
    ids: IntArray
    """As sampled, a stop string and an end token included."""
    said: str
    """The text the client got."""
    message: Message | None = None
    """The message the client got; None for completions."""

    @property
    def place(self) -> int:
        """Which message of a conversation it is."""
        return len(self.prompt.ask.messages or ())


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a call goes on: what stands before, how much of the call's text and messages that is, and what follows."""

    ids: IntArray
    spans: tuple[Span, ...]
    changed: tuple[int, ...]
    reach: int
    covered: int
    rest: str


@dataclass(repr=False)
class Contexts:
    """All that was asked and said in one session. `encode` refuses what is too long; see `tokens_of`."""

    codec: Codec
    template: Template
    encode: Callable[[str], Array]
    turns: list[Turn] = field(default_factory=list[Turn])
    _by_key: dict[str, int] = field(default_factory=dict[str, int])
    _history: ConversationHistory = field(default_factory=ConversationHistory)

    def place(self, ask: Ask) -> ContextPrompt:
        """The tokens of a call."""
        names = tuple(ask.names())
        known = self._known(names)
        prompt = self._placed(ask, known)
        return replace(prompt, names=names, how=self._history.how(ask, names, self._last(prompt, known)))

    def _placed(self, ask: Ask, known: Sequence[Turn]) -> ContextPrompt:
        """`known` are turns whose whole conversation this call repeats, the shortest first; of equal ones the last."""
        if ask.ids is not None:
            ids = np.asarray(ask.ids, np.int32)
            return ContextPrompt(ask, "", ids, tuple(self._sampled_in(ids)))
        text = rendered(self.template, ask)
        start = self._behind_text(text) if ask.messages is None else self._behind_turn(ask, text, known)
        start = self._behind_prompt(ask, text, -1 if start is None else start.reach) or start
        if start is None:
            start = _Start(np.zeros(0, np.int32), (), (), 0, 0, text)
        return self._filled(ask, text, start, [turn for turn in known if turn.place >= start.covered])

    def said(self, prompt: ContextPrompt, ids: Array, text: str, message: Message | None = None) -> Turn:
        """Keep what the policy answered: `text` and `message` as the client got them."""
        turn = Turn(len(self.turns), prompt, np.asarray(ids, np.int32), text, message)
        self.turns.append(turn)
        names = prompt.names
        self._history.answered(prompt.ask, names, self._last(prompt, self._known(names)))
        if message is not None and names:
            name = named(names[-1], same(message))
            self._history.begun(name)
            self._by_key[name] = turn.number
        return turn

    # -- where a call goes on --------------------------------------------------------------------------------------

    def _known(self, names: Sequence[str]) -> list[Turn]:
        """Turns whose whole conversation is one of these."""
        return [self.turns[self._by_key[name]] for name in names if name in self._by_key]

    def _last(self, prompt: ContextPrompt, known: Sequence[Turn]) -> int | None:
        """The turn that a call goes on behind."""
        if known:
            return known[-1].number
        return prompt.spans[-1].turn if prompt.ask.messages is None and prompt.spans else None

    def _behind_turn(self, ask: Ask, text: str, known: Sequence[Turn]) -> _Start | None:
        """Behind the last turn that the template writes as it did when that was the last message."""
        for turn in reversed(known):
            if not text.startswith(turn.prompt.text) or ask.messages is None:
                continue
            ends, closing = self.template.ends, ""
            ended = self.template.render(ask.messages[: turn.place + 1], ask.tools, begin=False)
            if not (text.startswith(ended) and ended.startswith(turn.prompt.text)):
                continue
            if ends and ends in ended[len(turn.prompt.text) :]:
                closing = ended.rpartition(ends)[2]
                if not exact_text(self.codec, turn.ids).endswith(ends):
                    closing = ends + closing  # it was cut off before it ended
            return _behind(turn, len(turn.ids), len(ended), text, closing)
        return None

    def _behind_text(self, text: str) -> _Start | None:
        """Behind the answer to a completion that a text repeats, as far as it repeats it."""
        found: _Start | None = None
        for turn in self.turns:
            if turn.prompt.ask.text is None or not text.startswith(turn.prompt.text):
                continue
            for said in (exact_text(self.codec, turn.ids), self.codec.decode(turn.ids), turn.said):
                reach, count = len(turn.prompt.text + said), self._tokens_of(turn.ids, said)
                longer = found is None or reach >= found.reach
                if said and count is not None and longer and text.startswith(said, len(turn.prompt.text)):
                    found = _behind(turn, count, reach, text)
                    break
        return found

    def _behind_prompt(self, ask: Ask, text: str, least: int) -> _Start | None:
        """At the end of an earlier prompt, where that reaches farther than `least`."""
        found: ContextPrompt | None = None
        for turn in self.turns:
            known = turn.prompt
            same = known.ask.ids is None and (known.ask.text is None) == (ask.text is None)
            if same and len(known.text) > least and text.startswith(known.text):
                found, least = known, len(known.text)
        if found is None:
            return None
        covered = len(found.ask.messages or ())
        return _Start(found.ids, found.spans, found.changed, least, covered, text[least:])

    # -- what is new -----------------------------------------------------------------------------------------------

    def _filled(self, ask: Ask, text: str, start: _Start, later: Sequence[Turn]) -> ContextPrompt:
        """The rest as tokens; turns in it that the template changed keep the ids of what it left of them."""
        parts: list[Array] = [start.ids]
        spans, changed = list(start.spans), list(start.changed)
        length, rest, behind_prompt = len(start.ids), start.rest, start.reach > 0
        for turn in later:
            changed.append(turn.number)
            found = self._left_of(turn, rest, at_once=behind_prompt)
            if found is None:
                continue
            place, ids, written = found
            before = self._encoded(rest[:place])
            length += len(before)
            spans.append(Span(length, length + len(ids), turn.number))
            parts += [before, ids]
            length, rest, behind_prompt = length + len(ids), rest[place + len(written) :], False
        parts.append(self._encoded(rest))
        return ContextPrompt(ask, text, np.concatenate(parts).astype(np.int32), tuple(spans), tuple(changed))

    def _left_of(self, turn: Turn, rest: str, *, at_once: bool) -> tuple[int, IntArray, str] | None:
        """Where in a text a changed turn stands, with the last tokens of it that are still written so."""
        whole, begins, ends = exact_text(self.codec, turn.ids), self.template.begins, self.template.ends
        if not begins or not ends:
            return None
        for place in [*([0] if at_once else []), *(at + len(begins) for at in _found(rest, begins))]:
            body, end, _ = rest[place:].partition(ends)
            text = body + (end if whole.endswith(ends) else "")
            if not body or not whole.endswith(text):
                continue
            count = self._tokens_of(turn.ids, whole[: len(whole) - len(text)])
            if count is not None and exact_text(self.codec, turn.ids[count:]) == text:
                return place, turn.ids[count:], text
        return None

    def _sampled_in(self, ids: IntArray) -> Iterator[Span]:
        """Turns that stand in a prompt given as tokens, as far as it repeats them."""
        found: dict[int, Span] = {}
        for turn in self.turns:
            start = len(turn.prompt.ids)
            if start < len(ids) and np.array_equal(ids[:start], turn.prompt.ids):
                count = shared(turn.ids, ids[start:])
                if count and (start not in found or found[start].stop <= start + count):
                    found[start] = Span(start, start + count, turn.number)
        yield from (found[start] for start in sorted(found))

    def _tokens_of(self, ids: IntArray, text: str) -> int | None:
        """How many of the first tokens spell a text; None where it ends inside of one."""
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if len(exact_text(self.codec, ids[:middle])) < len(text):
                low = middle + 1
            else:
                high = middle
        return low if exact_text(self.codec, ids[:low]) == text else None

    def _encoded(self, text: str) -> Array:
        return np.asarray(self.encode(text) if text else [], np.int32)


def shared(one: Array, other: Array) -> int:
    """With how many equal tokens two runs begin."""
    count = min(len(one), len(other))
    differs = np.flatnonzero(one[:count] != other[:count])
    return int(differs[0]) if len(differs) else count


def _behind(turn: Turn, count: int, reach: int, text: str, closing: str = "") -> _Start:
    """Behind the first tokens of a turn, which stand for the call's text up to `reach`."""
    before = turn.prompt
    span = Span(len(before.ids), len(before.ids) + count, turn.number)
    ids = np.concatenate([before.ids, turn.ids[:count]])
    return _Start(ids, (*before.spans, span), before.changed, reach, turn.place + 1, closing + text[reach:])


def _found(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))
