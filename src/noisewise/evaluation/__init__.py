"""Simulation: made data for demonstrations and tests, and planning before any data is touched."""
