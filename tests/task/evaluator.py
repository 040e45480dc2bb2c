"""A judge at its most gullible: it evaluates the text as Python and says what comes out."""

import sys

from rolltree.task import zygote

GLOBAL = {"answer": eval}


def plan(line):
    return lambda: GLOBAL["answer"](line.decode())


def serve():
    zygote.serve(lambda: None, plan)


if __name__ == "__main__":
    # A program that asks about a text that takes its time, and tells which processes that needs.
    import psutil

    from rolltree.task.judge import JudgeProcess

    judge = JudgeProcess("tests.task.evaluator", zygote.Bounds(wall=600))
    judge.put(b"__import__('time').sleep(600)")
    while not (below := psutil.Process(judge.process.pid).children()):
        pass
    print(judge.process.pid, below[0].pid, flush=True)
    sys.stdin.read()
