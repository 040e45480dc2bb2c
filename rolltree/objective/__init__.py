"""Objectives: pure functions from a batch of packed trees to a scalar to minimise."""

from rolltree.objective.batch import Batch, Level, Objective, ObjectiveError, Paths, fit
from rolltree.objective.registry import OBJECTIVES, load_objective

__all__ = ["OBJECTIVES", "Batch", "Level", "Objective", "ObjectiveError", "Paths", "fit", "load_objective"]
