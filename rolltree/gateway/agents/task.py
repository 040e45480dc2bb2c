"""An agent that is a program of its own as a task: `agent:COMMAND?task=NAME`.

Here the agent is the environment: what it asks is what the policy reads, and each turn of a rollout is the answer to
one of its calls. So strategies, budgets, credits and schedules know nothing of agents. A fork starts the agent again,
answers it from the record up to the fork, and must hear the same again; else the fork fails as not reproducible. A
call that does not go on in the rollout's own conversation is a context of its own (`Reply.aside`).

How the policy is sampled is the run's to say: an agent's temperature and limits are not taken over. Its stop strings
are, in so far as the task stops there too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.gateway.agents.door import Door, WaitingCall, serving_door
from rolltree.gateway.agents.letters import Characters, characters
from rolltree.gateway.agents.limits import PROCESSES, SCRATCH, AgentLimits
from rolltree.gateway.agents.outside import Outside
from rolltree.gateway.agents.running import AgentRun, Ended, agent_of
from rolltree.gateway.answer import answer_of
from rolltree.gateway.contexts import ContextPrompt, Contexts
from rolltree.gateway.template import Plain, Template, template_of
from rolltree.registry import raised
from rolltree.task.data.chat import specials
from rolltree.task.data.functions import MESSAGES
from rolltree.task.foreign.episode import Episode, Foreign, Heard, Stable, unsaid
from rolltree.task.foreign.threads import awaited
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Said, Split, Task, Verdict
from rolltree.task.registry import load_task

States = Literal["said", "last"]
TURNS, TOKENS = 32, 2048
"""Calls and policy tokens of a rollout, where the task has no word on them."""


@dataclass(eq=False)
class Talk:
    """One run of the agent with what was asked and answered in it."""

    run: AgentRun
    outside: Outside = field(default_factory=Outside)
    contexts: Contexts = field(init=False)
    prompt: ContextPrompt = field(init=False)
    main: str = ""
    """The rollout's own conversation, up to and with the policy's last words in it."""
    apart: bool = False
    """Whether the call that waits stands in a context of its own."""
    recorded: deque[str] = field(default_factory=deque[str])
    """What was heard after each turn, where the episode is played again."""
    ended: Ended | None = None
    gained: float = 0.0
    """Rewards of calls since the rollout's own conversation last went on."""

    def close(self) -> None:
        """Give the agent up."""
        self.run.close()


class _Ending(Stable):
    """Agents that nobody needs are ended, not kept."""

    def back(self, env: Any) -> None:
        env.close()


class AgentTask(Foreign):
    """Items and verifier of another task, played by an agent."""

    def __init__(
        self, agent: str | Callable[..., Any], *, task: str | Task = "countdown", level: int | None = None,
        stop: str | Sequence[str] = (), max_turns: int = 0, max_tokens: int = 0, seconds: float = 50.0,
        states: States = "said", total_seconds: float = 0.0, cpu_seconds: int = 0, memory: int = 0,
        output: int = 1_000_000, sandbox: bool = False, reads: str | Sequence[str] = (), processes: int = PROCESSES,
        scratch: int = SCRATCH, ignore: str | Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`agent` is a command, module:function or file.py:function. `stop` are strings that end a turn (of a policy
        without chat template; the task's own when left out). `seconds` is how long the agent may be silent. A state is
        named by all that was "said" or by the "last" message of a call, unless the call names it (metadata.state).
        Fields of calls named by `ignore` are taken for not sent. The others are the limits of its processes
        (`AgentLimits`)."""
        if states not in ("said", "last"):
            raise TaskError(f"states={states!r} names no states of an agent; give 'said' or 'last'")
        bounds: dict[str, Any] = {
            "total_seconds": total_seconds, "cpu_seconds": cpu_seconds, "memory": memory, "output": output,
            "sandbox": sandbox, "reads": (reads,) if isinstance(reads, str) and reads else tuple(reads),
            "processes": processes, "scratch": scratch,
        }  # fmt: skip
        limits: dict[str, Any] = {
            "max_turns": max_turns,
            "max_tokens": max_tokens,
            "seconds": seconds,
            "states": states,
        }
        limits["ignore"] = (ignore,) if isinstance(ignore, str) and ignore else tuple(ignore)
        self._given: dict[str, Any] = {"task": task, "level": level, "stop": stop, **limits, **bounds}
        self.agent = agent
        self.inner = load_task(task, level=level) if isinstance(task, str) else task
        self._run, self._seconds, self._states = agent_of(agent, AgentLimits(**bounds)), seconds, states
        self._extra = (stop,) if isinstance(stop, str) and stop else tuple(stop)
        self._ignored = frozenset(limits["ignore"])
        self._tokenizer: Any = None
        self._template: Template = Plain()
        self._door: asyncio.Task[Door] | None = None
        super().__init__(
            f"agent:{self.inner.name}", self._talk, stop=self._extra or self.inner.stop,
            max_tokens=max_tokens or self.inner.max_tokens or TOKENS,
            max_turns=max_turns or self.inner.max_turns or TURNS, snapshots="replay",
        )  # fmt: skip
        self.level = self.inner.level
        self.stable = _Ending(self._talk)
        self._shown: dict[str, Mapping[str, Any]] = {}

    @property
    def lacks(self) -> frozenset[str]:
        """Nothing: each fork is a replay that is checked."""
        return frozenset()

    @property
    def exact_text(self) -> bool:
        """In a chat template special tokens mean something."""
        return bool(self._template.ends)

    @property
    def about(self) -> str:
        """What plays, and what judges."""
        told = self.agent if isinstance(self.agent, str) else getattr(self.agent, "__name__", "a function")
        return "\n".join([f"played by {told}; judged by {self.inner.name}", str(getattr(self.inner, "about", ""))])

    def spoken_by(self, tokenizer: Any) -> AgentTask:
        """This task in the chat template of a policy, where it has one."""
        bound = AgentTask(self.agent, **self._given)
        bound._tokenizer, bound._template = tokenizer, template_of(tokenizer)
        if ends := bound._template.ends:
            bound.stop = (ends, *self._extra)
        return bound

    def count(self, split: Split) -> int | None:
        """As many as the task has."""
        count: Any = getattr(self.inner, "count", None)
        return None if count is None else count(split)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The task's items, with what the agent asks first as their prompts: it is started once for each to hear it."""
        return map(self.asked, self.inner.items(split, seed))

    def asked(self, item: Item) -> Item:
        """An item of the task with what the agent asks first as its prompt."""
        if item.id not in self._shown:
            env = self._talk()
            try:
                shown = self.open(env, item)
                asking = env.run.asking
                state = "" if asking is None else self._state(asking)
                self._shown[item.id] = {"shown": shown, "state": state, "read": env.outside.record}
            finally:
                env.close()
        known = {**self._shown[item.id], "asked": item.meta.get("asked", item.prompt), "item": item.id}
        return replace(item, prompt=known["shown"], meta={**item.meta, **known})

    # -- as of `Foreign`: all of these run beside the event loop ---------------------------------------------------

    def open(self, env: Talk, item: Item) -> str:
        """Start the agent; its first call as the policy reads it."""
        try:
            first = awaited(env.run.begin(_public(item), env.outside))
        except RolltreeError:
            raise
        except Exception as error:  # the agent's own; a rollout that meets it later is a failed one
            raise TaskError(f"the agent fails before it asks the policy anything: {raised(error)}; mend it") from error
        if isinstance(first, Ended):
            raise TaskError(f"the agent ended without asking the policy anything about item {item.id!r}")
        env.contexts, env.ended, env.apart = Contexts(Characters(), self._template, characters), None, False
        env.gained = 0.0
        env.prompt = self._placed(env, first)
        return Characters().decode(env.prompt.ids)

    def turn(self, env: Talk, text: str) -> Heard:
        """Answer the agent's call; what its next one adds to the conversation."""
        ends = self._template.ends
        if ends and not text.endswith(ends) and ends == getattr(self._tokenizer, "eos_token", None):
            text += ends  # a last eos is taken off before a task sees the text
        if not env.apart:
            env.main = Characters().decode(env.prompt.ids) + text
        asked = self._answered(env, text, "stop")
        env.gained += env.run.gained()
        if isinstance(asked, Ended):
            env.ended = asked
            return Heard("", env.gained, done=True)
        env.prompt = self._placed(env, asked)
        now = Characters().decode(env.prompt.ids)
        env.apart = not now.startswith(env.main)
        state, record = self._state(asked), env.outside.record
        if env.apart:  # a helper, a history that was changed or cut short, a call made again
            parts = parts_of(env.contexts, env.prompt)
            return Heard(now, state=state, record=record, aside=parts, how=env.prompt.how)
        gained, env.gained = env.gained, 0.0
        return Heard(now[len(env.main) :], gained, state=state, record=record)

    def recall(self, env: Talk, item: Item, state: Episode) -> None:
        """What it read until its first call is the item's: all its rollouts begin alike."""
        env.outside = Outside(state.record or item.meta["read"])
        env.recorded = deque(state.heard)

    def judge(self, env: Talk, item: Item, episode: Episode, text: str) -> Verdict:
        """The agent's reward, or the verifier's word on its final answer. One that was cut off hears its last words."""
        if env.ended is None:
            last = self._answered(env, self._unsaid(env, item, episode, text), "length")
            env.ended = last if isinstance(last, Ended) else Ended()
        end, asked = env.ended, replace(item, prompt=str(item.meta["asked"]))
        if end.reward is not None:
            return Verdict(end.reward, why="rewarded by the agent")
        return awaited(self.inner.verify(asked, self.inner.start(asked)[0], end.final))

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process starts agents of its own."""
        return _again, (self.agent, self._given, self._tokenizer)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _unsaid(self, env: Talk, item: Item, episode: Episode, text: str) -> str:
        """The policy's words that the agent has not heard; none where it waits in a context of its own."""
        asked, whole = Characters().decode(env.prompt.ids), item.meta["shown"] + text
        if env.apart:
            return ""
        return whole[len(asked) :] if whole.startswith(asked) else unsaid(episode, text)

    def _state(self, asking: WaitingCall) -> str:
        """The name of the state in which a call is answered; "" = by all that was said."""
        messages = asking.ask.messages
        if asking.state or self._states == "said" or not messages:
            return asking.state
        return f"{messages[-1]['role']}: {messages[-1]['content']}"

    def _talk(self) -> Talk:
        return Talk(AgentRun(self._run, self._opened, self._seconds))

    async def _opened(self) -> Door:
        if self._door is None:
            self._door = asyncio.ensure_future(serving_door(self._tokenizer, self._ignored))
        return await self._door

    def _placed(self, env: Talk, asking: WaitingCall) -> ContextPrompt:
        if missing := [one for one in asking.draw.sampling.stop if one not in self.stop]:
            raise TaskError(
                f"the agent stops at {missing[0]!r} and the rollouts of {self.name} stop at "
                f"{', '.join(map(repr, self.stop)) or 'nothing'}; give the task stop={missing[0]!r}"
            )
        if asking.ask.ids is not None:
            raise TaskError("the agent sends token ids; in a rollout it must send text or messages")
        return env.contexts.place(asking.ask)

    def _answered(self, env: Talk, text: str, finish: str) -> WaitingCall | Ended:
        """Hand a turn to the agent as it would get it from a server."""
        asking = env.run.asking
        if asking is None:
            raise TaskError("the agent does not wait for an answer")
        shown = text.removesuffix(self._template.ends) if self._template.ends else text
        if self._template.ends:
            for token in specials(self._tokenizer):
                shown = shown.replace(token, "")
        stopped = next((one for one in asking.draw.sampling.stop if shown.endswith(one)), "")
        shown = shown.removesuffix(stopped)
        name = f"call_{len(env.contexts.turns)}"
        answer = answer_of(self._template, asking.ask, shown, finish, stopped, name)
        env.contexts.said(env.prompt, characters(text), answer.text, answer.message or None)
        return awaited(env.run.answer(answer, self._expected(env)))

    def _expected(self, env: Talk) -> Callable[[WaitingCall], bool] | None:
        """On replay, which of the agent's calls came next: those made side by side may come in any order."""
        if not env.recorded:
            return None
        heard = env.recorded.popleft()

        def next_one(asking: WaitingCall) -> bool:
            now = Characters().decode(self._placed(env, asking).ids)
            return now == heard or (now.startswith(env.main) and now[len(env.main) :] == heard)

        return next_one


def parts_of(contexts: Contexts, prompt: ContextPrompt) -> tuple[str | Said, ...]:
    """A call as what was given in it and what the policy said before."""
    out: list[str | Said] = []
    at = 0
    for span in prompt.spans:
        ids, length = contexts.turns[span.turn].ids, span.stop - span.start
        begins = np.array_equal(prompt.ids[span.start : span.stop], ids[:length])
        start = 0 if begins else len(ids) - length
        out += [Characters().decode(prompt.ids[at : span.start]), Said(span.turn, start, start + length)]
        at = span.stop
    return tuple(part for part in (*out, Characters().decode(prompt.ids[at:])) if part != "")


def _public(item: Item) -> Mapping[str, Any]:
    """What of an item an agent is told: never the answer."""
    asked = item.meta.get("asked", item.prompt)
    # A trainer may ask one item several times, under names of its own.
    told: dict[str, Any] = {"id": item.meta.get("item", item.id), "prompt": asked, "level": item.level}
    return {**told, "messages": item.meta[MESSAGES]} if MESSAGES in item.meta else told


def _again(agent: str | Callable[..., Any], given: Mapping[str, Any], tokenizer: Any) -> AgentTask:
    made = AgentTask(agent, **given)
    return made if tokenizer is None else made.spoken_by(tokenizer)
