"""A conversation with tools: each turn of the model is answered by what its calls returned, in order.

A turn ends where the template ends it. One without a call is the answer, and the rollout is over. A state is what was
said and heard, so that it is a value and can be played again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rolltree.task.data.callformats import ReadCalls, ToolCall, format_of
from rolltree.task.data.chat import Chat
from rolltree.task.data.mcp_tools import ServerLostError, mcp_tools
from rolltree.task.data.tools import Tool, ToolFailedError, tool
from rolltree.task.foreign.threads import beside
from rolltree.task.items import TaskError, digest
from rolltree.task.protocol import Item, Reply


@dataclass(frozen=True, slots=True)
class ChatState:
    """What was said and heard so far."""

    turns: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    calls: int = 0
    failed: int = 0
    done: bool = False

    def latest(self, text: str) -> str:
        """The model's last words in a rollout's text."""
        if self.done:
            return self.turns[-1]
        return text.rpartition(self.replies[-1])[2] if self.replies and self.replies[-1] else text


@dataclass(frozen=True)
class Toolbox:
    """Tools by name."""

    tools: tuple[Tool, ...]

    def answer(self, called: ToolCall) -> tuple[str, bool]:
        """What a call is answered, and whether it failed. Only a lost server is no answer."""
        if called.wrong:
            return f"error: {called.wrong}", True
        found = next((one for one in self.tools if one.name == called.name), None)
        if found is None:
            return f"error: there is no tool {called.name!r}; there are {', '.join(t.name for t in self.tools)}", True
        try:
            return found.call(called.arguments), False
        except ServerLostError:
            raise
        except ToolFailedError as error:
            return f"error: {error}", True
        except Exception as error:
            return f"error: {type(error).__name__}: {error}", True


def toolbox(functions: Sequence[str], servers: Sequence[str]) -> Toolbox | None:
    """The tools that are named; None where none are."""
    found = [*map(tool, functions), *(one for command in servers for one in mcp_tools(command))]
    for name in (names := [one.name for one in found]):
        if names.count(name) > 1:
            raise TaskError(f"two tools are called {name!r}; give them names of their own")
    return Toolbox(tuple(found)) if found else None


@dataclass(frozen=True)
class ChatTools:
    """Tools in the hands of a chat model: its template says how calls and answers are written."""

    chat: Chat
    tools: Toolbox
    read: ReadCalls

    async def step(self, item: Item, state: ChatState, turn: str, said: str) -> Reply:
        """Make the calls of a turn; `said` is what of it is no thought and no tag."""
        calls = self.read(said)
        if not calls:
            after = ChatState((*state.turns, said), (*state.replies, ""), state.calls, state.failed, True)
            return Reply("", after, done=True, state_key=key(item, (*state.turns, turn)))
        answers = await beside(lambda: [self.tools.answer(call) for call in calls])
        reply = self.chat.answers([(c.name or "unknown", text) for c, (text, _) in zip(calls, answers, strict=True)])
        failed = sum(bad for _, bad in answers)
        after = ChatState(
            (*state.turns, said), (*state.replies, reply), state.calls + len(calls), state.failed + failed
        )  # fmt: skip
        return Reply(reply, after, state_key=key(item, after.turns), failed=failed > 0)


def chat_tools(chat: Chat, tools: Toolbox) -> ChatTools:
    """Tools for a template, which must end turns and write calls in a way that is read here."""
    if not chat.ends:
        raise TaskError(f"the chat template of {chat.name} ends a turn with no special token, so no call could end one")
    return ChatTools(chat, tools, format_of(chat))


def key(item: Item, turns: Sequence[str]) -> str:
    """The name of a state: what was said to deterministic tools is enough."""
    return f"{item.id}/{len(turns)}" + (f":{digest(repr(tuple(turns)))}" if turns else "")
