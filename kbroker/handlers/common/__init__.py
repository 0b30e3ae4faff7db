"""Steps that several handlers share: the context of a request, permissions, errors, and steps of one kind of API.

An API that is served has its module in `kbroker.handlers`, not here. Begin with `context`, then with `authorization`.
"""
