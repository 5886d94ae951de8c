"""Models without a graph, as settings describe them."""

from jaxtyping import PRNGKeyArray

from svae.config import ModelSettings
from svae.models import (
    SequentialModel,
    make_discrete_dks,
    make_dks,
    make_srnn,
    make_transformer_vae,
    make_vqvae,
)
from svae.networks import Concrete, Likelihood, StraightThrough


def untrained_baseline(
    settings: ModelSettings, likelihood: Likelihood, num_features: int, key: PRNGKeyArray
) -> SequentialModel:
    """With random networks. `model.hidden` are the widths of what sees a frame and of what remembers them."""
    known, latent, states = (likelihood, num_features, key), settings.latent_dim, settings.num_states
    if settings.kind == "transformer-dvae":
        return make_transformer_vae(*known, latent, settings.hidden[0])
    if len(settings.hidden) != 2:
        raise ValueError(f"{settings.kind} has two widths, and model.hidden is {list(settings.hidden)}")
    wide, hidden = settings.hidden
    match settings.kind:
        case "srnn":
            return make_srnn(*known, latent, wide, hidden)
        case "dks":
            return make_dks(*known, latent, (wide, hidden))
        case "dks-concrete":
            return make_discrete_dks(*known, Concrete(), latent, states, (wide, hidden))
        case "dks-straight-through":
            return make_discrete_dks(*known, StraightThrough(), latent, states, (wide, hidden))
        case "vq-vae":
            return make_vqvae(*known, latent, states, (wide, hidden), hidden)
    raise ValueError(f"there is no model of kind {settings.kind} without a graph")
