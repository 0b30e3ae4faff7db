"""The part of the protocol explorer that is inside a node: it sees requests and answers, and streams them.

Nothing of it is imported by a node that is not to be watched. `watched_requests` observes the requests of a connection,
`tap` decides which are seen within the `budget`, `pages` serves it over HTTP. Requests are explained in
`kbroker.observe.explorer`, not here. Begin with `service`, then `tap`.
"""
