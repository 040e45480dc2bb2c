"""Agents on a cluster: each process starts its own, and is led by replay to where another one stood."""

import pickle
from typing import Any

import pytest

from rolltree.cluster import RemoteTask
from rolltree.gateway.agents.task import AgentTask
from rolltree.generate.setting import Patience
from rolltree.testing.tiny import tiny_engine
from tests.cluster.inprocess import InProcess
from tests.gateway.test_agents import NATIVE, Forks, grown

TASK = AgentTask("tests.gateway.agents:echo", task=NATIVE)


class Pickled(InProcess):
    """What goes to a process and comes from it is bytes; every `every`-th call kills the process that is asked.

    A call that comes again after a death kills nothing, or those that wait together would kill each other for ever.
    """

    def __init__(self, every: int = 0) -> None:
        super().__init__()
        self.every, self.asked = every, set[bytes]()

    def spawn(self, kind: Any, *args: Any) -> Any:
        process = super().spawn(kind, *pickle.loads(pickle.dumps(args)))
        call = process.call

        async def over(method: str, *rest: Any) -> Any:
            sent = pickle.dumps((method, rest))
            new = method != "ping" and sent not in self.asked
            self.asked |= {sent} if new else set()
            if self.every and new and len(self.asked) % self.every == 0:
                process.kill()
            return pickle.loads(pickle.dumps(await call(method, *pickle.loads(sent)[1])))

        process.call = over
        return process


def paths(forest: Any) -> list[Any]:
    return [
        (tree.id, tree.prefix(leaf).tolist(), leaf.status, leaf.scores.get("reward")) for tree, leaf in forest.leaves()
    ]


@pytest.mark.parametrize("every", [0, 7])
def test_the_forest_of_an_agent_is_the_same_in_other_processes(every: int) -> None:
    transport = Pickled(every)
    task = RemoteTask(TASK, 2, transport)
    # A call fails with each death of the process that it is at: how often, the load of the machine decides.
    there = grown(tiny_engine(), task, Forks(), items=6, seed=4, patience=Patience(tries=1000, wait=0.0))
    here = grown(tiny_engine(), TASK, Forks(), items=6, seed=4)
    assert paths(there) == paths(here)
    assert len(paths(here)) > len(here)  # some were forked
    assert all(status == "done" for *_, status, _ in paths(there))
    assert (task.lost > 0) == bool(every)
    task.close()
