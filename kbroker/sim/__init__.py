"""Simulations from one seed: whole clusters of real nodes, and the metadata quorum alone.

- Both worlds: ``world`` has the queue of events, the trace of a run, and the failure that ends it.
- Whole clusters: ``clock`` runs Trio's tasks on simulated time, ``tcp`` is the network, ``sim_env`` a machine and the
  ``Env`` of each life of a node. ``sim_node`` and ``cluster`` start, stop and kill nodes. ``cluster_scenarios`` make
  the trouble. ``clients`` and the modules of producers, groups and transactions are the cluster's clients.
- Checks of whole clusters: ``history`` compares the answers that clients get, ``cluster_invariants`` looks inside.
- The quorum alone: ``quorum``, which is five times as fast (docs/decisions/0022-two-simulated-worlds.md).

Real processes and sockets are in `kbroker.testing`. Begin with ``cluster``.

``python -m kbroker.sim --scenario NAME --seed N`` runs one scenario; ``--trace`` shows every step.
"""
