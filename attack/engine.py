"""TODO."""

from __future__ import annotations

from attack.frame import Attack

ATTACKS: tuple[Attack, ...] = ()
