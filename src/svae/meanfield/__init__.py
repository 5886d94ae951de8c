"""Structured mean field: the fixed-point problem, its solver, and its gradients. Knows no model."""

from svae.meanfield.adjoints import Adjoint as Adjoint
from svae.meanfield.adjoints import ConjugateGradients as ConjugateGradients
from svae.meanfield.adjoints import GaussSeidel as GaussSeidel
from svae.meanfield.adjoints import NoSolve as NoSolve
from svae.meanfield.adjoints import Richardson as Richardson
from svae.meanfield.adjoints import Unrolled as Unrolled
from svae.meanfield.fixed_point import fixed_point as fixed_point
from svae.meanfield.fixed_point import linear_system as linear_system
from svae.meanfield.problem import BlockPosterior as BlockPosterior
from svae.meanfield.problem import Blocks as Blocks
from svae.meanfield.problem import Problem as Problem
from svae.meanfield.problem import local_kl as local_kl
from svae.meanfield.problem import surrogate as surrogate
from svae.meanfield.solver import CoordinateAscent as CoordinateAscent
from svae.meanfield.solver import Solution as Solution
from svae.meanfield.solver import objective_per_sweep as objective_per_sweep
