"""The ledger: what may be spent, what is spoken for, what was spent, and that the three always agree.

Budgets nest (run → step → prompt → branch). A reservation on a budget is a reservation on all budgets above it, so a
child can spend neither more than its own limit nor more than any ancestor has left. A limit is a ceiling, not a
deposit: what one child leaves unused its siblings may use, and `transfer` moves ceilings between them.

At all times, in every budget and for every resource: reserved = committed + released + held.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from rolltree.errors import RolltreeError

Resource = Literal["leaves", "decoded", "prefilled", "env_steps", "judge_calls"]
RESOURCES: tuple[Resource, ...] = get_args(Resource)


class LedgerError(RolltreeError, ValueError):
    """Accounts that would not add up: names the budget, the resource and the amount."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that may be spent; None = no limit of its own (those above still hold)."""

    leaves: int | None = None
    """Paths that may be started: a node's second child starts one, and so does the root's first."""
    decoded: int | None = None
    """Tokens sampled, each prefix once: what branches share is paid by the one that wrote it."""
    prefilled: int | None = None
    """Prefix tokens computed, as the engine reports them; those found in a cache are free."""
    env_steps: int | None = None
    judge_calls: int | None = None
    seconds: float | None = None
    """Time from the opening of the budget; runs in flight are stopped at its end and keep what they have."""

    def __post_init__(self) -> None:
        for name in (*RESOURCES, "seconds"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise LedgerError(f"a limit of {value} {name} makes no sense; give a number >= 0, or None for no limit")


@dataclass(frozen=True, slots=True)
class Spent:
    """What a budget and everything below it have spent so far."""

    leaves: int
    decoded: int
    prefilled: int
    env_steps: int
    judge_calls: int
    seconds: float
    by_role: Mapping[str, int] = field(default_factory=dict[str, int])
    """Tokens that roles have read and written in the whole run, by role; they are among those above."""


class _Account:
    """One resource of one budget."""

    __slots__ = ("charged", "committed", "left", "limit", "released", "reserved")

    def __init__(self, limit: float) -> None:
        self.limit = self.left = limit
        self.reserved = self.committed = self.released = self.charged = 0


class Hold:
    """A reservation: commit what was used, and the rest is released. Settled exactly once."""

    __slots__ = ("_accounts", "amount", "settled")

    def __init__(self, accounts: Sequence[_Account], amount: int) -> None:
        self._accounts = accounts
        self.amount = amount
        self.settled = False
        for account in accounts:
            account.reserved += amount
            account.left -= amount

    def commit(self, used: int) -> None:
        """Turn `used` units into spending and give the others back."""
        if self.settled:
            raise LedgerError(f"a reservation of {self.amount} was settled twice")
        if not 0 <= used <= self.amount:
            raise LedgerError(f"cannot commit {used} of a reservation of {self.amount}")
        self.settled = True
        rest = self.amount - used
        for account in self._accounts:
            account.committed += used
            account.released += rest
            account.left += rest

    def release(self) -> None:
        """Give everything back; a no-op once settled."""
        if not self.settled:
            self.commit(0)


class Budget:
    """Limits and accounts of a run, a step, a prompt or a branch. For use from one event loop."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        name: str = "run",
        clock: Callable[[], float] = time.monotonic,
        parent: Budget | None = None,
        also: Budget | None = None,
    ) -> None:
        limits = limits or Limits()
        self.name = name
        self.parent = parent
        self._clock = clock
        self._opened = clock()
        self._deadline = self._opened + (math.inf if limits.seconds is None else limits.seconds)
        above = [budget for budget in (parent, also) if budget is not None]
        self._deadline = min([self._deadline, *(budget._deadline for budget in above)])
        self._books: dict[str, Budget] = {} if parent is None else parent._books
        own = {r: _Account(_ceiling(getattr(limits, r))) for r in RESOURCES}
        self._lines: dict[Resource, tuple[_Account, ...]] = {
            r: tuple(dict.fromkeys([own[r], *(account for budget in above for account in budget._lines[r])]))
            for r in RESOURCES
        }

    def child(self, name: str, limits: Limits | None = None, *, also: Budget | None = None) -> Budget:
        """A budget inside this one: all it spends counts here too, and in `also` (a prompt's tree_budget and a
        round's)."""
        return Budget(limits, name=name, clock=self._clock, parent=self, also=also)

    def for_role(self, role: str, *, rollouts: bool = False) -> Budget:
        """A budget inside this one for what a role writes, which is also counted in the role's book.

        Unless they are rollouts of an item, paths that it starts count in the book alone.
        """
        book = self._books.get(role)
        if book is None:
            book = self._books[role] = Budget(name=role, clock=self._clock)
        made = self.child(role, also=book)
        if not rollouts:
            made._lines["leaves"] = (made._lines["leaves"][0], book._lines["leaves"][0])
        return made

    @property
    def tokens(self) -> int:
        """Tokens read and written so far."""
        return sum(a.committed + a.charged for a in (self._lines["decoded"][0], self._lines["prefilled"][0]))

    def inside(self, other: Budget) -> bool:
        """Whether all that is spent here counts in the other budget."""
        return other._lines["decoded"][0] in self._lines["decoded"]

    def split(self, parts: int, name: str = "share") -> list[Budget]:
        """Children that share out what remains evenly (the first ones get the remainder); unlimited stays unlimited."""
        if parts < 1:
            raise LedgerError(f"cannot split budget {self.name!r} into {parts} parts; give at least 1")
        left = {r: self.remaining(r) for r in RESOURCES}
        return [
            self.child(f"{name} {i}", Limits(**{r: _share(left[r], parts, i) for r in RESOURCES})) for i in range(parts)
        ]

    # -- reading ---------------------------------------------------------------------------------------------------

    def remaining(self, resource: Resource) -> float:
        """What can still be reserved, here and in all ancestors; infinite without a limit."""
        return max(0, min(account.left for account in self._lines[resource]))

    @property
    def seconds_left(self) -> float:
        """Time to the nearest deadline, here or above; infinite without one."""
        return max(0.0, self._deadline - self._clock())

    def held(self, resource: Resource) -> int:
        """What is reserved now and neither committed nor released yet."""
        own = self._lines[resource][0]
        return own.reserved - own.committed - own.released

    def overrun(self, resource: Resource) -> int:
        """What was charged beyond the limit: costs learned only after they arose (see `charge`)."""
        own = self._lines[resource][0]
        return 0 if own.left >= 0 else int(-own.left)

    @property
    def spent(self) -> Spent:
        """Everything spent so far, here and below."""
        own = {r: self._lines[r][0] for r in RESOURCES}
        return Spent(
            **{r: account.committed + account.charged for r, account in own.items()},
            seconds=self._clock() - self._opened,
            by_role={role: book.tokens for role, book in self._books.items()},
        )

    def check(self) -> None:
        """Assert conservation: reserved = committed + released + held, with nothing negative."""
        for resource, (own, *above) in self._lines.items():
            held = own.reserved - own.committed - own.released
            free = own.limit - own.reserved + own.released - own.charged
            if min(held, own.committed, own.released, own.charged) < 0 or own.left != free:
                raise LedgerError(f"budget {self.name!r}: {resource} does not add up, {held} held")
            for account in above:
                if account.reserved < own.reserved or account.charged < own.charged:
                    raise LedgerError(f"budget {self.name!r}: {resource} spent below does not count above")

    # -- spending --------------------------------------------------------------------------------------------------

    def reserve(self, resource: Resource, most: int, least: int | None = None) -> Hold | None:
        """Reserve up to `most` units here and above; None where fewer than `least` (default: `most`) are left."""
        line = self._lines[resource]
        granted = most
        for account in line:
            if account.left < granted:
                granted = int(account.left)
        if granted < (most if least is None else least) or granted < 0:
            return None
        return Hold(line, granted)

    def take(self, resource: Resource, amount: int = 1) -> bool:
        """Reserve and commit at once; False where that much is not left."""
        line = self._lines[resource]
        if any(account.left < amount for account in line):
            return False
        for account in line:
            account.reserved += amount
            account.committed += amount
            account.left -= amount
        return True

    def charge(self, resource: Resource, amount: int) -> None:
        """Book a cost learned only after it arose. It may overrun a limit; then nothing more can be reserved."""
        if amount < 0:
            raise LedgerError(f"cannot charge {amount} {resource} to budget {self.name!r}")
        for account in self._lines[resource]:
            account.charged += amount
            account.left -= amount

    def transfer(self, to: Budget, resource: Resource, amount: int) -> None:
        """Move part of this budget's ceiling to another one (a finished sibling's rest); limits above still hold."""
        giver, taker = self._lines[resource][0], to._lines[resource][0]
        if math.inf in (giver.limit, taker.limit):
            raise LedgerError(
                f"cannot transfer {resource}: {self.name!r} or {to.name!r} has no limit of its own to move"
            )
        if not 0 <= amount <= giver.left:
            raise LedgerError(f"cannot transfer {amount} {resource} from {self.name!r}: {giver.left:g} are free there")
        giver.limit -= amount
        giver.left -= amount
        taker.limit += amount
        taker.left += amount


def _ceiling(limit: int | None) -> float:
    return math.inf if limit is None else limit


def _share(left: float, parts: int, i: int) -> int | None:
    if math.isinf(left):
        return None
    each, rest = divmod(int(left), parts)
    return each + (i < rest)
