"""Metrics of a node by OTLP: the node writes its figures to a process beside it, which exports them.

Nothing of it is imported in a node that was not asked for it, and OpenTelemetry's packages in that process alone.
"""
