"""Strict arithmetic for all tests: float64 is there, and nothing is promoted silently."""

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def key():
    return jax.random.key(0)
