"""Circles of imports that the contracts in ``pyproject.toml`` do not see: a package that imports itself."""

from __future__ import annotations

import grimp


def test_no_package_is_imported_by_what_it_imports() -> None:
    graph = grimp.build_graph("kbroker", exclude_type_checking_imports=False)
    packages = [module for module in graph.modules if graph.find_children(module)]
    assert "kbroker.raft_metadata.image" in packages
    circles = [
        (package, module)
        for package in packages
        for module in graph.find_modules_directly_imported_by(package)
        if graph.chain_exists(importer=module, imported=package)
    ]
    assert circles == []
