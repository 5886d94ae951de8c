"""Models as settings describe them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from svae.chains import Form, best_form
from svae.compiling import once
from svae.config import Config
from svae.data import DataError, Recordings
from svae.durations import frames_from_duration
from svae.expfam import BIASED, PLAIN, UNBIASED
from svae.meanfield import ConjugateGradients, CoordinateAscent, NoSolve, Richardson, Unrolled
from svae.models import SVAE, Model, Recognition, make_recognition, make_svae
from svae.networks import (
    MLP,
    Bernoulli,
    Categorical,
    Gamma,
    Gaussian,
    Likelihood,
    Poisson,
    Residual,
    mlp_decoder,
    mlp_encoder,
)
from svae.pgm import (
    HMM,
    LDS,
    SLDS,
    GaussianMixture,
    GraphicalModel,
    JumpingSLDS,
    PlacedSLDS,
    SemiMarkovSLDS,
    StandardNormal,
)
from svae.training.baselines import untrained_baseline

LEAVING = 0.5  # the prior's pseudo-counts for changing the state, in all
# And for each change at least. With fewer, changes that were never seen would be all but forbidden, and lie
# out of the range in which messages of states are probabilities (`svae.chains.discrete`).
LEAST_MOVE = 0.05
STAY = 50.0  # pseudo-counts for staying
ADJOINTS = {
    "richardson": Richardson(),
    "conjugate-gradients": ConjugateGradients(),
    "no-solve": NoSolve(),
    "unrolled": Unrolled(),
}
RULES = {"unbiased": UNBIASED, "biased": BIASED, "plain": PLAIN}


class GraphPrior(NamedTuple):
    """What the graphical model takes from the data: scales, dynamics, durations, places, states used."""

    innovation: float | None = None
    price: float = 1.0  # of states
    num_states: int | None = None  # those of the settings, if None
    dynamics: Sequence | None = None  # nested; see `SLDS`
    places: Sequence | None = None  # nested; see `PlacedSLDS`


def likelihood_for(config: Config, num_features: int) -> Likelihood:
    """The likelihood that the settings name."""
    name = config.model.likelihood
    if name == "gaussian":
        return Gaussian(num_features)
    if name == "categorical":
        if config.model.num_classes is None:
            raise ValueError("a categorical likelihood needs model.num_classes")
        return Categorical(config.model.num_classes)
    return {"gamma": Gamma, "bernoulli": Bernoulli, "poisson": Poisson}[name]()


def require_possible(recordings: Recordings, config: Config) -> None:
    """Data and settings must go together; better to know before hours of training than after."""
    likelihood = likelihood_for(config, recordings.num_features)
    if config.model.kind != "svae":
        known = config.model, likelihood, recordings.num_features, jax.random.key(0)
        eqx.filter_eval_shape(untrained_baseline, *known)
    elif config.model.own_recognition and config.model.graph not in ("lds", "slds"):
        raise ValueError(f"model.own_recognition is for graphs lds and slds, not {config.model.graph}")
    elif config.model.own_starts and (config.model.graph != "slds" or config.model.own_recognition):
        named = "SIN" if config.model.own_recognition else config.model.graph
        raise ValueError(f"model.own_starts is for graph slds, not {named}")
    if config.model.typical_duration is not None:
        frames_from_duration(config.model.typical_duration, recordings.rate, "model.typical_duration")
    name, classes = config.model.likelihood, config.model.num_classes
    whole = lambda x: x == np.round(x)
    domains = {
        "gamma": ("not negative", lambda x: x >= 0),
        "bernoulli": ("0 or 1", lambda x: (x == 0) | (x == 1)),
        "poisson": ("counts: whole and not negative", lambda x: whole(x) & (x >= 0)),
        "categorical": (f"classes: 0 to {(classes or 0) - 1}", lambda x: whole(x) & (x >= 0) & (x < classes)),
    }
    if name not in domains:
        return
    wanted, good = domains[name]
    for item in recordings:
        bad = np.argwhere(~np.isnan(item.values) & ~good(item.values))
        if len(bad):
            frame, column = bad[0]
            value, channel = item.values[frame, column], recordings.channels[column]
            raise DataError(
                f"a {name} likelihood needs numbers that are {wanted}; frame {frame} of channel '{channel}' "
                f"is {value:g}. Choose another model.likelihood",
                recording=item.name,
            )


def graph_for(config: Config, prior: GraphPrior) -> GraphicalModel:
    """The graphical model."""
    settings, latent = config.model, config.model.latent_dim
    form = best_form() if settings.form is None else Form(settings.form)
    states = settings.num_states if prior.num_states is None else prior.num_states
    move = max(LEAVING / max(states - 1, 1), LEAST_MOVE)
    # What the prior has seen has its price too: counts of the data do
    pseudo_counts = {"stay": prior.price * STAY, "move": prior.price * move}
    switching: dict[str, Any] = {**pseudo_counts, "price": prior.price}
    moving = {**switching, "innovation": prior.innovation}
    dynamics, places = _hashable(prior.dynamics), _hashable(prior.places)
    match settings.graph:
        case "normal":
            return StandardNormal(latent)
        case "mixture":
            return GaussianMixture(states, latent)
        case "lds":
            return LDS(latent, form, prior.innovation)
        case "hmm":
            return HMM(states, latent, form, **switching)
        case "slds" if settings.own_starts:
            return PlacedSLDS(states, latent, form, **moving, dynamics=dynamics, places=places)
        case "slds":
            return SLDS(states, latent, form, **moving, dynamics=dynamics)
        case "jslds":
            return JumpingSLDS(states, latent, form, **moving)
        case "hsmm-slds":
            return SemiMarkovSLDS(states, latent, form, **moving, dynamics=dynamics)


def _hashable(nested: Any) -> Any:
    """Lists, as files have them, as tuples."""
    return tuple(map(_hashable, nested)) if isinstance(nested, list | tuple) else nested


def untrained(config: Config, num_features: int, prior: GraphPrior) -> Any:
    """A model of any kind, with random networks."""
    return once(lambda: _described(config, num_features, prior))


def blank(config: Config, num_features: int, prior: GraphPrior) -> Any:
    """The same with shapes in place of arrays."""
    return eqx.filter_eval_shape(lambda: _described(config, num_features, prior))


def _described(config: Config, num_features: int, prior: GraphPrior) -> Model:
    likelihood = likelihood_for(config, num_features)
    if config.model.kind == "svae":
        return _described_svae(config, likelihood, num_features, prior)
    return untrained_baseline(config.model, likelihood, num_features, jax.random.key(config.seed))


def _described_svae(config: Config, likelihood: Likelihood, num_features: int, prior: GraphPrior) -> SVAE:
    """A graphical model between random networks."""
    settings, joint = config.model, config.joint
    kind = Residual if settings.linear else MLP
    key, encoder_key, decoder_key = jax.random.split(jax.random.key(config.seed), 3)
    encoder = mlp_encoder(
        likelihood.encoder_inputs(num_features),
        settings.latent_dim,
        encoder_key,
        settings.hidden,
        settings.precision_per_step,
        kind,
    )
    outputs = likelihood.num_outputs(num_features)
    decoder = mlp_decoder(settings.latent_dim, outputs, decoder_key, settings.hidden, kind)
    solver = CoordinateAscent(joint.max_sweeps, joint.tolerance)
    graph = graph_for(config, prior)
    return make_svae(
        graph,
        likelihood,
        num_features,
        key,
        encoder=encoder,
        decoder=decoder,
        solver=solver,
        rule=RULES[joint.gradient],
        adjoint=ADJOINTS[joint.adjoint],
        recognition=recognition_for(config, graph),
    )


def recognition_for(config: Config, graph: GraphicalModel) -> Recognition | None:
    """Untrained dynamics of inference, if it shall have its own."""
    if not config.model.own_recognition:
        return None
    return make_recognition(graph, jax.random.fold_in(jax.random.key(config.seed), 1))
