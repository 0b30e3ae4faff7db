"""``--control``: what `kbroker.testing` does, over HTTP with JSON, for tests in any language.

``table`` has the verbs, each a function of `kbroker.testing` under a method and a path; ``server`` decodes what is
asked and shapes what is answered; ``openapi`` tells the same table to programs. ``options`` are the command line's,
``started`` is the node of ``kbroker start``, ``cluster_command`` what ``kbroker up`` runs. Begin with ``table``.
"""
