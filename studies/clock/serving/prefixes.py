"""Which prefixes of scenarios an instance keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from studies.clock.serving.traffic import Ask


@dataclass(slots=True, eq=False)
class Prefixes:
    """The latest used prefixes, as many as fit: their tokens need not be computed again."""

    room: int = 2
    hits: int = 0
    held: list[int] = field(default_factory=list[int])

    def fresh(self, ask: Ask) -> int:
        """Tokens of a prompt that must be computed; its prefix is kept from then on."""
        known = ask.scenario in self.held
        if known:
            self.held.remove(ask.scenario)
        self.held = [ask.scenario, *self.held][: self.room]
        self.hits += known
        return ask.context - (ask.prefix if known else 0)
