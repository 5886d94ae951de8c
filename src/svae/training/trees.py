"""Trees of arrays as dictionaries, for files: every array under the path that leads to it."""

from typing import Any

import equinox as eqx
import jax


def arrays_from_tree(tree: Any) -> dict[str, Any]:
    """Every array of a tree, by name."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, _is_array))[0]
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}


def tree_from_arrays(like: Any, arrays: dict[str, Any]) -> Any:
    """The inverse: `like`, with these arrays in place of its own or of their shapes."""
    names = arrays_from_tree(like)
    if set(names) != set(arrays):
        different = sorted(set(names) ^ set(arrays))
        raise ValueError(f"the stored arrays do not fit the settings: {', '.join(different[:3])}")
    for name, leaf in names.items():
        if arrays[name].shape != leaf.shape:
            raise ValueError(f"{name} has shape {arrays[name].shape}, not {leaf.shape}")
    structure = jax.tree.structure(eqx.filter(like, _is_array))
    filled = jax.tree.unflatten(structure, [jax.device_put(arrays[name]) for name in names])
    return eqx.combine(filled, eqx.filter(like, _is_array, inverse=True))


def _is_array(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)
