"""The part of the protocol explorer that is inside a node: it sees requests and answers, and streams them.

Nothing of it is imported by a node that is not to be watched. `watched_parts` has what a connection is given while it
is seen, `watched_requests` its requests, `tap` decides which are seen within the `budget`, `pages` serves it over HTTP.
"""
