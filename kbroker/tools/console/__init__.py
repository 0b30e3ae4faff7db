"""The console: a page in the browser about any Kafka cluster, served by a process of its own.

The page is plain HTML, CSS and ES modules in ``static/``; the server answers it in JSON and asks the cluster through
``kbroker/client``, in worker threads. docs/console.md is for its users.
"""
