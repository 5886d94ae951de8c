"""Many short loops over small matrices at once: in plain form, or in one GPU kernel.

A long chain is cut into chunks, and in each of them a loop goes from node to node:

    state = begin(constants)
    for each node of the chunk:
        state, result = step(constants, state, node)
    summary, lead = end(constants, state)

In the kernel each chunk has a program of its own. What it reads and writes passes through memory once, a
node's inputs a step ahead of their use, and all that lies between stays in registers. Reverse-mode
derivatives are such loops again. On machines without a GPU kernels are interpreted, which is slow and meant
for tests.

All functions take an algebra of small matrices first: `svae.linalg` or `svae.kernels.tiles`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from svae import linalg
from svae.kernels import tiles
from svae.kernels.tiles import backend_options, warps_for


class Read(NamedTuple):
    """Node s of chunk c reads entry `stride * c + offset + s`; what lies beyond the end is never used."""

    array: Array
    stride: int
    offset: int = 0


class Loop(NamedTuple):
    """What is done in each chunk; see above. Without a lead, there are no results but the nodes'.

    Of each result, `kept` entries are wanted (a record of numbers; None: all of all): the rest, beyond the
    end of a chain, is not even written.
    """

    begin: Callable[..., Any]
    step: Callable[..., tuple[Any, Any]]
    end: Callable[..., tuple[Any, Any]]
    reverse: bool = False
    kept: Any = None


@runtime_checkable
class Scan(Protocol):
    """How loops are run: `over(loop, chunks, length, constants, nodes)`.

    `constants` and `nodes` are records of `Read`s. Returns the chunks' summaries and the nodes' results,
    one after the other along the leading axis; a chunk's lead comes before the results of its nodes.
    """

    def __call__(self, loop: Loop, chunks: int, length: int, constants: Any, nodes: Any) -> tuple[Any, Any]:
        """Run the loop in every chunk."""


def _is_read(x: Any) -> bool:
    return isinstance(x, Read)


WRITTEN_OUT = 8  # steps that are compiled one by one


def plain_scan(loop: Loop, chunks: int, length: int, constants: Any, nodes: Any) -> tuple[Any, Any]:
    """All chunks side by side."""
    fixed = jax.tree.map(lambda x: _gather(x, chunks, 1)[:, 0], constants, is_leaf=_is_read)
    rows = jax.tree.map(lambda x: _gather(x, chunks, length), nodes, is_leaf=_is_read)
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    state, results = lax.scan(
        partial(loop.step, linalg, fixed),
        loop.begin(linalg, fixed),
        rows,
        reverse=loop.reverse,
        unroll=length <= WRITTEN_OUT,
    )
    summary, lead = loop.end(linalg, fixed, state)
    if lead is not None:
        results = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), lead, results)
    # The barriers: XLA's GPU compiler (seen with JAX 0.11.2) aborts when it fuses strided slices and pads of
    # odd lengths into the matrix products that follow
    merge = lambda x: lax.optimization_barrier(jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]))
    return summary, _kept(loop, jax.tree.map(merge, results))


def _kept(loop: Loop, results: Any) -> Any:
    return results if loop.kept is None else jax.tree.map(lambda x, count: x[:count], results, loop.kept)


def _gather(read: Read, chunks: int, length: int) -> Array:
    """What the nodes of all chunks read, zeros beyond the end."""
    array, stride, offset = read
    needed = offset + stride * chunks
    found = _lengthened(array, needed)[offset:needed].reshape(chunks, stride, *array.shape[1:])
    return lax.optimization_barrier(found[:, :length])


def _lengthened(array: Array, count: int) -> Array:
    """With zeros behind it, if it has fewer entries."""
    return jnp.pad(array, [(0, max(count - array.shape[0], 0))] + [(0, 0)] * (array.ndim - 1))


def kernel_scan(loop: Loop, chunks: int, length: int, constants: Any, nodes: Any) -> tuple[Any, Any]:
    """One kernel for all chunks."""
    reads, structure = jax.tree.flatten((constants, nodes), is_leaf=_is_read)
    with_arrays = lambda arrays: jax.tree.unflatten(
        structure, [read._replace(array=x) for read, x in zip(reads, arrays, strict=True)]
    )

    @jax.custom_vjp
    def run(arrays):
        return _run(loop, chunks, length, *with_arrays(arrays))

    def forward(arrays):
        (summary, final), (results, states) = _run(_remembering(loop), chunks, length, *with_arrays(arrays))
        return (summary, _kept(loop, results)), (arrays, final, states)

    def backward(residuals, cotangents):
        arrays, final, states = residuals
        constants, nodes = with_arrays(arrays)
        summary_bar, results_bar = cotangents
        total = jax.tree.leaves(states)[0].shape[0]
        lead = total // chunks - length
        results_bar = jax.tree.map(lambda x: _lengthened(x, total), results_bar)
        by_chunk = partial(jax.tree.map, lambda x: Read(x, 1))
        by_node = partial(jax.tree.map, lambda x: Read(x, length + lead, lead))
        ends = (
            constants,
            by_chunk(final),
            by_chunk(summary_bar),
            jax.tree.map(lambda x: Read(x, length + 1), results_bar) if lead else None,
        )
        around = nodes, by_node(states), by_node(results_bar)
        bars = _run(_backwards(loop), chunks, length, ends, around)
        leaves = jax.tree.leaves(bars)
        counts = [1] * len(jax.tree.leaves(constants, is_leaf=_is_read))
        counts += [length] * (len(reads) - len(counts))

        def pull(read: Read, array: Array, bar: Array, count: int) -> Array:
            gather = lambda x: _gather(read._replace(array=x), chunks, count)
            return jax.vjp(gather, array)[1](bar.reshape(chunks, count, *bar.shape[1:]))[0]

        return ([pull(*x) for x in zip(reads, arrays, leaves, counts, strict=True)],)

    run.defvjp(forward, backward)
    return run([read.array for read in reads])


def _remembering(loop: Loop) -> Loop:
    """The same loop, with the state before each step and at the end among its results."""

    def step(la, constants, state, node):
        after, result = loop.step(la, constants, state, node)
        return after, (result, state)

    def end(la, constants, state):
        summary, lead = loop.end(la, constants, state)
        return (summary, state), None if lead is None else (lead, state)

    return loop._replace(step=step, end=end, kept=None)


def _backwards(loop: Loop) -> Loop:
    """The loop of cotangents: it sums up those of the constants as it goes."""

    def begin(la, ends):
        constants, final, summary_bar, lead_bar = ends
        _, pull = jax.vjp(partial(loop.end, la), constants, final)
        return pull((summary_bar, lead_bar))

    def step(la, ends, state, node):
        total, state_bar = state
        x, before, bar = node
        _, pull = jax.vjp(partial(loop.step, la), ends[0], before, x)
        constants_bar, state_bar, x_bar = pull((state_bar, bar))
        return (jax.tree.map(jnp.add, total, constants_bar), state_bar), x_bar

    def end(la, ends, state):
        total, state_bar = state
        (begun,) = jax.vjp(partial(loop.begin, la), ends[0])[1](state_bar)
        return jax.tree.map(jnp.add, total, begun), None

    return Loop(begin, step, end, not loop.reverse)


def _run(loop: Loop, chunks: int, length: int, constants: Any, nodes: Any) -> tuple[Any, Any]:
    fixed_inputs, fixed_structure = jax.tree.flatten(constants, is_leaf=_is_read)
    node_inputs, node_structure = jax.tree.flatten(nodes, is_leaf=_is_read)
    inputs = fixed_inputs + node_inputs
    tile = lambda read: jax.ShapeDtypeStruct(read.array.shape[1:], read.array.dtype)
    shapes = jax.tree.map(tile, (constants, nodes), is_leaf=_is_read)

    def once(constants, node):
        state = loop.begin(tiles, constants)
        state, result = loop.step(tiles, constants, state, node)
        return *loop.end(tiles, constants, state), result

    summary, lead, result = jax.eval_shape(once, *shapes)
    first = 0 if lead is None else 1
    rows = length + first
    results, summaries = jax.tree.leaves(result), jax.tree.leaves(summary)
    kept = [rows * chunks] * len(results) if loop.kept is None else jax.tree.leaves(loop.kept)

    def body(*refs):
        read, written = refs[: len(inputs)], refs[len(inputs) :]
        chunk = pl.program_id(0)

        # A program reads entries of whole arrays; beyond the end it reads the last one again
        def load(ref: Any, source: Read, s: Any) -> Array:
            array, stride, offset = source
            where = jnp.minimum(stride * chunk + offset + s, array.shape[0] - 1)
            return ref[(where,) + (slice(None),) * (array.ndim - 1)]

        split = len(fixed_inputs)
        fixed = jax.tree.unflatten(
            fixed_structure, [load(*x, 0) for x in zip(read, fixed_inputs, strict=False)]
        )
        node_at = lambda s: jax.tree.unflatten(
            node_structure, [load(*x, s) for x in zip(read[split:], node_inputs, strict=True)]
        )
        result_refs, summary_refs = written[: len(results)], written[len(results) :]

        def store(entry: Any, values: Any) -> None:
            where = (rows * chunk + entry).astype(jnp.asarray(0).dtype)  # as masked stores want it
            for ref, value, count in zip(result_refs, jax.tree.leaves(values), kept, strict=True):
                place = (where,) + (slice(None),) * value.ndim
                if count == rows * chunks:
                    ref[place] = value
                else:
                    triton.store(ref.at[place], value, mask=jnp.full(value.shape, where) < count)

        def one(i, carry):
            state, node = carry
            position = lambda i: length - 1 - i if loop.reverse else i
            ahead = node_at(position(jnp.minimum(i + 1, length - 1)))
            state, values = loop.step(tiles, fixed, state, node)
            store(first + position(i), values)
            return state, ahead

        state = loop.begin(tiles, fixed)
        state, _ = lax.fori_loop(0, length, one, (state, node_at(length - 1 if loop.reverse else 0)))
        ending, leading = loop.end(tiles, fixed, state)
        if first:
            store(0, leading)
        for ref, value in zip(summary_refs, jax.tree.leaves(ending), strict=True):
            ref[...] = value

    whole = lambda x: pl.BlockSpec(x.shape, lambda c: (0,) * len(x.shape))
    by_chunk = lambda shape: pl.BlockSpec((None, *shape), lambda c: (c,) + (0,) * len(shape))
    entries = [jax.ShapeDtypeStruct((n, *x.shape), x.dtype) for n, x in zip(kept, results, strict=True)]
    outputs = pl.pallas_call(
        body,
        name=_name(loop.step),
        grid=(chunks,),
        in_specs=[whole(read.array) for read in inputs],
        out_specs=[whole(x) for x in entries] + [by_chunk(x.shape) for x in summaries],
        out_shape=entries + [jax.ShapeDtypeStruct((chunks, *x.shape), x.dtype) for x in summaries],
        **backend_options(warps_for(max(x.size for x in jax.tree.leaves(shapes)))),
    )(*(read.array for read in inputs))
    split = len(results)
    return (
        jax.tree.unflatten(jax.tree.structure(summary), outputs[split:]),
        jax.tree.unflatten(jax.tree.structure(result), outputs[:split]),
    )


def _name(function: Callable) -> str:
    """For profiles."""
    return getattr(function, "func", function).__name__.strip("_")
