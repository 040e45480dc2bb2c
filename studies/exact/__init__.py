"""Small problems where the true gradient, value and advantage can be enumerated, to hold estimators against."""

from studies.exact.forest import Forks, sample
from studies.exact.measure import ExactMeasure, measure, measure_all
from studies.exact.problem import Problem, Solved, solve
from studies.exact.problems import PROBLEMS

__all__ = ["PROBLEMS", "ExactMeasure", "Forks", "Problem", "Solved", "measure", "measure_all", "sample", "solve"]
