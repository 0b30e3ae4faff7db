"""The console: a page in the browser about any Kafka cluster, served by a process of its own.

The page is plain HTML, CSS and ES modules in ``static/``; the server answers it in JSON and asks the cluster through
``kbroker/client``, in worker threads. What is wrong is judged in ``diagnosis/``, not here. Begin with ``routes.py``,
which names the function of ``api/`` for each path; docs/console.md is for users.
"""
