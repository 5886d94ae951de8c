"""Encoders, decoders and likelihoods, and the layers of recurrent and attentive models."""

from svae.networks.attention import AttentionEncoder, CausalDecoder, earlier, same_block
from svae.networks.encoder import Encoder, Evidence, mlp_decoder, mlp_encoder, only_present
from svae.networks.layers import MLP, Dense, DenseBlock, LayerNorm, Residual
from svae.networks.likelihoods import Bernoulli, Categorical, Gamma, Gaussian, Likelihood, Poisson
from svae.networks.recurrent import LSTM, BackwardEncoder, LSTMState, follows, precedes, shifted
from svae.networks.relaxations import COLDEST, Concrete, Relaxation, StraightThrough
from svae.networks.steps import step_by_step
from svae.networks.transitions import Combiner, GatedTransition, Normal, either, positive

__all__ = [
    "COLDEST",
    "LSTM",
    "MLP",
    "AttentionEncoder",
    "BackwardEncoder",
    "Bernoulli",
    "Categorical",
    "CausalDecoder",
    "Combiner",
    "Concrete",
    "Dense",
    "DenseBlock",
    "Encoder",
    "Evidence",
    "Gamma",
    "GatedTransition",
    "Gaussian",
    "LSTMState",
    "LayerNorm",
    "Likelihood",
    "Normal",
    "Poisson",
    "Relaxation",
    "Residual",
    "StraightThrough",
    "earlier",
    "either",
    "follows",
    "mlp_decoder",
    "mlp_encoder",
    "only_present",
    "positive",
    "precedes",
    "same_block",
    "shifted",
    "step_by_step",
]
