"""``kbroker top``: what happens in a cluster, live in a terminal.

- ``facts.py``: one look at a cluster, as values. ``course.py``: rates and lags, from one look to the next.
- ``tables.py``: the views as tables. ``screen.py``: a table as lines of a terminal. ``keys.py``: what keys do.
- ``looking.py``: asks the cluster, with few requests. ``scraping.py``: reads pages of metrics. ``terminal.py``: the
  terminal itself.
- ``command.py``: the command.

The first two lines are pure: no clock, no socket, no terminal.
"""
