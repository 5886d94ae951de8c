"""Small instances of every graphical model, with data, for the tests that run over all of them."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from svae.chains import Form
from svae.expfam import ParameterPosterior, fixed_parameters, parameter_posterior
from svae.pgm import HMM, LDS, SLDS, GaussianMixture, JumpingSLDS, SemiMarkovSLDS, StandardNormal


def load_script(path):
    """Import a script of the repository by its path."""
    file = Path(__file__).parents[1] / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODELS = {
    "normal": StandardNormal(2),
    "mixture": GaussianMixture(3, 2),
    "hmm": HMM(3, 2),
    "lds": LDS(2),
    "lds-parallel": LDS(2, form=Form.PARALLEL),
    "slds": SLDS(3, 2),
    "slds-parallel": SLDS(3, 2, form=Form.PARALLEL),
    "jslds": JumpingSLDS(3, 2),
    "hsmm-slds": SemiMarkovSLDS(3, 2, max_dwell=12),
    "coupled": load_script("examples/coupled_chains.py").CoupledChains(2, 3, 2),
}
ITERATIVE = ["mixture", "hmm", "slds", "jslds", "hsmm-slds", "coupled"]


class Case(NamedTuple):
    """A posterior over parameters and one sequence's potentials."""

    unconstrained: tuple
    posterior: ParameterPosterior
    linear: jax.Array
    precision: jax.Array
    potentials: tuple


def random_case(model, seed=0, time=8, missing=(3, 5)):
    """Random parameters and potentials, some steps missing."""
    return _random_case(model, jnp.asarray(seed), time, missing)


@eqx.filter_jit
def _random_case(model, seed, time, missing):
    keys = jax.random.split(jax.random.key(seed), 3)
    unconstrained = model.family.unconstrained_from_natural(model.initial(keys[0]))
    linear = 2 * jax.random.normal(keys[1], (time, model.latent_dim))
    precision = jax.random.gamma(keys[2], 2.0, (time, model.latent_dim))
    observed = (jnp.arange(time) < missing[0]) | (jnp.arange(time) >= missing[1])
    linear, precision = (jnp.where(observed[:, None], x, 0) for x in (linear, precision))
    posterior = parameter_posterior(model.family, unconstrained)
    return Case(unconstrained, posterior, linear, precision, model.potentials(linear, precision))


@eqx.filter_jit
def random_parameters(model, key):
    """Known parameters, drawn from where training starts."""
    return model.family.sample(key, model.initial(key))


@eqx.filter_jit
def known(model, parameters):
    """A posterior that knows the parameters."""
    return fixed_parameters(model.family, parameters)


@eqx.filter_jit
def energy(model, theta, stats):
    """Compiled energy, of a whole sequence."""
    return model.energy(theta, stats, None)


@eqx.filter_jit
def infer(model, posterior, potentials, **options):
    """Compiled inference."""
    return model.infer(posterior, potentials, **options)
