"""The part of the protocol explorer that is inside a node: it sees requests and answers, and streams them.

Nothing of it is imported by a node that is not to be watched. `watched_requests` observes those of a
connection, `tap` decides what is seen, `pages` serves it over HTTP.
"""
