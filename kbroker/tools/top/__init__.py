"""``kbroker top``: what happens in a cluster, live in a terminal.

``facts.py`` has a snapshot of a cluster, ``history.py`` rates and lags from one to the next, ``tables.py`` the views,
``screen.py`` and ``keys.py`` what is drawn and what keys do: all of them pure. What is wrong is judged in
``diagnosis/``, not here; ``looking.py``, ``scraping.py`` and ``terminal.py`` alone talk to the world. Begin with
``history.py``.
"""
