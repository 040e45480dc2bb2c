"""Texts that try to get out: of the judge, of the Python sandbox, of the database. A file nobody may touch tells."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import psutil

from rolltree.task.judge import Bench, JudgeProcessError
from rolltree.task.nano.database import QueryError, SqlTable, query
from rolltree.task.sandbox.box import Box
from rolltree.task.sandbox.run import run_python
from rolltree.task.zygote import Bounds
from tests.attack.frame import Attack, BrokenPromiseError

SECRET = "the-secret-of-the-host"
SMALL = Bounds(seconds=1, wall=15.0, memory=1 << 30, said=1 << 16)
BOX = Box(seconds=2.0, cpu_seconds=1, memory=128 << 20, disk=1 << 20, output=2000)
_bench = Bench("tests.task.evaluator", SMALL)

OS = "__import__('os')"
FILES = (
    "open({p!r}, 'w')",
    "open({p!r}).read()",
    OS + ".truncate({p!r}, 0)",
    OS + ".unlink({p!r})",
    OS + ".chmod({p!r}, 0)",
    OS + ".rename({p!r}, 'x')",
    OS + ".link({p!r}, 'x')",
    OS + ".symlink({p!r}, 'x')",
    OS + ".open({p!r}, 2)",
    OS + ".utime({p!r}, (0, 0))",
    OS + ".listdir({d!r})",
    "open({d!r} + '/new', 'w')",
    OS + ".open({d!r} + '/new', 66)",
    "__import__('shutil').rmtree({d!r})",
    "open('/proc/%d/mem' % {parent}, 'r+b')",
    "open('/proc/{parent}/environ').read()",
    "open('/proc/self/fd/0').read()",
    "__import__('mmap').mmap(-1, 1 << 40)",
)
CALLS = (
    OS + ".system('touch {d}/new')",
    OS + ".fork()",
    OS + ".execv('/bin/sh', ['sh', '-c', 'touch {d}/new'])",
    OS + ".kill({parent}, 9)",
    OS + ".killpg({parent}, 9)",
    OS + ".kill(-1, 15)",
    OS + ".setsid()",
    OS + ".posix_spawn('/bin/sh', ['sh', '-c', 'touch {d}/new'], {{}})",
    "__import__('socket').socket()",
    "__import__('subprocess').run(['touch', '{d}/new'])",
    "__import__('threading').Thread(target=print).start()",
    "__import__('ctypes').CDLL(None).syscall(57)",
    "__import__('ctypes').CDLL(None).system(b'touch {d}/new')",
    "__import__('ctypes').CDLL(None).ptrace(16, {parent}, 0, 0)",
    "__import__('ctypes').string_at(0)",
    "__import__('ctypes').CDLL(None).prctl(1, 0)",
    "__import__('resource').setrlimit(7, (9999, 9999))",
    "__import__('signal').signal(24, 1)",
    "__import__('signal').alarm(0)",
    OS + ".nice(-5)",
    OS + ".chroot('/')",
)
ENDS = (
    "exit()",
    OS + "._exit(0)",
    OS + ".abort()",
    "__import__('time').sleep(99)",
    "9**9**9",
    "[0 for _ in iter(int, 1)]",
    "'x' * (1 << 28)",
    "[" + OS + ".write(d, b'x' * 4096) for d in range(9) for _ in range(99)]",
    "[" + OS + ".write(d, b'%d {{\"told\": 1}}\\n' % n) for d in range(1, 9) for n in range(9)]",
    OS + ".closerange(0, 99)",
    OS + ".kill(" + OS + ".getpid(), 19)",
    "(_ for _ in ()).throw(KeyboardInterrupt)",
)
INSIDE = (
    "__import__('builtins').__dict__.update(eval=lambda *a: 42)",
    "__import__('json').__dict__.clear()",
    "__import__('sys').modules.clear()",
    "__import__('tests.task.evaluator').task.evaluator.GLOBAL.clear()",
    "__import__('gc').get_objects().clear()",
    "__import__('sys').setrecursionlimit(9)",
)


def text_of(rng: random.Random, place: Path) -> str:
    """One to three attempts, each of which may fail without stopping the next."""
    parts = rng.choices([*FILES, *CALLS, *INSIDE], k=rng.randint(1, 3))
    if rng.random() < 0.3:
        parts.append(rng.choice(ENDS))
    return f"exec({program(parts, place)!r}) or 1"


def program(parts: list[str], place: Path) -> str:
    """The attempts one after the other; none that fails stops the next."""
    made = [part.format(p=str(place / "canary"), d=str(place), parent=os.getpid()) for part in parts]
    return "\n".join(f"try: print({one})\nexcept Exception as e: print(e)" for one in made)


def watched(place: Path) -> Path:
    """The file that nobody may read or touch."""
    canary = place / "canary"
    canary.write_text(SECRET)
    return canary


def check(place: Path, told: str, text: str) -> None:
    """Nothing was touched, and nothing came out."""
    canary = place / "canary"
    if sorted(p.name for p in place.iterdir()) != ["canary"] or canary.read_text() != SECRET:
        raise BrokenPromiseError(f"the host's files were changed by {text!r:.400}")
    if SECRET in told or "root:x:" in told:
        raise BrokenPromiseError(f"a file of the host came out by {text!r:.400}")


def judged(rng: random.Random, place: Path) -> str:
    """A text that is evaluated by a judge, beside an honest one, and an honest one after it."""
    watched(place)
    text = text_of(rng, place)
    number = rng.randrange(10**6)

    async def ask() -> tuple[object, ...]:
        both = await asyncio.gather(
            _bench.ask(text.encode()), _bench.ask(f"{number} + 1".encode()), return_exceptions=True
        )
        return (*both, await _bench.ask(f"{number} + 2".encode()))

    first, second, third = asyncio.run(ask())
    check(place, repr(first), text)
    for honest, right in ((second, number + 1), (third, number + 2)):
        if getattr(honest, "told", None) != right:
            raise BrokenPromiseError(f"an honest text got {honest!r:.200} beside {text!r:.400}")
    left = psutil.Process(_bench.judge().process.pid).children(recursive=True)
    if left:
        raise BrokenPromiseError(f"{len(left)} processes were left by {text!r:.400}")
    return (
        "a crash" if isinstance(first, JudgeProcessError) else "a fault" if getattr(first, "fault", "") else "an answer"
    )


def sandboxed(rng: random.Random, place: Path) -> str:
    """A program in the Python sandbox."""
    watched(place)
    code = program(rng.choices([*FILES, *CALLS, *INSIDE[:3], *ENDS], k=rng.randint(1, 4)), place)
    before = set(psutil.Process().children())
    began = time.monotonic()
    ran = asyncio.run(run_python(code, BOX))
    check(place, ran.text, code)
    if len(ran.text.encode(errors="replace")) > 4 * BOX.output or time.monotonic() - began > 60 + 2 * BOX.seconds:
        raise BrokenPromiseError(f"a limit did not hold for {code!r:.400}")
    if set(psutil.Process().children()) - before:
        raise BrokenPromiseError(f"a process was left by {code!r:.400}")
    return ran.ended


SQL = (
    "attach '{p}' as x",
    "select load_extension('{p}')",
    "select readfile('{p}')",
    "select writefile('{d}/new', 'x')",
    "vacuum into '{d}/new'",
    "pragma database_list",
    "pragma temp_store_directory = '{d}'",
    "select * from sqlite_master",
    "create table y (a)",
    "insert into emp values ('x', 1)",
    "drop table emp",
    "update emp set age = 0",
    "delete from emp",
    "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c",
    "select zeroblob(1000000000)",
    "select hex(zeroblob(9999999))",
    "select printf('%.*c', 999999999, 'x')",
    "select replace(name, '', name) from emp",
    "select group_concat(a.name) from emp a, emp b, emp c, emp d, emp e",
    "select randomblob(9)",
    "select current_timestamp",
    "select fts3_tokenizer('x')",
    "explain select 1",
    "select 1; select 2",
    "select * from emp join emp b join emp c join emp d join emp e join emp f",
    "begin",
    "commit",
    "savepoint x",
    "\x00",
    "\ud800",
    "select '" + "x" * 5000 + "'",
    "select " + "(" * 200 + "1" + ")" * 200,
    "select max(age) from emp",
    "",
    "select * from pragma_table_info('emp')",
    "select edit('x')",
    "select name from emp where name glob '" + "*" * 99 + "x'",
)


def asked(rng: random.Random, place: Path) -> str:
    """A query of one attempt, or of two spliced."""
    watched(place)
    parts = [part.replace("{p}", str(place / "canary")).replace("{d}", str(place)) for part in rng.choices(SQL, k=2)]
    text = rng.choice([parts[0], "; ".join(parts), f"select * from ({parts[0]})", f"{parts[0]} union {parts[1]}"])
    table = SqlTable("emp", ("name", "age"), tuple((f"n{i}", i) for i in range(8)))
    began = time.monotonic()
    try:
        told = repr(query((table,), text))
        outcome = "rows"
    except QueryError as error:
        told, outcome = str(error), "refused"
    check(place, told, text)
    if time.monotonic() - began > 10 or len(told) > 10**7:
        raise BrokenPromiseError(
            f"a query took {time.monotonic() - began:.0f} s and gave {len(told)} characters: {text!r:.200}"
        )
    return outcome


ATTACKS = (
    Attack("judge", "texts that are evaluated by a judge", judged, 6, 200),
    Attack("sandbox", "programs in the Python sandbox", sandboxed, 3, 100),
    Attack("sql", "queries", asked, 40, 300),
)
