r"""Structured inference networks (SIN): inference by dynamics that share nothing with the model's.

$$ q(z) \propto N(z_1; m, T^{-1}) \prod_{t=2}^{T} N(z_t; X [z_{t-1}; 1], \Lambda^{-1})
   \prod_t \exp\{\hat\ell(x_t, z_t)\}, \qquad q(k) \propto e^{a_{k_2}} \prod_t e^{B_{k_{t-1} k_t}} $$

Inference takes the statistics of these parameters where an SVAE takes those that are expected under
$q(\theta)$; nothing else differs. The local KL is still one to the model, so the normaliser of a transition
counts T - 1 times, as often as there are transitions. Of a switching model, one dynamics serves all states:
data then tell nothing about them, and $q(k)$ is the same for every sequence.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from svae import linalg
from svae.expfam import (
    DirichletTerms,
    GaussianParameters,
    LinearGaussian,
    MatrixNormalInverseWishart,
    NormalInverseWishart,
    Terms,
)
from svae.pgm import LDS, SLDS, GraphicalModel, LDSGlobals, SLDSGlobals, priors

RIDGE = 1e-8  # of precisions


class Recognition(eqx.Module):
    """The parameters of q(z), and of q(k) if there are states: numbers to be learned like networks."""

    initial_mean: Float[Array, "n"]
    initial_root: Float[Array, "n n"]  # of the precision: root root'
    weights: Float[Array, "n m"]
    noise_root: Float[Array, "n n"]
    start: Float[Array, "k"] | None = None  # scores; they need not be normalised
    transition: Float[Array, "k k"] | None = None

    def stats(self) -> Terms:
        """In the place of E_q(theta) t(theta)."""
        normal = GaussianParameters(self.initial_mean, _covariance(self.initial_root))
        initial = NormalInverseWishart().sufficient_stats(normal)
        regression = LinearGaussian(self.weights, _covariance(self.noise_root))
        dynamics = MatrixNormalInverseWishart().sufficient_stats(regression)
        if self.start is None or self.transition is None:
            return LDSGlobals(initial, dynamics)
        states = self.start.shape
        shared = jax.tree.map(lambda x: jnp.broadcast_to(x, states + x.shape), dynamics)
        return SLDSGlobals(initial, shared, DirichletTerms(self.start), DirichletTerms(self.transition))


def _covariance(root: Float[Array, "n n"]) -> Float[Array, "n n"]:
    precision = linalg.matmul(root, linalg.transpose(root))
    return linalg.inverse(precision + RIDGE * linalg.identity_like(root))


def make_recognition(pgm: GraphicalModel, key: PRNGKeyArray) -> Recognition:
    """Slow decay, without the paper's random couplings: in many dimensions those grow without bounds wherever
    data are missing, and training, which sees all frames, need not mend it. Scores of the states are as a
    first guess of the model has them."""
    if not isinstance(pgm, LDS | SLDS):
        raise ValueError(f"{type(pgm).__name__} has no recognition dynamics; lds and slds have")
    n = pgm.latent_dim
    linear = Recognition(jnp.zeros(n), jnp.eye(n), priors.dynamics_mean(n), jnp.eye(n))
    if isinstance(pgm, LDS):
        return linear
    guess = pgm.family.expected_stats(pgm.initial(key))
    scores = guess.start.log_probability, guess.transition.log_probability
    where = lambda x: (x.start, x.transition)
    return eqx.tree_at(where, linear, scores, is_leaf=lambda x: x is None)
