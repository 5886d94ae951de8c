"""Graphical models: priors, blocks and one energy function each."""

from svae.pgm.base import GraphicalModel as GraphicalModel
from svae.pgm.base import Inference as Inference
from svae.pgm.base import num_draws as num_draws
from svae.pgm.bridges import bridge as bridge
from svae.pgm.hmm import HMM as HMM
from svae.pgm.hmm import HMMGlobals as HMMGlobals
from svae.pgm.jslds import JumpingSLDS as JumpingSLDS
from svae.pgm.jslds import JumpingSLDSGlobals as JumpingSLDSGlobals
from svae.pgm.lds import LDS as LDS
from svae.pgm.lds import LDSGlobals as LDSGlobals
from svae.pgm.mixture import GaussianMixture as GaussianMixture
from svae.pgm.mixture import MixtureGlobals as MixtureGlobals
from svae.pgm.normal import StandardNormal as StandardNormal
from svae.pgm.placed import PlacedSLDS as PlacedSLDS
from svae.pgm.semi_markov import SemiMarkovSLDS as SemiMarkovSLDS
from svae.pgm.semi_markov import SemiMarkovSLDSGlobals as SemiMarkovSLDSGlobals
from svae.pgm.slds import SLDS as SLDS
from svae.pgm.slds import SLDSGlobals as SLDSGlobals
