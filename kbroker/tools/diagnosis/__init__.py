"""The one place where a cluster or a group is judged: rules over facts, which give findings in sentences.

The doctor, the console, ``top`` and the command show the findings. What only one of them judges (a node's
configuration, its addresses) is not here, nor how often and of how much each of them asks. Begin with ``findings.py``;
``cluster.py`` has the rules of a cluster, ``stuck_groups.py`` those of a group; ``asking.py`` and
``group_watch.py`` ask the brokers.
"""
