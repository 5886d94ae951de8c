"""A small instance of every model, for the tests that run over all of them."""

from functools import cache

import equinox as eqx
import jax

from helpers import users_rules
from svae.expfam import BIASED
from svae.meanfield import Unrolled
from svae.models import (
    make_discrete_dks,
    make_dks,
    make_recognition,
    make_srnn,
    make_svae,
    make_transformer_vae,
    make_vqvae,
)
from svae.networks import Concrete, Gaussian, StraightThrough, mlp_decoder, mlp_encoder
from svae.pgm import HMM, LDS, SLDS, GaussianMixture, JumpingSLDS, SemiMarkovSLDS, StandardNormal

FEATURES, LATENT, STATES, HIDDEN, TIME = 3, 2, 3, 4, 6


def _svae(pgm, own_recognition=False, **settings):
    def make(likelihood, key):
        encoder_key, decoder_key, key = jax.random.split(key, 3)
        encoder = mlp_encoder(FEATURES, LATENT, encoder_key, (HIDDEN,))
        decoder = mlp_decoder(LATENT, FEATURES, decoder_key, (HIDDEN,))
        recognition = make_recognition(pgm, key) if own_recognition else None
        networks = {"encoder": encoder, "decoder": decoder, "recognition": recognition}
        return make_svae(pgm, likelihood, FEATURES, key, **networks, **settings)

    return make


def _network(make, *sizes):
    return lambda likelihood, key: make(likelihood, FEATURES, key, *sizes)


def _discrete(relaxation):
    make = lambda *known, **sizes: make_discrete_dks(*known, relaxation(), **sizes)
    sizes = {
        "latent_dim": LATENT,
        "num_states": STATES,
        "hidden": (5, HIDDEN),
        "evidence": 6,
        "width": HIDDEN,
    }
    return lambda likelihood, key: make(likelihood, FEATURES, key, **sizes)


SMALL = {
    "vae": _svae(StandardNormal(LATENT)),
    "svae-hmm": _svae(HMM(STATES, LATENT)),
    "svae-lds": _svae(LDS(LATENT)),
    "svae-slds": _svae(SLDS(STATES, LATENT, num_particles=20)),
    "svae-slds-bias": _svae(SLDS(STATES, LATENT, num_particles=20), rule=BIASED, adjoint=Unrolled()),
    "svae-gmm": _svae(GaussianMixture(STATES, LATENT)),
    "sin-lds": _svae(LDS(LATENT), own_recognition=True),
    "sin-slds": _svae(SLDS(STATES, LATENT), own_recognition=True),
    "svae-hsmm-slds": _svae(SemiMarkovSLDS(STATES, LATENT, num_particles=50, max_dwell=10)),
    "svae-jslds": _svae(JumpingSLDS(STATES, LATENT, num_particles=50)),
    "srnn": _network(make_srnn, LATENT, 5, HIDDEN),
    "dks": _network(make_dks, LATENT, (5, HIDDEN), 6),
    "dks-concrete": _discrete(Concrete),
    "dks-straight-through": _discrete(StraightThrough),
    "transformer-dvae": _network(make_transformer_vae, LATENT, HIDDEN),
    "vq-vae": _network(make_vqvae, LATENT, STATES, (5, HIDDEN), HIDDEN),
}
GRAPHICAL = [name for name in SMALL if name.startswith(("vae", "svae", "sin"))]
SEQUENTIAL = [name for name in SMALL if name not in GRAPHICAL]
STATELESS = ["vae", "svae-lds", "sin-lds", "srnn", "dks", "transformer-dvae"]
DISCRETE = [name for name in SMALL if name not in STATELESS]


@cache
def small(name, seed=0):
    """The same instance for all who ask."""
    with users_rules("raise"):
        return _make(name, jax.random.key(seed))


@eqx.filter_jit
def _make(name, key):
    made = SMALL[name](Gaussian(FEATURES), key)
    explicit = lambda x: jax.lax.convert_element_type(x, x.dtype)  # else a second step would compile anew
    return jax.tree.map(lambda x: explicit(x) if eqx.is_array(x) else x, made)
