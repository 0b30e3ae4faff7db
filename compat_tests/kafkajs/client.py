"""Adapter for kafkajs: a Node program (driver.js) that takes commands; its packages are installed under ``.cache``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from compat_tests.apache_kafka import cache_dir, locked
from compat_tests.api_versions import JOIN_GROUP, served_apis
from compat_tests.client import ALL_FEATURES
from compat_tests.client_security import Security
from compat_tests.line_driver import LineDriverClient

_HERE = Path(__file__).parent


def installed_modules(folder: Path = _HERE) -> Path:
    """``node_modules`` with what a folder's package.json names, installed if it changed."""
    manifest = (folder / "package.json").read_bytes()
    target = cache_dir() / "kafkajs" / hashlib.sha256(manifest).hexdigest()[:12]
    if not (target / "complete").exists():
        with locked("kafkajs"):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / "package.json", target)
            command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
            done = subprocess.run(command, cwd=target, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"npm install failed: {done.stderr[-2000:]}")
            (target / "complete").touch()
    return target / "node_modules"


class KafkajsClient(LineDriverClient):
    """kafkajs's producer, admin client and group consumer."""

    name = "kafkajs"
    version = "2.2.4"
    features = ALL_FEATURES - {
        "offset_of_max_timestamp",
        "read_to_end",
        "transaction_version_2",
        # Headers are an object: no order over repeated names, and null becomes empty.
        "null_header_value",
        "duplicate_header_keys",
        # The consumer resets to the start by itself and says nothing; it does not tell the type of a timestamp.
        "offset_out_of_range_error",
        "timestamp_type",
    }

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        modules = installed_modules()
        if security is None and JOIN_GROUP not in served_apis(bootstrap):
            # It reads through consumer groups only.
            self.features = type(self).features - {"read"}
        environment = {**os.environ, "NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        settings = security.kafkajs() if security else None
        super().__init__(["node", str(_HERE / "driver.js")], bootstrap, environment, settings)
