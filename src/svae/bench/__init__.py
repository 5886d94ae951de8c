"""Benchmarks that anyone can run: `svae bench ...`."""
