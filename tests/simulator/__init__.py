"""A simulator of secure sums that go wrong: the real parties in one process, on a network and disks that fail.

Nothing of the package is replaced. Nodes, board, coordinator and holders are the code that users run; what is simulated
is around them: the network (wire.py), the disks (disk.py), the clocks and who does what when (world.py). A witness
(witness.py) sees every answer and holds the parties to what they promise. Chance comes from a seed, so that a failure
can be seen again: ``python -m tests.simulator --seed 17 --rounds 1``.
"""
