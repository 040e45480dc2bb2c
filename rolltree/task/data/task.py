"""Prompts of your own as a task: a file or data set, a chat template where the policy has one, rewards with weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rolltree.task.data.builtin import BUILTINS, Completion
from rolltree.task.data.chat import Chat, chat_of, specials, think_tags
from rolltree.task.data.chat_tools import ChatState, ChatTools, chat_tools, key, toolbox
from rolltree.task.data.functions import COLUMNS, MESSAGES, RewardCrashError
from rolltree.task.data.layouts import Question, question, recognise
from rolltree.task.data.rewards import reward_sum
from rolltree.task.data.source import DataRow, read_data
from rolltree.task.data.split import SplitData, divided, epochs, share
from rolltree.task.final import final_answer
from rolltree.task.foreign.parts import text_of
from rolltree.task.foreign.threads import awaited
from rolltree.task.items import TaskError, check_item
from rolltree.task.protocol import Item, Reply, Split, Verdict
from rolltree.visible import shortened

SOLUTION = "solution"
"""A column with a right answer worked out, which controls that give hints show parts of."""
OneOrMore = str | Sequence[str]
JSONL = "jsonl:"
MORE_ENDS = ("<|eom_id|>",)
"""Tokens that end a turn with calls in templates that end other turns with another (Llama 3)."""


class Data:
    """A finite task: every pass gives each item of a split once, in an order of its own."""

    def __init__(
        self, name: str, *, prompt: str = "", answer: str = "", reward: OneOrMore = (), solved_at: float | None = None,
        chat: Literal["auto", "off"] = "auto", system: str = "", think: str = "auto", holdout: str | float = "",
        tool: OneOrMore = (), mcp: OneOrMore = (), max_turns: int = 8, max_tokens: int = 1024, stop: OneOrMore = (),
    ) -> None:  # fmt: skip
        """`name` is a file or hf:NAME:SPLIT; "jsonl:" may stand before a file of another ending. The knobs are the
        options of the command line (`rolltree.task.data.flags`); an answer takes one of `max_turns` too."""
        self._given = {key: value for key, value in locals().items() if key not in ("self", "name", "__class__")}
        if chat not in ("auto", "off"):
            raise TaskError(f"--chat {chat} is neither auto nor off")
        self.name, self.level, self.max_tokens, self._stop = name, 0, max_tokens, _several("stop", stop)
        self.path = name.removeprefix(JSONL)
        self.tools = toolbox(_several("tool", tool), _several("mcp", mcp))
        self.max_turns = 0 if self.tools is None else max_turns
        if self.tools is not None and max_turns < 1:
            raise TaskError(f"max_turns is {max_turns}, but a tool answers at least once")
        if max_tokens < 1:
            raise TaskError(f"max_tokens is {max_tokens}, which leaves no room for an answer; give at least 1")
        self.rewards = reward_sum(_several("reward", reward) or ("math",), solved_at)
        self.think = think_tags(think)
        self.chat: Chat | None = None
        self.chat_tools: ChatTools | None = None
        self.sets = self._read(prompt, answer, str(holdout), "row" if name == self.path else "jsonl")
        self._wants_chat, self._system = chat == "auto", _system(system)
        self._check_answers()
        self._check_references()
        self._try_rewards()

    @property
    def exact_text(self) -> bool:
        """In a chat template special tokens mean something, so steps and rewards get the text with them."""
        return self.chat is not None

    @property
    def measures(self) -> frozenset[str] | None:
        """Each reward by its name, and what the tools counted."""
        told = self.rewards.measures
        return None if told is None else told | ({"calls", "failed_calls"} if self.tools else set[str]())

    @property
    def stop(self) -> tuple[str, ...]:
        """What the policy stops at: the end of its turn (where that is eos, only if tools may answer), and more that
        was asked for."""
        if self.chat is None or not self.chat.ends:
            return self._stop
        ends = () if self.chat_tools is None and self.chat.ends == _eos(self.chat) else (self.chat.ends,)
        more = tuple(
            token for token in MORE_ENDS if self.chat_tools is not None and token in specials(self.chat.tokenizer)
        )
        return (*ends, *more, *self._stop)

    @property
    def about(self) -> str:
        """Items, split, rewards and what is odd, in a line or more."""
        train, held, sets = len(self.sets.train), len(self.sets.test), self.sets
        items = f"{train} training item{'s' * (train != 1)}, {held} held-out item{'s' * (held != 1)} ({sets.rule})"
        asked = [] if self.chat is None else ["asked in the policy's chat template"]
        asked += [f"after the system message {self._system[:80]!r}"] if self._system and asked else []
        asked += [f"with the tools {', '.join(one.name for one in self.tools.tools)}"] if self.tools else []
        return "\n".join(["; ".join([f"{self.path}: {items}", self.rewards.about, *asked]), *sets.notes])

    def count(self, split: Split) -> int:
        """Distinct items of a split (training repeats those that the file repeats)."""
        return len(self.sets.of(split))

    def spoken_by(self, tokenizer: Any) -> Data:
        """This task in the chat template of a policy, as far as it has one."""
        if not self._wants_chat or tokenizer is None:
            self._check_unspoken()
            return self
        chat = self._chat(tokenizer)
        if chat is None:
            return self
        bound = object.__new__(Data)
        bound.__dict__.update(self.__dict__)
        bound.chat = chat
        bound.chat_tools = None if self.tools is None else chat_tools(chat, self.tools)
        return bound

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """All items of the split in a random order, again and again in others."""
        chosen = self.sets.of(split)
        if not chosen:
            way = "use --holdout FRACTION or FILE, or --eval-every 0" if split == "test" else "lower --holdout"
            raise TaskError(f"{self.path} has no {split} items ({self.sets.rule}): give more lines, or {way}")
        return (self._item(asked, split) for asked in epochs(chosen, f"{self.path}/{split}/{seed}"))

    def start(self, item: Item) -> tuple[Any, str | None]:
        """Nothing was said; without tools there is nothing to say it to."""
        return (None, None) if self.tools is None else (ChatState(), key(item, ()))

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """What the tools answer to a turn."""
        if self.chat_tools is None:
            raise TaskError(f"{self.name} has tools and no chat template yet; `spoken_by` a tokenizer gives it one")
        ended = self._unended(text)
        return await self.chat_tools.step(item, state, text, self.think.answer(ended, item.prompt))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """What the rewards say; the answer is what stands behind the think tags."""
        last = self._unended(state.latest(text) if isinstance(state, ChatState) else text)
        whole = self._unended(text)
        said = Completion(item, last, whole, self.think.answer(last, item.prompt).strip(), self.think)
        verdict = await self.rewards.verdict(said)
        if not isinstance(state, ChatState):
            return verdict
        counts = {"calls": float(state.calls), "failed_calls": float(state.failed)}
        return replace(verdict, parts={**verdict.parts, **counts})

    def answer_in(self, item: Item, text: str) -> str | None:
        """What is said behind the think tags in the end."""
        return final_answer(self.think.answer(self._unended(text), item.prompt))

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process reads the files itself and has servers of its own."""
        return _again, (type(self), self.name, self._given, None if self.chat is None else self.chat.tokenizer)

    def _unended(self, text: str) -> str:
        """A text without the token that ends the turn."""
        for ends in self.stop if self.chat is not None else ():
            text = text.removesuffix(ends)
        return text

    def _chat(self, tokenizer: Any) -> Chat | None:
        schemas = () if self.tools is None else tuple(one.schema for one in self.tools.tools)
        return chat_of(tokenizer, self._system, schemas)

    def _check_unspoken(self) -> None:
        for option, given in (("--system", self._system), ("tools", self.tools)):
            if given:
                raise TaskError(f"{option} needs the chat template: leave out --chat off, and choose a chat model")

    def _item(self, asked: Question, split: Split) -> Item:
        meta: dict[str, Any] = {COLUMNS: asked.columns, "split": split}
        if not isinstance(asked.prompt, str):
            meta[MESSAGES] = asked.prompt
        if isinstance(worked := asked.columns.get(SOLUTION), str) and worked:
            meta[SOLUTION] = worked
        if self.chat is not None:
            prompt = self.chat.prompt(asked.prompt)
        else:
            prompt = asked.prompt if isinstance(asked.prompt, str) else text_of(asked.prompt, asked.where)
        judged = bool(self.rewards.rewards)
        return check_item(Item(asked.id, prompt, asked.answer if judged else None, asked.level, meta), judged=judged)

    def _read(self, prompt: str, answer: str, holdout: str, prefix: str) -> SplitData:
        held = share(holdout) if holdout else None
        aside = None if not holdout or held is not None else _questions(read_data(holdout), prompt, answer)
        return divided(_questions(read_data(self.path), prompt, answer), held, aside, prefix)

    def _check_answers(self) -> None:
        needy = [reward.name for reward in self.rewards.rewards if reward.needs_answer]
        first = (*self.sets.train, *self.sets.test)[0]
        if needy and not first.answer:
            raise TaskError(
                f"{first.where}: field 'answer' is missing or empty, and the reward {needy[0]} needs one; name its "
                f"column with --answer (columns: {', '.join(first.columns) or 'the prompt alone'}), or say "
                "--reward none where rolltree solve is to answer what nobody judges"
            )

    def _check_references(self) -> None:
        """Refuse a reference that one of the rewards cannot read, as it would fail every rollout of its item."""
        asked = [
            (q.where, Item(q.id, "", q.answer, 0, {COLUMNS: q.columns})) for q in (*self.sets.train, *self.sets.test)
        ]
        for reward in self.rewards.rewards:
            unread = None if reward.foreign else BUILTINS[reward.name].unread
            lost = None if unread is None else unread([item for _, item in asked])
            if lost is not None:
                where = next(where for where, item in asked if item is lost[0])
                raise TaskError(f"{where}: {lost[1]}")

    def _try_rewards(self) -> None:
        """Ask functions of a file about one answer: what cannot judge the reference judges nothing."""
        own = tuple(reward for reward in self.rewards.rewards if reward.foreign)
        if own:
            first = (*self.sets.train, *self.sets.test)[0]
            shown = first.prompt if isinstance(first.prompt, str) else str(first.prompt[-1]["content"])
            meta = {COLUMNS: first.columns} | ({} if isinstance(first.prompt, str) else {MESSAGES: first.prompt})
            asked = Item(first.id, shown, first.answer, 0, meta)
            said = Completion(asked, first.answer, first.answer, first.answer, self.think)
            try:
                awaited(replace(self.rewards, rewards=own).verdict(said))
            except Exception as error:
                if isinstance(error, TaskError) and not isinstance(error, RewardCrashError):
                    raise
                raise TaskError(
                    f"{shortened(str(error))}; it was tried with the reference answer of {first.where}"
                ) from error


def _questions(rows: Sequence[DataRow], prompt: str, answer: str) -> list[Question]:
    layout = recognise(rows, prompt, answer)
    return [question(row, layout) for row in rows]


def _again(kind: type[Data], name: str, given: Mapping[str, Any], tokenizer: Any) -> Data:
    made = kind(name, **given)
    return made if tokenizer is None else made.spoken_by(tokenizer)


def _several(name: str, told: OneOrMore) -> tuple[str, ...]:
    several = (told,) if isinstance(told, str) and told else tuple(told)
    for one in several:
        if not isinstance(one, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TaskError(f"{name}={told!r} makes no sense; give text, or a list of texts")
    return several


def _system(told: str) -> str:
    """A system message, or the text of the file that is named."""
    if not told or "\n" in told or len(told) > 255 or not Path(told).is_file():
        return told
    return Path(told).read_text(encoding="utf-8").strip()


def _eos(chat: Chat | None) -> str:
    return "" if chat is None else str(getattr(chat.tokenizer, "eos_token", "") or "")
