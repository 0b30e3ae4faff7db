"""``kbroker doctor``: finds what is wrong with a machine, a configuration, a cluster or a client, and says what to do.

``gather/`` looks and makes facts, ``checks/`` judges facts alone; rules that other tools show, too, are in
``diagnosis/``, not here. ``kbroker bundle`` packs the facts for a report about a mistake, without secrets. Begin with
``facts.py``; docs/doctor.md is for users.
"""
