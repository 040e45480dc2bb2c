"""Calling a module with another computation in the place of its forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def through(module: Any, run: Callable[..., Any], *inputs: Any) -> Any:
    """What `run` returns, with everything around it that surrounds the module's own forward.

    FSDP2 gathers a module's weights in a hook before its forward and frees them in one behind it, and finds in inputs
    and outputs where its backward pass begins and ends: so tensors go in as `inputs` and come out in tuples.
    """
    module.forward = run
    try:
        return module(*inputs)
    finally:
        del module.forward
