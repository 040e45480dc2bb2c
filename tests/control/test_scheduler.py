"""The scheduler as a table: a story of events for every preset, and the actions that each event leads to."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.control.order import ControlError
from rolltree.control.schedule import (
    PRESETS,
    Abort,
    Action,
    Ahead,
    Ask,
    Closed,
    EmptyPlan,
    Ended,
    Event,
    Extended,
    Finish,
    Group,
    Offer,
    Offered,
    Pressing,
    Publish,
    Published,
    Released,
    Resized,
    Resume,
    Rollout,
    Schedule,
    Scheduler,
    Segment,
    Settled,
    StalenessBound,
    Start,
    Train,
    Trained,
    Woken,
    follow,
)
from tests.control.schedules import SCHEDULES

BATCH, SIZE = 2, 2
PLAIN: dict[str, Event[int]] = {"woken": Woken(), "trained": Trained(), "published": Published(), "closed": Closed()}
FINISH: dict[str, Finish] = {"done": "done", "refused": "done", "cut": "abort", "failed": "failed"}


def named(rollout: Rollout[int]) -> str:
    """The group's number, and the rollout's place in it as a letter."""
    return f"{rollout.group.number}{chr(ord('a') + rollout.index)}"


class Story:
    """A scheduler that is told of events in words. Prompts never end, and a plan asks for a batch of them."""

    def __init__(self, schedule: Schedule, batch: int = BATCH, *, open: bool = False) -> None:
        self.scheduler, self.open = Scheduler[int](schedule, batch), open
        self.rollouts: dict[str, Rollout[int]] = {}
        self.groups: dict[int, Group[int]] = {}
        self.done: list[Action[int]] = []
        self.stopping: list[str] = []

    def tell(self, words: str) -> str:
        """All that is done about an event: `trained`, `done 0a 7`, `cut 0a 5 2` (two of an unfinished turn), ..."""
        kind, *about = words.split()
        if kind in PLAIN:
            return self.on(PLAIN[kind])
        if kind in ("release", "refuse"):
            return self.on(Released(self.groups[int(about[0])], kind == "refuse"))
        if kind == "extend":
            return self.on(Extended(self.groups[int(about[0])], (SIZE,)))
        name, tokens, loose = [*about, "4", "0"][:3] if len(about) != 2 else [*about, "0"]
        made = [Segment(self.scheduler.version, int(tokens))]
        self.stopping = [other for other in self.stopping if other != name]
        return self.on(Ended(self.rollouts[name], made, FINISH[kind], int(loose), kind == "refused"))

    def on(self, event: Event[int]) -> str:
        """In words; what starts together stands together."""
        self.done = []
        follow(self.scheduler, event, self.act)
        out: list[str] = []
        for action in self.done:
            match action:
                case Start(rollout) if out and out[-1].startswith("start"):
                    out[-1] += f" {named(rollout)}"
                case Start(rollout):
                    out.append(f"start {named(rollout)}")
                case Abort(rollouts):
                    out.append(f"abort {' '.join(map(named, rollouts))}")
                case Train(batch):
                    out.append(f"train {' '.join(str(g.number) for g in batch)}")
                case Publish(version):
                    out.append(f"publish {version}")
                case Settled(group):
                    out.append(f"{group.usage} {group.number}")
                case Ask():
                    pass
        return ", ".join(out)

    def act(self, action: Action[int]) -> Event[int] | None:
        self.done.append(action)
        match action:
            case Start(rollout):
                self.rollouts[named(rollout)], self.groups[rollout.group.number] = rollout, rollout.group
            case Abort(rollouts):
                self.stopping += [named(r) for r in rollouts if named(r) not in self.stopping]
            case Ask(number):
                plan, batch = number // self.scheduler.batch, self.scheduler.batch
                more = self.scheduler.schedule.lockstep and (number + 1) % batch > 0
                return Offered(Offer(number, (SIZE,), self.open, plan), more)
            case _:
                pass
        return None


STORIES: dict[str, list[tuple[str, str]]] = {
    "sync": [
        ("woken", "start 0a 0b 1a 1b"),
        ("done 0a", ""),
        ("failed 0b", ""),  # it stays in its group
        ("done 1a", ""),
        ("done 1b", "trained 0, trained 1, train 0 1"),
        ("trained", "publish 1"),
        ("published", "start 2a 2b 3a 3b"),
        ("done 2a", ""),
        ("done 2b", ""),
        ("done 3b", ""),
        ("refused 3a", "dropped: filter 3, trained 2, train 2"),  # a batch may be short
        ("closed", ""),
    ],
    "areal": [
        ("woken", "start 0a 0b 1a 1b 2a 2b 3a 3b 4a 4b 5a 5b 6a 6b 7a 7b 8a 8b 9a 9b"),  # five batches
        ("done 0a", ""),
        ("done 0b", ""),
        ("done 2a", ""),
        ("done 2b", "trained 0, trained 2, train 0 2"),
        *[(f"done {n}{letter}", "") for n in range(3, 10) for letter in "ab"],
        ("trained", "abort 1a 1b"),
        ("cut 1a", ""),
        ("done 1b", "publish 1"),
        ("published", "start 1a, trained 3, trained 4, train 3 4, start 10a 10b 11a 11b"),
        (
            "closed",
            "carried 5, carried 6, carried 7, carried 8, carried 9, carried 1, carried 10, carried 11, "
            "abort 1a 10a 10b 11a 11b",
        ),
    ],
    "april": [
        ("woken", "start 0a 0b 1a 1b 2a 2b 3a 3b"),  # twice a batch
        ("done 0a", ""),
        ("done 0b", ""),
        ("done 1a", ""),
        ("done 2a", ""),
        ("done 2b", "trained 0, trained 2, abort 1b 3a 3b, train 0 2"),
        ("cut 1b 3", ""),
        ("cut 3a", ""),
        ("cut 3b", ""),
        ("trained", "publish 1"),
        ("published", "start 1b 3a 3b 4a 4b 5a 5b"),  # those that were carried over first
        ("done 1b", ""),
        ("done 3a", ""),
        ("done 3b", "trained 1, trained 3, abort 4a 4b 5a 5b, train 1 3"),
    ],
    "verl": [
        ("woken", "start 0a 0b 1a 1b 2a 2b"),
        ("done 1a", ""),
        ("done 1b", ""),
        ("done 0a", ""),
        ("done 0b", "trained 1, trained 0, train 1 0"),  # as they finished
        ("trained", "abort 2a 2b"),
        ("cut 2a", ""),
        ("done 2b", "publish 1"),
        ("published", "start 2a 3a 3b 4a 4b"),
    ],
    "slime": [
        ("woken", "start 0a 0b 1a 1b"),
        ("done 1a", ""),
        ("done 1b", "start 2a 2b"),
        ("done 0a", ""),
        ("done 0b", "trained 1, trained 0, train 1 0, start 3a 3b"),
        ("trained", "abort 2a 2b 3a 3b"),
        ("cut 2a", ""),
        ("done 2b", ""),
        ("cut 3a", ""),
        ("cut 3b", "publish 1"),
        ("published", "start 2a 3a 3b"),
    ],
    "rollart": [
        ("woken", "start 0a 0b 0c 1a 1b 1c 2a 2b 2c 3a 3b 3c"),  # one to spare in each
        ("done 0a", ""),
        ("done 0c", "abort 0b"),
        ("cut 0b 2", ""),
        ("done 1a", ""),
        ("failed 1b", "start 1d"),  # made again
        ("done 1d", "abort 1c, trained 0, trained 1, train 0 1"),
        ("cut 1c", ""),
        ("trained", "abort 2a 2b 2c 3a 3b 3c"),
        ("cut 2a 5 2", ""),
        ("cut 2b", ""),
        ("cut 2c", ""),
        ("cut 3a", ""),
        ("cut 3b", ""),
        ("cut 3c", "publish 1"),
        ("published", "start 2a 2b 2c 3a 3b 3c 4a 4b 4c 5a 5b 5c"),
    ],
    "dart": [
        ("woken", "start 0a 0b 1a 1b"),
        ("done 0a", ""),
        ("done 0b", "start 2a 2b"),
        ("done 1a", ""),
        ("done 1b", "trained 0, trained 1, train 0 1, start 3a 3b"),
        ("trained", "publish 1"),  # nothing stops
        ("done 2a", ""),
        ("published", ""),
        ("done 2b", "start 4a 4b"),
        ("done 3a", ""),
        ("done 3b", "trained 2, trained 3, train 2 3, start 5a 5b"),
    ],
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_by_its_story(name: str) -> None:
    story = Story(PRESETS[name])
    assert [(event, story.tell(event)) for event, _ in STORIES[name]] == STORIES[name]
    story.scheduler.check()


def test_a_batch_waits_for_a_group_that_would_be_too_old_after_it() -> None:
    story = Story(Schedule(Ahead(1), resume=Resume(update="run on"), age=StalenessBound(1, "wait")), batch=1)
    assert story.tell("woken") == "start 0a 0b 1a 1b"
    assert story.tell("done 1a") == story.tell("done 0a") == ""
    assert story.tell("done 1b") == "trained 1, train 1"
    assert (story.tell("trained"), story.tell("published")) == ("publish 1", "start 2a 2b")
    assert story.tell("done 2a") == story.tell("done 2b") == "", "group 0 must be trained under version 1"
    assert story.tell("done 0b") == "trained 0, train 0"


def test_an_open_group_is_trained_when_nothing_more_is_wanted_of_it() -> None:
    story = Story(Schedule(Ahead(0)), batch=1, open=True)
    assert story.tell("woken") == "start 0a 0b"
    assert story.tell("done 0a") == story.tell("done 0b") == ""
    assert story.tell("extend 0") == "start 0c 0d"
    assert story.tell("done 0c") == story.tell("done 0d") == ""
    assert story.tell("refuse 0") == "dropped: filter 0, start 1a 1b"
    assert story.tell("done 1a") == story.tell("done 1b") == ""
    assert story.tell("release 1") == "trained 1, train 1"


def test_what_is_wanted_of_a_group_while_weights_change_starts_afterwards() -> None:
    story = Story(Schedule(Ahead(1), resume=Resume(update="wait")), batch=1, open=True)
    assert story.tell("woken") == "start 0a 0b 1a 1b"
    for event in ("done 0a", "done 0b", "done 1a", "done 1b"):
        assert story.tell(event) == ""
    assert story.tell("release 0") == "trained 0, train 0"
    assert story.tell("trained") == "publish 1"
    assert story.tell("extend 1") == ""
    assert story.tell("published") == "start 1c 1d 2a 2b"


def test_groups_that_press_begin_whatever_admission_says() -> None:
    scheduler = Scheduler[int](Schedule(Ahead(0)), 1)
    assert [type(a) for a in scheduler.on(Woken())] == [Ask]
    started = scheduler.on(Offered(Offer(0, (1,)), pressing=True))
    assert [type(a) for a in started] == [Start, Ask], "there is no room, and it is asked for another one"
    assert started[-1] == Ask(1, 0, False, 1)
    assert scheduler.on(Offered(None, pressing=False)) == []
    assert scheduler.on(Pressing(True)) == []
    assert scheduler.on(Woken()) == [started[-1]]


def test_an_ask_without_an_answer_is_asked_again() -> None:
    scheduler = Scheduler[int](Schedule(Ahead(0)), 1)
    asked = scheduler.on(Woken())
    assert scheduler.on(Woken()) == asked
    assert scheduler.on(Offered(None)) == []
    for event in (Pressing(False), Woken(), Pressing(False)):  # what is asked at `Woken` is void with the next event
        scheduler.on(event)
    with pytest.raises(ControlError, match="a group was offered, and none was asked for"):
        scheduler.on(Offered(None))


def test_a_plan_that_asks_for_nothing_is_an_empty_batch_in_lockstep() -> None:
    scheduler = Scheduler[int](PRESETS["sync"], 1)
    scheduler.on(Woken())
    assert scheduler.on(Offered(EmptyPlan(0))) == [Train([])]


def test_another_size_of_batch_counts_from_the_next_publication_on() -> None:
    story = Story(Schedule(Ahead(0)), batch=1)
    assert story.tell("woken") == "start 0a 0b"
    assert (story.tell("done 0a"), story.tell("done 0b")) == ("", "trained 0, train 0")
    assert story.tell("trained") == "publish 1"
    assert story.on(Resized(2)) == ""
    assert story.tell("published") == "start 1a 1b 2a 2b"


def moves(story: Story, chance: random.Random) -> str:
    """What may happen next, in words."""
    phase, running = story.scheduler.phase, [named(r) for r in story.scheduler.running.values()]
    due = {"training": ["trained"], "publishing": ["published"]}.get(phase, [])
    if story.stopping and chance.random() < 0.5:
        made = chance.randint(0, 9)
        kind, name = chance.choice(("cut", "cut", "done")), chance.choice(story.stopping)
        return f"{kind} {name} {made} {chance.randint(0, made)}"
    if due and (not running or chance.random() < 0.2):
        return due[0]
    assert running, f"{phase}: everything stands still"
    return f"{chance.choice(('done',) * 8 + ('refused', 'failed'))} {chance.choice(running)} {chance.randint(0, 9)}"


@settings(max_examples=30, deadline=None)
@given(st.one_of(SCHEDULES, st.sampled_from(sorted(PRESETS)).map(PRESETS.__getitem__)), st.integers(0, 2**20))
def test_any_schedule_keeps_its_accounts_and_equal_events_give_equal_actions(schedule: Schedule, seed: int) -> None:
    """The second of two schedulers hears the same events; from a publication on it is one that was written down."""
    chance, story, again = random.Random(seed), Story(schedule), Story(schedule)
    assert story.tell("woken") == again.tell("woken")
    running, settled, reported = set(story.scheduler.running), Counter[int](), 0
    for _ in range(120):
        event = moves(story, chance)
        if event == "published" and not any(r.usage for r in story.scheduler.running.values()):
            again = restored(story)  # what is being stopped is not begun again
        mine = story.rollouts.get(event.split()[1]) if " " in event else None
        reported += int(event.split()[2]) if mine else 0
        running -= {mine.id} if mine else set()
        assert story.tell(event) == again.tell(event)
        for place, action in enumerate(story.done):
            match action:
                case Start(rollout):
                    assert rollout.id not in running, "a rollout is started once until it ends"
                    assert not rollout.usage
                    running.add(rollout.id)
                case Abort(rollouts):
                    assert {r.id for r in rollouts} <= running, "only what runs is stopped"
                case Settled(group):
                    settled[group.number] += 1
                case Ask():
                    assert place == len(story.done) - 1 or isinstance(story.done[place + 1], Start | Ask | Train)
                case Train(batch):
                    assert all(g.usage == "trained" for g in batch)
                    if schedule.age.most is not None:
                        assert all(g.staleness <= schedule.age.most for g in batch)
                case _:
                    pass
        assert running == set(story.scheduler.running)
        story.scheduler.check()
    story.tell("closed")
    assert set(settled.values()) <= {1}
    for rollout in list(story.scheduler.running.values()):
        reported += 1
        story.tell(f"cut {named(rollout)} 1")
    assert sum(story.scheduler.tokens.values()) == reported


def restored(story: Story) -> Story:
    """The same story from what a checkpoint holds of it."""
    other = Story(story.scheduler.schedule, story.scheduler.batch)
    state = story.scheduler.state_dict()
    for action in other.scheduler.load_state_dict(state, {told["number"]: told["number"] for told in state["groups"]}):
        other.act(action)
    for group in (*other.scheduler.unfinished.values(), *other.scheduler.ready.values()):
        other.rollouts |= {named(r): r for r in group.members}
    assert other.scheduler.state_dict() == state
    return other
