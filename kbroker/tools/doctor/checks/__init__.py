"""The checks of ``kbroker doctor``, a module for each subject: functions from facts to findings. Pure."""
