"""Exact inference in chains: blocks of a structured mean-field posterior."""

from svae.chains.discrete import DiscreteChain as DiscreteChain
from svae.chains.discrete import DiscreteChainTerms as DiscreteChainTerms
from svae.chains.discrete_potentials import FORBIDDEN as FORBIDDEN
from svae.chains.forms import BATCH as BATCH
from svae.chains.forms import Form as Form
from svae.chains.forms import best_form as best_form
from svae.chains.gaussian import GaussianChain as GaussianChain
from svae.chains.gaussian_terms import GaussianChainTerms as GaussianChainTerms
from svae.chains.gaussian_terms import natural_from_potentials as natural_from_potentials
from svae.chains.padding import Length as Length
from svae.chains.padding import valid_steps as valid_steps
from svae.chains.semi_markov import SemiMarkovChain as SemiMarkovChain
from svae.chains.semi_markov import SemiMarkovPath as SemiMarkovPath
from svae.chains.semi_markov import SemiMarkovTerms as SemiMarkovTerms
from svae.chains.steps import IndependentSteps as IndependentSteps
