"""The directories of a user, by the rule of XDG."""

from __future__ import annotations

import os
from typing import Final

PROFILES: Final = "profiles.toml"
"""The file of profiles in the directory of what is configured."""


def user_directory(variable: str, otherwise: str) -> str:
    """The directory that a variable (``XDG_CONFIG_HOME``) names, if its path is absolute, else one in the home."""
    path = os.environ.get(variable, "")
    return os.path.join(path if path.startswith("/") else os.path.expanduser(f"~/{otherwise}"), "kbroker")
