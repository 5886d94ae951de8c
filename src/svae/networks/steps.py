r"""A recurrence of a network, with derivatives that leave little for one step after the other.

$$ s_{t+1}, r_t = f_w(s_t, x_t) $$

Only the cotangents of the states need each other in order: they are one loop backwards, in which a step
takes the derivative of f with respect to its state alone. Once they are known, those of the weights and of
the inputs are sums over all steps at once, which are a few large matrix products in place of many small ones;
and of a step nothing is kept but the state before it.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

STEPS_OF_GPU = 5  # in one go: to begin a step of a loop takes a GPU longer than to do it


def step_by_step(
    one: Callable[[Any, Any, Any], tuple[Any, Any]],
    weights: Any,
    start: Any,
    inputs: Any,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """The last state, and the results along the leading axis, as of `scan`.

    `one(weights, state, input)` gives the next state and a result. It must not close over arrays. All
    sequences of a batch go through it together, not by a `vmap` around this: then products sum over them too.
    """
    return _steps((weights, start, inputs), one, reverse)


def _scan(one: Callable[[Any, Any], tuple[Any, Any]], start: Any, inputs: Any, reverse: bool) -> Any:
    unroll = STEPS_OF_GPU if jax.default_backend() == "gpu" else 1
    return lax.scan(one, start, inputs, reverse=reverse, unroll=unroll)


@eqx.filter_custom_vjp
def _steps(given: tuple[Any, Any, Any], one: Callable, reverse: bool) -> tuple[Any, Any]:
    weights, start, inputs = given
    return _scan(lambda state, x: one(weights, state, x), start, inputs, reverse)


@_steps.def_fwd
def _forward(perturbed, given, one, reverse):
    del perturbed
    weights, start, inputs = given

    def remembering(state, x):
        after, result = one(weights, state, x)
        return after, (result, state)

    last, (results, states) = _scan(remembering, start, inputs, reverse)
    return (last, results), states


@_steps.def_bwd
def _backward(states, cotangents, perturbed, given, one, reverse):
    del perturbed
    weights, start, inputs = given
    last_bar, results_bar = cotangents
    last_bar = jax.tree.map(_in_full, _floats(start), last_bar)

    def back(after_bar, step):
        before, x, result_bar = step
        moving, fixed = eqx.partition(before, eqx.is_inexact_array)
        along = lambda moving: _wanted(one(weights, eqx.combine(moving, fixed), x), result_bar)
        (before_bar,) = jax.vjp(along, moving)[1]((after_bar, result_bar))
        return before_bar, after_bar

    start_bar, after_bars = _scan(back, last_bar, (states, inputs, results_bar), not reverse)

    moving, fixed = eqx.partition((weights, inputs), eqx.is_inexact_array)

    def around(moving):
        weights, inputs = eqx.combine(moving, fixed)
        step = lambda state, x: one(weights, state, x)
        return _wanted(jax.vmap(step)(states, inputs), results_bar)

    ((weights_bar, inputs_bar),) = jax.vjp(around, moving)[1]((after_bars, results_bar))
    return weights_bar, start_bar, inputs_bar


def _wanted(outcome: tuple[Any, Any], results_bar: Any) -> tuple[Any, Any]:
    """Of a step's outcome, what has a cotangent: the state, and some of the results."""
    after, results = outcome
    is_none = lambda x: x is None
    chosen = jax.tree.map(lambda bar, x: None if bar is None else x, results_bar, results, is_leaf=is_none)
    return _floats(after), chosen


def _in_full(x: Any, bar: Any) -> Any:
    return jnp.zeros_like(x) if bar is None else bar


def _floats(tree: Any) -> Any:
    return eqx.filter(tree, eqx.is_inexact_array)
