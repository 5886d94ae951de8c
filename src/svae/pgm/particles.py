r"""Draws from the exact posterior of a switching linear dynamical system, by particles.

Across a gap in the data the posterior has many peaks, one for each way in which the states may have
changed, and mean field keeps one of them. Here a particle is a path of states; given its path, $z$ is
Gaussian and known exactly (a Kalman filter for each particle). All continuations of all particles by one
step are weighed by what they say about the data, and resampled to as many as there were; then paths are
drawn backwards in time, so that what was seen after a gap decides about what happened in it.

What a particle must remember of its path is its *mode* $s$: its state, and perhaps for how long. Each way to
go on is a *rule* $k$ with dynamics of its own, a probability and a next mode (`Switching`).

$$ w(i, k) = p(k \mid s_i) \int N(z; m_{ik}, P_{ik})\, e^{r^\top z - z^\top R z / 2}\, dz, \qquad
   m_{ik} = A_k m_i + b_k, \quad P_{ik} = A_k P_i A_k^\top + Q_k $$

**New paths** (`simulate`) have no data to hold them. A rule that was only ever seen in one place says nothing
about others, and one that expands runs away if it lasts too long. Draws from a posterior know the inputs they
were learned from: a path begins where its first rule was learned, and ways to begin and rules that would lead
far away from there lose to others. Paths that have left the last data behind go on in the same way.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae import linalg
from svae.chains import FORBIDDEN, Length
from svae.chains.padding import valid_steps, zero_padding
from svae.expfam import GaussianParameters, GaussianTerms, LinearGaussian, MNIWTerms
from svae.linalg import matmul, matvec, transpose
from svae.pgm.base import sample_normal


class Learned(NamedTuple):
    """Draws of dynamics, and what they were learned from: the sum of p p' over inputs p = [z; 1]."""

    weights: Float[Array, "*k n m"]
    covariance: Float[Array, "*k n n"]
    inputs: Float[Array, "*k m m"]


def learned(draws: LinearGaussian, natural: MNIWTerms) -> Learned:
    """Draws from an MNIW, along a leading axis, together with its V."""
    count = draws.weights.shape[0]
    return Learned(*draws, jnp.broadcast_to(natural.input, (count, *natural.input.shape)))


class Switching(NamedTuple):
    """A linear system that switches, with known parameters: how paths begin, and how they go on."""

    begin: Int[Array, "f"]  # modes that the first step may have
    start: Float[Array, "f"]  # their log-probabilities
    initial: GaussianParameters  # z_1 in each of them
    dynamics: LinearGaussian | Learned  # of each rule
    log_probability: Float[Array, "s k"]  # of each rule, given the mode
    successor: Int[Array, "s k"]  # the mode to which a rule leads


def log_probabilities(rows: Float[Array, "*b k"]) -> Float[Array, "*b k"]:
    """Logarithms, of zeros too."""
    return jnp.log(jnp.maximum(rows, jnp.finfo(rows.dtype).tiny))


def markov_switching(
    initial: GaussianParameters,
    dynamics: LinearGaussian | Learned,
    start: Float[Array, "k"],
    transition: Float[Array, "k k"],
) -> Switching:
    """Rules that follow each other as a Markov chain does. The mode is the last rule, K before the first."""
    count = start.shape[0]
    rows = jnp.concatenate([transition, start[None]])
    return Switching(
        jnp.asarray([count], jnp.int32),
        jnp.zeros(1, start.dtype),
        jax.tree.map(lambda x: x[None], initial),
        dynamics,
        log_probabilities(rows),
        jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[None], rows.shape),
    )


STRANGE = 4.0  # deviations by which a squared distance exceeds its mean when it begins to count


def strange(size: int) -> float:
    """The squared distance of so many numbers, in their deviations, that begins to count against a rule."""
    return size + STRANGE * (2 * size) ** 0.5


def strangeness(seen: Float[Array, "k m m"]) -> Callable[[Float[Array, "k n"]], Float[Array, "k"]]:
    """What counts against rules in these places, one for each.

    With V the sum of p p' over the N inputs p = [z; 1] that a rule was learned from, N p' V^-1 p is one more
    than the squared distance of z from their mean, in deviations.
    """
    whitening, count = linalg.inverse_cholesky(seen), seen[..., -1, -1]

    def excess(places: Float[Array, "k n"]) -> Float[Array, "k"]:
        white = matvec(whitening, jnp.concatenate([places, jnp.ones_like(places[:, :1])], axis=1))
        distance = count * jnp.sum(white**2, axis=-1) - 1
        return jnp.maximum(distance - strange(places.shape[-1]), 0)

    return excess


def familiar_ways(
    system: Switching,
) -> Callable[[Int[Array, ""], Float[Array, "k n"]], Float[Array, "k"]]:
    """Log-probabilities of rules by which a path may go on, given its mode and where each would lead it."""
    if not isinstance(system.dynamics, Learned):
        return lambda mode, ahead: system.log_probability[mode]
    excess = strangeness(system.dynamics.inputs)
    return lambda mode, ahead: _sound(system.log_probability[mode] - excess(ahead))


Now = tuple[Float[Array, "n"], Int[Array, ""]]  # z and the mode
Path = tuple[Float[Array, "time n"], Int[Array, "time"]]  # of all steps


def familiar_start(key: PRNGKeyArray, system: Switching) -> tuple[Now, Int[Array, ""]]:
    """How a new path begins, and the rule by which it goes on.

    Where it is known what rules were learned from, all ways to begin are drawn, and those lose that begin far
    away from there. If there is but one, z_1 is there as well: both are normal, and together their product.
    """
    choice_key, rule_key, key = jax.random.split(key, 3)
    rules = jax.random.categorical(rule_key, system.log_probability[system.begin])
    seen = system.dynamics.inputs[rules] if isinstance(system.dynamics, Learned) else None
    initial, scores = system.initial, system.start
    if seen is not None and len(rules) == 1:
        initial = also_where_learned(initial, seen)
    places = jax.vmap(sample_normal)(jax.random.split(key, len(rules)), *initial)
    if seen is not None:
        scores = _sound(scores - strangeness(seen)(places))
    chosen = jax.random.categorical(choice_key, scores)
    return (places[chosen], system.begin[chosen]), rules[chosen]


def also_where_learned(initial: GaussianParameters, seen: Float[Array, "f m m"]) -> GaussianParameters:
    """The product of normals: how paths begin, and what rules were learned from."""
    mean, covariance = initial
    learned = seen[:, -1:, -1:] * linalg.inverse(seen)  # N V^-1, as in `strangeness`
    beginning = linalg.inverse(covariance)
    both = linalg.inverse(beginning + learned[:, :-1, :-1])
    return GaussianParameters(matvec(both, matvec(beginning, mean) - learned[:, :-1, -1]), both)


def onwards(system: Switching) -> Callable[..., Now]:
    """One step of a path without data, by the rule that is given or by one that it chooses."""
    weights, roots = system.dynamics.weights, _root(system.dynamics.covariance)
    ways = familiar_ways(system)

    def step(now: Now, key: PRNGKeyArray, rule: Int[Array, ""] | None = None) -> Now:
        z, mode = now
        rule_key, noise_key = jax.random.split(key)
        ahead = jnp.sum(weights[..., :-1] * z[None, None], axis=-1) + weights[..., -1]
        rule = jax.random.categorical(rule_key, ways(mode, ahead)) if rule is None else rule
        z = ahead[rule] + matvec(roots[rule], jax.random.normal(noise_key, z.shape, z.dtype))
        return z, system.successor[mode, rule]

    return step


def simulate(key: PRNGKeyArray, system: Switching, num_steps: int) -> Path:
    """A path without any data, and its modes."""
    first_key, second_key, key = jax.random.split(key, 3)
    step = onwards(system)
    first, rule = familiar_start(first_key, system)
    second = step(first, second_key, rule)
    on = lambda now, key: (step(now, key),) * 2
    rest = lax.scan(on, second, jax.random.split(key, max(num_steps - 2, 0)))[1]
    joined = lambda x, y, xs: jnp.concatenate([x[None], y[None], xs])[:num_steps]
    path, modes = jax.tree.map(joined, first, second, rest)
    return path, modes


def go_on(key: PRNGKeyArray, system: Switching, known: Path, last: Int[Array, ""]) -> Path:
    """A path up to step `last`, and from there on as a new one."""
    step, count = onwards(system), len(known[1])

    def along(before: Now, x: tuple) -> tuple[Now, Now]:
        own, at, key = x
        now = jax.tree.map(lambda old, new: jnp.where(at <= last, old, new), own, step(before, key))
        return now, now

    inputs = known, jnp.arange(count), jax.random.split(key, count)
    return lax.scan(along, jax.tree.map(lambda x: x[0], known), inputs)[1]


class Evidence(NamedTuple):
    """Potentials on one sequence: Gaussian ones on the path, log-potentials on the rules of its steps."""

    path: GaussianTerms
    rules: Float[Array, "time_minus_1 k"]


class Particles(NamedTuple):
    """Equally weighted: the mode, the rule that led to it (0 at the first step), and z given the path."""

    mode: Int[Array, "*time particles"]
    rule: Int[Array, "*time particles"]
    mean: Float[Array, "*time particles n"]
    covariance: Float[Array, "*time particles n n"]


class Paths(NamedTuple):
    """Draws of one sequence's latent variables."""

    latents: Float[Array, "draws time n"]
    modes: Int[Array, "draws time"]
    log_evidence: Float[Array, ""]  # of potentials that are one at their highest; an estimate


def draw_paths(
    key: PRNGKeyArray,
    system: Switching,
    evidence: Evidence,
    num_particles: int,
    num_draws: int,
    length: Length = None,
) -> Paths:
    """Paths of z and of the modes, given the potentials; where these have ended, paths go on as new ones."""
    forward_key, backward_key, key = jax.random.split(key, 3)
    log_evidence, particles = _filter(forward_key, system, evidence, num_particles, length)
    found = _backwards(backward_key, system, particles, num_draws, length)
    valid = valid_steps(evidence.path.first.shape[0], length)
    last = jnp.max(jnp.where(valid & _informed(evidence), jnp.arange(len(valid)), 0))
    on = jax.vmap(lambda key, path: zero_padding(valid, go_on(key, system, path, last)))
    latents, modes = on(jax.random.split(key, num_draws), found)
    return Paths(latents, modes, log_evidence)


def _informed(evidence: Evidence) -> Bool[Array, "time"]:
    """Steps about which something is known, if only that it is a step by certain rules."""
    path = jnp.any(evidence.path.second != 0, axis=(-2, -1)) | jnp.any(evidence.path.first != 0, axis=-1)
    return path.at[1:].set(path[1:] | jnp.any(evidence.rules != 0, axis=-1))


class Reading(NamedTuple):
    r"""A potential $e^{r^\top z - z^\top R z / 2}$ as if $Bz$ were seen as b with unit noise.

    So $R = B^\top B$ and $r = B^\top b$.
    """

    seen: Float[Array, "*b n"]
    root: Float[Array, "*b n n"]


def reading(potential: GaussianTerms) -> Reading:
    """Of potentials that say something about z in all directions, or nothing in some of the coordinates."""
    precision = -2 * potential.second
    silent = linalg.diagonal(precision) == 0
    factored = jnp.where(silent[..., None], linalg.identity_like(precision), precision)
    whitening = linalg.inverse_cholesky(factored)
    return Reading(matvec(whitening, potential.first), matmul(whitening, precision))


def absorb(
    mean: Float[Array, "*b n"], covariance: Float[Array, "*b n n"], potential: Reading
) -> tuple[Float[Array, "*b"], Float[Array, "*b n"], Float[Array, "*b n n"]]:
    r"""Log-integral, mean and covariance of $N(z; m, P)\, e^{-\|Bz - b\|^2 / 2}$.

    That is the potential divided by its highest value, which has no bounds. Where B is zero nothing changes.
    """
    root = jnp.broadcast_to(potential.root, covariance.shape)
    scaled = matmul(covariance, transpose(root))  # P B'
    inner = linalg.identity_like(covariance) + matmul(root, scaled)
    inverse, log_determinant = linalg.inverse_and_log_det(inner)
    gain = matmul(scaled, inverse)
    surprise = jnp.broadcast_to(potential.seen, mean.shape) - matvec(root, mean)
    level = -0.5 * (log_determinant + jnp.sum(surprise * matvec(inverse, surprise), axis=-1))
    # Joseph's form stays positive definite where a difference would not
    left = linalg.identity_like(covariance) - matmul(gain, root)
    new_covariance = matmul(matmul(left, covariance), transpose(left)) + matmul(gain, transpose(gain))
    return level, mean + matvec(gain, surprise), linalg.symmetrize(new_covariance)


def _predict(
    dynamics: LinearGaussian | Learned, mean: Float[Array, "p n"], covariance: Float[Array, "p n n"]
) -> tuple[Float[Array, "p k n"], Float[Array, "p k n n"]]:
    """Every particle continued by every rule."""
    matrix, offset = dynamics.weights[..., :-1], dynamics.weights[..., -1]
    means = jnp.sum(matrix[None] * mean[:, None, None, :], axis=-1) + offset[None]
    count, rules = mean.shape[0], matrix.shape[0]
    wide = jnp.broadcast_to(matrix[None], (count, *matrix.shape))
    spread = jnp.broadcast_to(covariance[:, None], (count, rules, *covariance.shape[1:]))
    carried = matmul(matmul(wide, spread), transpose(wide))
    return means, linalg.symmetrize(carried + dynamics.covariance[None])


def _filter(
    key: PRNGKeyArray, system: Switching, evidence: Evidence, count: int, length: Length
) -> tuple[Float[Array, ""], Particles]:
    """Particles at every step, given the data up to it, and the estimated log-evidence."""
    num_steps = evidence.path.first.shape[0]
    num_rules = system.successor.shape[1]
    valid = valid_steps(num_steps, length)
    readings = reading(evidence.path)
    first_key, key = jax.random.split(key)
    levels, means, covariances = absorb(*system.initial, jax.tree.map(lambda x: x[0], readings))
    scores = _sound(levels + system.start)
    chosen = _resample(first_key, scores, count)
    mode = system.begin[chosen]
    first = Particles(mode, jnp.zeros_like(mode), means[chosen], covariances[chosen])

    def step(carry, x):
        particles, total = carry
        seen, potential, inside, key = x
        means, covariances = _predict(system.dynamics, particles.mean, particles.covariance)
        levels, means, covariances = absorb(means, covariances, seen)
        scores = _sound(levels + system.log_probability[particles.mode] + potential[None]).reshape(-1)
        chosen = _resample(key, scores, count)
        flat = lambda x: x.reshape(count * num_rules, *x.shape[2:])[chosen]
        mode = flat(system.successor[particles.mode])
        new = Particles(mode, (chosen % num_rules).astype(jnp.int32), flat(means), flat(covariances))
        keep = lambda new, old: jnp.where(inside, new, old)
        gained = jax.nn.logsumexp(scores) - jnp.log(jnp.asarray(count, scores.dtype))
        particles = Particles(*map(keep, new, particles))
        return (particles, total + jnp.where(inside, gained, 0)), particles

    keys = jax.random.split(key, num_steps - 1)
    scanned = jax.tree.map(lambda x: x[1:], readings), evidence.rules, valid[1:], keys
    (_, total), rest = lax.scan(step, (first, jax.nn.logsumexp(scores)), scanned)
    return total, jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first, rest)


def _sound(scores: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """A state that has hardly any data may have dynamics that overflow: it is no way to go on."""
    return jnp.where(jnp.isfinite(scores), scores, FORBIDDEN)


def _root(covariance: Float[Array, "*b n n"]) -> Float[Array, "*b n n"]:
    """A lower triangular root, with a little more variance where rounding has left none."""
    diagonal = linalg.diagonal(covariance)
    scale = jnp.sqrt(jnp.maximum(diagonal, jnp.finfo(covariance.dtype).tiny))
    correlation, eye = covariance / linalg.outer(scale, scale), linalg.identity_like(covariance)
    fine, coarse = (linalg.cholesky(correlation + extra * eye) for extra in (1e-6, 1e-3))
    sound = jnp.all(jnp.isfinite(fine), axis=(-2, -1), keepdims=True)
    return scale[..., None] * jnp.where(sound, fine, coarse)


def _resample(key: PRNGKeyArray, scores: Float[Array, "m"], count: int) -> Int[Array, "n"]:
    """One draw from each of `count` equal parts of the cumulated weights (stratified resampling).

    Points at equal distances would hit the same state of every particle where all weigh the same.
    """
    cumulated = jnp.cumsum(jax.nn.softmax(scores))
    noise = jax.random.uniform(key, (count,), scores.dtype)
    points = (jnp.arange(count, dtype=scores.dtype) + noise) / count
    found = jnp.searchsorted(cumulated, points * cumulated[-1], side="right")
    return jnp.minimum(found, scores.shape[0] - 1)


def _backwards(
    key: PRNGKeyArray, system: Switching, particles: Particles, count: int, length: Length
) -> tuple[Float[Array, "draws time n"], Int[Array, "draws time"]]:
    """One path for each draw: at each step a particle is chosen that could have gone on as the path does."""
    num_steps = particles.mode.shape[0]
    noise_roots = _root(system.dynamics.covariance)
    last = jnp.asarray(num_steps if length is None else length) - 1

    def step(carry, x):
        z, mode, rule = carry  # the next step's, of each draw
        now, at, key = x
        means, covariances = _predict(system.dynamics, now.mean, now.covariance)
        whitening = linalg.inverse_cholesky(covariances)
        ending = at >= last

        def one(z, mode, rule, key):
            """The step before, of one draw."""
            choice_key, here_key, there_key = jax.random.split(key, 3)
            off = z[None] - means[:, rule]
            white = matvec(whitening[:, rule], off)
            diagonal = linalg.diagonal(whitening[:, rule])
            leads_here = system.successor[now.mode, rule] == mode
            way = jnp.where(leads_here, system.log_probability[now.mode, rule], FORBIDDEN)
            scores = way + jnp.sum(jnp.log(diagonal) - 0.5 * white**2, axis=-1)
            i = jax.random.categorical(choice_key, jnp.where(ending, 0, _sound(scores)))
            # A draw of this step and of the next, moved so that the next one becomes what it is
            here_noise = jax.random.normal(here_key, z.shape, z.dtype)
            there_noise = jax.random.normal(there_key, z.shape, z.dtype)
            covariance = now.covariance[i]
            drawn = now.mean[i] + matvec(_root(covariance), here_noise)
            weights = system.dynamics.weights[rule]
            next_drawn = matvec(weights[:, :-1], drawn) + weights[:, -1]
            next_drawn = next_drawn + matvec(noise_roots[rule], there_noise)
            factor = whitening[i, rule]
            gain = matmul(matmul(covariance, transpose(weights[:, :-1])), transpose(factor))
            moved = drawn + matvec(gain, matvec(factor, z - next_drawn))
            return jnp.where(ending, drawn, moved), now.mode[i], now.rule[i]

        z, mode, rule = jax.vmap(one)(z, mode, rule, jax.random.split(key, count))
        return (z, mode, rule), (z, mode)

    size = particles.mean.shape[-1]
    nowhere = jnp.zeros(count, jnp.int32)
    begin = jnp.zeros((count, size), particles.mean.dtype), nowhere, nowhere
    keys = jax.random.split(key, num_steps)
    _, (latents, modes) = lax.scan(step, begin, (particles, jnp.arange(num_steps), keys), reverse=True)
    return jnp.swapaxes(latents, 0, 1), jnp.swapaxes(modes, 0, 1)
