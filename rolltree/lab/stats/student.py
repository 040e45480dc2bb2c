"""Student's t distribution, which allocators of rollouts need too; see `rolltree.control.student`."""

from __future__ import annotations

from rolltree.control.student import beta_inc, t_cdf, t_quantile

__all__ = ["beta_inc", "t_cdf", "t_quantile"]
