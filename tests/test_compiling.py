"""Programs are compiled as suits the machine and how often they run, and once."""

import gc

import jax
import jax.numpy as jnp
import pytest

from svae.compiling import OFTEN, ONCE, compiling, often, once


@pytest.fixture
def no_flags(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)


def machine(monkeypatch, kind):
    monkeypatch.setattr(jax, "default_backend", lambda: kind)


@pytest.mark.parametrize("options", [ONCE, OFTEN])
def test_options_are_those_of_the_machine(monkeypatch, no_flags, options):
    machine(monkeypatch, "cpu")
    assert compiling(options) == {"compiler_options": options["cpu"]}
    machine(monkeypatch, "tpu")
    assert compiling(options) == {}


def test_flags_of_the_user_hold(monkeypatch):
    machine(monkeypatch, "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    assert compiling(OFTEN) == {}
    assert compiling(ONCE) == {"compiler_options": {"xla_cpu_use_fusion_emitters": False}}


def test_options_that_a_compiler_does_not_have_are_left_out(no_flags):
    assert compiling({"cpu": {"xla_has_no_such_option": True}}) == {}


def test_compilers_here_take_the_options(no_flags):
    assert once(jnp.sin, 0.0) == 0
    assert often(jnp.cos)(0.0) == 1


def test_what_runs_often_is_traced_once():
    traces = []

    @often
    def double(x, name):
        traces.append(name)
        return 2 * x

    assert not traces
    assert double(jnp.ones(()), "a") + double(jnp.ones(()), "a") == 4
    assert traces == ["a"]
    double(jnp.ones(3), "a"), double(jnp.ones(3), "b")
    assert traces == ["a", "a", "b"]
    assert double.__name__ == "double"


@pytest.mark.parametrize("collecting", [True, False])
def test_garbage_is_left_while_programs_are_traced(collecting):
    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        seen = []
        assert once(lambda x: (seen.append(gc.isenabled()), x + 1)[1], 0.0) == 1
        often(lambda x: (seen.append(gc.isenabled()), x)[1])(0.0)
        assert seen
        assert not any(seen)
        with pytest.raises(ZeroDivisionError):
            once(lambda x: 1 // 0, 0.0)
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()
