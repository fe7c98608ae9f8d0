"""Simulation-based calibration of any method at any size; ``python -m experiments.sbc --help``."""
