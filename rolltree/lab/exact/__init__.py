"""Small problems where the true gradient, value and advantage can be enumerated, to hold estimators against."""

from rolltree.lab.exact.forest import Forks, sample
from rolltree.lab.exact.measure import ExactMeasure, measure, measure_all
from rolltree.lab.exact.problem import Problem, Solved, solve
from rolltree.lab.exact.problems import PROBLEMS

__all__ = ["PROBLEMS", "ExactMeasure", "Forks", "Problem", "Solved", "measure", "measure_all", "sample", "solve"]
