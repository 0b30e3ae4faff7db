"""The answers to the page, a module for each part; an answer is a JSON document.

The work that outlives one answer (copies, sessions, watching) is in the package above, not here. Begin with
``routes.py`` there, which has the paths.
"""
