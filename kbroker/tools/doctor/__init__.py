"""``kbroker doctor``: finds what is wrong with a machine, a configuration, a cluster or a client, and says what to do.

``gather/`` looks and makes facts (``facts.py``); ``checks/`` judges facts alone, without a socket, a file or a clock.
``kbroker bundle`` packs the facts for a report about a mistake, without secrets. docs/doctor.md is for its users.
"""
