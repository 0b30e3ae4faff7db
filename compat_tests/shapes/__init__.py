"""Clusters of other shapes than one combined node: roles apart, several log directories, older releases' levels."""
