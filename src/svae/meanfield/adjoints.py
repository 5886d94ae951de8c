r"""How gradients pass through inference: values to choose from.

At a fixed point, with $H$ the Jacobian of belief propagation (block diagonal, symmetric) and $M$ the
mixed second derivative of the energy (zero on the diagonal, symmetric), a change $\delta$ of the natural
parameters' sources gives $d\omega = M\, d\mu + \delta$, $d\mu = H\, d\omega$. So cotangents $a$ of
$\omega$ and $c$ of $\mu$ become the cotangent of the sources

$$ y = (I - H M)^{-1} (H c + a). $$

| value | y |
|---|---|
| `NoSolve()` | $Hc + a$ |
| `GaussSeidel(steps=J, fallback=False)` | J sweeps over the blocks, each with the latest of the others |
| `GaussSeidel(fallback=False)` | the same with J half the number of sweeps taken: *capped* |
| `GaussSeidel()` | capped, and `NoSolve` for a sequence that has not converged or where the sweeps diverge |
| `Richardson(...)` | all blocks at once: J terms more of $\sum_j (HM)^j (Hc + a)$; *capped*: J sweeps |
| `ConjugateGradients()` | $a + w$ with $(H^{-1} - M)\, w = c + M a$, preconditioned by $H$ |
| `Unrolled()` | backpropagation through the sweeps themselves (memory grows with their number) |

$H^{-1} - M$ is the Hessian of the negative surrogate objective, so positive definite at an optimum. There
Gauss-Seidel sweeps always converge. With two blocks one of them, which costs one $H$ and one $M$, is worth
two terms of the series, so that half of the sweeps have as many terms as the series of the paper, which is
capped at the number of sweeps; with three or more the series may diverge (`step=0.5` does not). Conjugate
gradients need fewer steps still where convergence is slow. Negative curvature means that the point is no
optimum, and `NoSolve` takes over for that sequence.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from svae.expfam import Terms, add, inner
from svae.meanfield.problem import Blocks


class LinearSystem(NamedTuple):
    """The two symmetric operators of the adjoint, and how the forward pass ended."""

    propagation: tuple[Callable[[Terms], Terms], ...]  # H, a map for each block
    coupling: Callable[[Blocks, int], Terms]  # one block of M y; that of y itself does not matter
    sweeps: Int[Array, ""] | int
    converged: Bool[Array, ""]

    def propagate(self, v: Blocks) -> Blocks:
        """H v."""
        return tuple(jacobian(x) for jacobian, x in zip(self.propagation, v, strict=True))

    def couple(self, y: Blocks) -> Blocks:
        """M y."""
        return tuple(self.coupling(y, m) for m in range(len(y)))


class Adjoint(eqx.Module):
    """A way to pass gradients through inference."""


class Unrolled(Adjoint):
    """Backpropagation through the sweeps."""


class ImplicitAdjoint(Adjoint):
    """A way to solve the adjoint's linear system."""

    @abstractmethod
    def solve(self, system: LinearSystem, a: Blocks, c: Blocks) -> Blocks:
        """Cotangent of the naturals' sources from those of the naturals (a) and statistics (c)."""


class NoSolve(ImplicitAdjoint):
    """As if every block's messages were constants."""

    def solve(self, system: LinearSystem, a: Blocks, c: Blocks) -> Blocks:
        """H c + a."""
        return add(system.propagate(c), a)


class Richardson(ImplicitAdjoint):
    """The Neumann series, one H and one M a term."""

    steps: int | None = eqx.field(default=None, static=True)  # None: as many as there were sweeps
    step: float = eqx.field(default=1.0, static=True)  # below 1: damped
    fallback: bool = eqx.field(default=True, static=True)

    def solve(self, system: LinearSystem, a: Blocks, c: Blocks) -> Blocks:
        """y <- y + step (a + H (c + M y) - y); from y = 0 the first, undamped, gives H c + a."""
        steps = system.sweeps if self.steps is None else self.steps
        nothing = jax.tree.map(jnp.zeros_like, a)

        def iterate(i, carry):
            y, _, first, start = carry
            change = add(add(a, system.propagate(add(c, system.couple(y)))), y, -1.0)
            size = inner(change, change)
            start = _where(i == 0, change, start)
            y = add(y, change, jnp.where(i == 0, 1.0, self.step).astype(size.dtype))
            return y, size, jnp.where(i == 1, size, first), start

        unset = jnp.zeros_like(inner(a, a))
        y, last, first, start = lax.fori_loop(
            0, steps + 1, iterate, (nothing, unset, unset + jnp.inf, nothing)
        )
        if not self.fallback:
            return y
        grown = (last > first) & (steps > 0)
        return _where(system.converged & ~grown & jnp.isfinite(last), y, start)


class GaussSeidel(ImplicitAdjoint):
    """Sweeps over the blocks, as in inference: one H and one M each."""

    steps: int | None = eqx.field(default=None, static=True)  # None: one for two sweeps of inference
    fallback: bool = eqx.field(default=True, static=True)

    def __check_init__(self):
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}; none at all is NoSolve()")

    def solve(self, system: LinearSystem, a: Blocks, c: Blocks) -> Blocks:
        """y_m <- a_m + H_m (c_m + sum_n M_mn y_n), for each block m in turn, from what they have alone.

        The first block, which may be large, is a function of the others and not carried along.
        """
        steps = (system.sweeps + 1) // 2 if self.steps is None else self.steps
        nothing = jax.tree.map(jnp.zeros_like, a)
        # What the others hear of a_0, each time the same, so that y_0 - a_0 is enough to go on
        told = tuple(add(c[m], system.coupling((a[0], *nothing[1:]), m)) for m in range(1, len(a)))

        def first(others: Blocks) -> Terms:
            return system.propagation[0](add(c[0], system.coupling((nothing[0], *others), 0)))

        def sweep(i, carry):
            others, _, first_size = carry
            y = (first(others), *others)
            for m in range(1, len(y)):
                answer = system.propagation[m](add(told[m - 1], system.coupling(y, m)))
                y = (*y[:m], add(a[m], answer), *y[m + 1 :])
            change = add(y[1:], others, -1.0)
            size = inner(change, change)
            return y[1:], size, jnp.where(i == 0, size, first_size)

        alone = tuple(add(a[m], system.propagation[m](c[m])) for m in range(1, len(a)))
        unset = jnp.zeros_like(inner(alone, alone))
        others, last, first_size = lax.fori_loop(0, steps, sweep, (alone, unset, unset))
        if not self.fallback:
            return (add(a[0], first(others)), *others)
        sound = system.converged & ~(last > first_size) & jnp.isfinite(last)
        return (add(a[0], first(_where(sound, others, nothing[1:]))), *_where(sound, others, alone))


class ConjugateGradients(ImplicitAdjoint):
    """Conjugate gradients on (H^-1 - M) w = c + M a, preconditioned by H."""

    max_steps: int = eqx.field(default=10, static=True)
    tolerance: float = eqx.field(default=1e-6, static=True)  # of the residual's norm, relative to the first

    def solve(self, system: LinearSystem, a: Blocks, c: Blocks) -> Blocks:
        """a + w, or H c + a where the curvature is not positive."""
        right = add(c, system.couple(a))
        start = jax.tree.map(jnp.zeros_like, right)
        preconditioned = system.propagate(right)
        gamma = inner(right, preconditioned)
        goal = self.tolerance**2 * gamma

        # `lifted` is H^-1 direction, carried along so that H^-1 itself is never applied.
        def iterate(state):
            w, residual, direction, lifted, gamma, taken, _ = state
            image = add(lifted, system.couple(direction), -1.0)
            curvature = inner(direction, image)
            length = gamma / curvature
            w, residual = add(w, direction, length), add(residual, image, -length)
            preconditioned = system.propagate(residual)
            gamma, previous = inner(residual, preconditioned), gamma
            direction = add(preconditioned, direction, gamma / previous)
            lifted = add(residual, lifted, gamma / previous)
            return w, residual, direction, lifted, gamma, taken + 1, curvature > 0

        def unfinished(state):
            *_, gamma, taken, positive = state
            return positive & (taken < self.max_steps) & (gamma > goal)

        state = (start, right, preconditioned, right, gamma, 0, jnp.asarray(True))
        w, *_, positive = lax.while_loop(unfinished, iterate, state)
        sound = positive & jnp.isfinite(inner(w, w))
        return add(a, _where(sound, w, system.propagate(c)))


def _where(condition: Bool[Array, ""], a: Blocks, b: Blocks) -> Blocks:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def relative_error(estimate: Blocks, truth: Blocks) -> Float[Array, ""]:
    """Norm of the difference over norm of the truth."""
    difference = add(estimate, truth, -1.0)
    return jnp.sqrt(inner(difference, difference) / inner(truth, truth))
