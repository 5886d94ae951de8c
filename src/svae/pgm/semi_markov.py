r"""Semi-Markov switching linear dynamical system: how long states last has a distribution of its own.

$$ k' \sim \mathrm{Cat}(\pi_k),\; k' \ne k, \qquad d \sim \mathrm{NegBin}(r_{k'}, p_{k'}), $$

$$ \log p(d) = \log\binom{r + d - 1}{d} + d \log p + r \log(1 - p): $$

each segment lasts 1 + d steps and is followed by another state. With r = 1 that is the geometric distribution
of a Markov chain; larger r have a typical duration. Sizes r are a few numbers, with a conjugate prior jointly
with p (`svae.expfam.negative_binomial`).

Inference takes dwells of `max_dwell` and more for impossible. The model does not, so the bound stays a bound.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.special import gammaln

from svae.chains import FORBIDDEN, GaussianChain, Length, SemiMarkovChain, SemiMarkovPath, SemiMarkovTerms
from svae.expfam import (
    Dirichlet,
    DirichletParameters,
    GaussianTerms,
    MatrixNormalInverseWishart,
    MNIWParameters,
    NegativeBinomialParameters,
    NegativeBinomialPrior,
    NegativeBinomialTerms,
    NegativeBinomialValue,
    NIWParameters,
    NormalInverseWishart,
    Product,
    Terms,
    priced,
)
from svae.meanfield import Blocks
from svae.pgm import priors
from svae.pgm.base import chain_potential, shorten
from svae.pgm.particles import Evidence, Switching, draw_paths, log_probabilities, simulate
from svae.pgm.switching import SwitchingLinear, with_first

SIZES = np.array([1, *range(5, 101, 5)])  # that r may have
FAR = 10  # times the longest dwell, after which the chance to end no longer changes


class SemiMarkovSLDSGlobals(NamedTuple):
    """Those of an SLDS, with rows of pi that leave out the state itself, and (r_k, p_k)."""

    initial: Any
    dynamics: Any
    start: Any
    transition: Any
    dwell: Any


class SemiMarkovSLDS(SwitchingLinear):
    """A semi-Markov SLDS with unknown parameters. `move` is the prior's pseudo-count for each change.

    `stay` has no say here: it is how the second stage of training looks for states that last.
    """

    max_dwell: int = eqx.field(default=50, static=True)

    @property
    def family(self) -> Product:
        """Those of an SLDS, and of (r_k, p_k)."""
        return Product(
            SemiMarkovSLDSGlobals(
                NormalInverseWishart(),
                MatrixNormalInverseWishart(),
                Dirichlet(),
                Dirichlet(),
                NegativeBinomialPrior(len(SIZES)),
            )
        )

    def prior(self) -> SemiMarkovSLDSGlobals:
        """As the SLDS; all sizes alike, p ~ Beta(2, 2)."""
        two = jnp.full(len(SIZES), 2.0)
        return self._natural(self.path_prior(), 0.1, self.move, two, two)

    def initial(self, key: PRNGKeyArray) -> SemiMarkovSLDSGlobals:
        """As the SLDS; whatever the size, dwells of a fifth of the longest."""
        again = 1 / (1 + jnp.asarray(SIZES, float) / (self.max_dwell / 5))
        return self._natural(
            self.path_guess(key), 1.01, 0.91, priors.GUESS * again, priors.GUESS * (1 - again)
        )

    def _natural(
        self,
        path: tuple[NIWParameters, MNIWParameters],
        start: float,
        move: float,
        again: Float[Array, "r"],
        end: Float[Array, "r"],
    ) -> SemiMarkovSLDSGlobals:
        rows = lambda x: jnp.broadcast_to(x[None], (self.num_states, len(SIZES)))
        standard = SemiMarkovSLDSGlobals(
            *path,
            priors.flat(self.num_states, start),
            DirichletParameters(jnp.full(_others(self.num_states).shape, move)),
            NegativeBinomialParameters(
                rows(jnp.full_like(again, -np.log(len(SIZES)))), rows(again), rows(end)
            ),
        )
        return self.family.natural_from_standard(standard)

    def blocks(self, length: Length) -> tuple:
        """A Gaussian chain and the semi-Markov chain of its transitions."""
        states = SemiMarkovChain(self.num_states, self.max_dwell, shorten(length))
        return GaussianChain(length, self.form), priced(states, self.price)

    def states_energy(self, theta: Terms, states: SemiMarkovTerms) -> Float[Array, ""]:
        """E log p of the first state, of all changes, and of all dwells."""
        first = jnp.sum(states.node[:1] * theta.start.log_probability[None])
        changes = jnp.take_along_axis(states.transition, _others(self.num_states), axis=1)
        dwells = jnp.sum(states.dwell * dwell_log_probability(theta.dwell, self.max_dwell))
        return first + jnp.sum(changes * theta.transition.log_probability) + dwells

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """None on the states."""
        time, size, dtype = potential.first.shape[0], self.num_states, potential.first.dtype
        none = SemiMarkovTerms(
            jnp.zeros((max(time - 1, 0), size), dtype),
            jnp.zeros((size, size), dtype),
            jnp.zeros((size, self.max_dwell), dtype),
        )
        return chain_potential(potential), none

    def generate(
        self, key: PRNGKeyArray, parameters: SemiMarkovSLDSGlobals, num_steps: int
    ) -> tuple[Array, SemiMarkovPath]:
        """A path, and the states that ruled it."""
        path, modes = simulate(key, self._switching(parameters), num_steps)
        states = modes[1:] // self.max_dwell
        return path, SemiMarkovPath(states, _remaining(states))

    def complete_given(
        self,
        key: PRNGKeyArray,
        parameters: SemiMarkovSLDSGlobals,
        potentials: Blocks,
        count: int,
        length: Length,
    ) -> tuple[Array, Array]:
        """By particles, which remember their state and for how long they have been in it."""
        z, k = potentials
        evidence = Evidence(GaussianTerms(z.first, z.second), jnp.maximum(k.node, FORBIDDEN))
        paths = draw_paths(key, self._switching(parameters), evidence, self.num_particles, count, length)
        return paths.latents, with_first(paths.modes[:, 1:] // self.max_dwell)

    def _switching(self, parameters: SemiMarkovSLDSGlobals) -> Switching:
        """The mode is a state and the steps behind it, `max_dwell` - 1 or more counting as that many."""
        count, most = self.num_states, self.max_dwell
        ending = ending_probability(parameters.dwell, most)[:, :, None]
        same = jnp.eye(count, dtype=parameters.start.dtype)[:, None, :]
        rows = (1 - ending) * same + ending * self._rows(parameters)[:, None, :]
        states, elapsed = (jnp.arange(x, dtype=jnp.int32) for x in (count, most))
        longer = states[:, None] * most + jnp.minimum(elapsed + 1, most - 1)[None]
        entered = most * jnp.broadcast_to(states[None, None], rows.shape)
        successor = jnp.where(same > 0, longer[:, :, None], entered).reshape(-1, count)
        return Switching(
            jnp.asarray([count * most], jnp.int32),
            jnp.zeros(1, rows.dtype),
            jax.tree.map(lambda x: x[None], parameters.initial),
            parameters.dynamics,
            log_probabilities(jnp.concatenate([rows.reshape(-1, count), parameters.start[None]])),
            jnp.concatenate([successor, most * states[None]]),
        )

    def frame_states(self, states: SemiMarkovPath) -> Int[Array, "*batch time"]:
        """The first step has the state of the first transition."""
        return with_first(states.state)

    def _rows(self, parameters: SemiMarkovSLDSGlobals) -> Float[Array, "k k"]:
        """Probabilities of the next state."""
        empty, others = (
            jnp.zeros((self.num_states,) * 2, parameters.transition.dtype),
            _others(self.num_states),
        )
        return jnp.put_along_axis(empty, others, parameters.transition, axis=1, inplace=False)


def _remaining(states: Int[Array, "time"]) -> Int[Array, "time"]:
    """How many more steps each step's segment lasts, as far as can be seen."""
    ends = jnp.append(states[1:] != states[:-1], True)[: len(states)]
    count = lambda after, end: (jnp.where(end, 0, after + 1),) * 2
    return lax.scan(count, jnp.zeros((), jnp.int32), ends, reverse=True)[1]


def dwell_log_probability(theta: NegativeBinomialTerms, max_dwell: int) -> Float[Array, "k d"]:
    """E log p(d) of each state, for all dwells below `max_dwell`."""
    dtype, dwell, sizes = theta.size.dtype, np.arange(max_dwell), SIZES[:, None]
    ways = gammaln(sizes + dwell) - gammaln(dwell + 1) - gammaln(sizes)  # log of a binomial coefficient
    again, end = jnp.sum(theta.again, axis=-1), jnp.sum(jnp.asarray(SIZES, dtype)[None] * theta.end, axis=-1)
    linear = again[:, None] * jnp.asarray(dwell, dtype)[None] + end[:, None]
    return jnp.sum(theta.size[:, :, None] * jnp.asarray(ways, dtype)[None], axis=1) + linear


def ending_probability(dwell: NegativeBinomialValue, max_dwell: int) -> Float[Array, "k d"]:
    """P(d = e | d >= e) for e below `max_dwell`.

    Its inverse x follows x_e = 1 + x_{e+1} p(e + 1) / p(e), in which nothing cancels and nothing vanishes.
    """
    size, again = jnp.asarray(SIZES, dwell.again.dtype)[dwell.size], dwell.again
    elapsed = jnp.arange(FAR * max_dwell, dtype=again.dtype)

    def step(after, e):
        here = 1 + after * again * (size + e) / (e + 1)
        return here, here

    inverse = lax.scan(step, 1 / (1 - again), elapsed, reverse=True)[1][:max_dwell]
    return 1 / inverse.T


def _others(num_states: int) -> Int[np.ndarray, "k others"]:
    """The states that may follow each state: all but itself, or itself if there are no others."""
    if num_states == 1:
        return np.zeros((1, 1), np.int32)
    return np.array([[j for j in range(num_states) if j != i] for i in range(num_states)], np.int32)
