"""Training. The package is also the function: `rolltree.train("grpo", policy, "countdown", out="runs/first")`.

Importing any module below binds the name `train` in `rolltree` to this package, so a function of that name beside it
would work or not depending on what was imported before. A package that can be called always works.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolltree.train.start import Result


class _Callable(ModuleType):
    def __call__(self, *args: Any, **knobs: Any) -> Result:
        """See `rolltree.train.start.train`."""
        from rolltree.train.start import train

        return train(*args, **knobs)


sys.modules[__name__].__class__ = _Callable
