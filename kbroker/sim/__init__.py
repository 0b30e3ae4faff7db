"""Whole clusters in one process under a simulated clock, network and disk: everything follows from one seed.

``scheduler`` and ``network`` are the world, ``raft_node`` and ``raft_cluster`` what lives in it, ``scenarios`` what
happens to them, ``invariants`` what must hold all the while. ``python -m kbroker.sim --scenario NAME --seed N`` runs
one of them; ``--trace`` shows every step.
"""
