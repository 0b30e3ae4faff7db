"""The checks of ``kbroker doctor``, a module for each subject: functions from facts to findings. Pure.

A rule that another tool shows, too, is in ``diagnosis/``, and registered here by its name (``share``). Begin with
``findings.py`` of the package above, which has ``check`` and ``share``.
"""
