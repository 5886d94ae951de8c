"""Encoders, decoders and likelihoods."""

from svae.networks.encoder import Encoder, Evidence, mlp_decoder, mlp_encoder
from svae.networks.layers import MLP, Dense, LayerNorm, Residual
from svae.networks.likelihoods import Bernoulli, Categorical, Gamma, Gaussian, Likelihood, Poisson

__all__ = [
    "MLP",
    "Bernoulli",
    "Categorical",
    "Dense",
    "Encoder",
    "Evidence",
    "Gamma",
    "Gaussian",
    "LayerNorm",
    "Likelihood",
    "Poisson",
    "Residual",
    "mlp_decoder",
    "mlp_encoder",
]
