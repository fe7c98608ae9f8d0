"""Sees shares: the compute node, its store and keys, and what servers of a secure sum have in common."""
