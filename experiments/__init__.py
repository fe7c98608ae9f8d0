"""Experiments that are too long for the tests; each module says how to run it."""
