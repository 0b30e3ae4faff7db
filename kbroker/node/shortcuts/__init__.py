"""Short ways past decoding, handler and encoding, for requests that a connection sends again and again.

A request is recognised by its bytes: they are those of an earlier request of the same connection and API, all but the
correlation id and a few fields (`template`). A recognised request is served by the shortcut of its API (`produce`,
`offset_commit`, `list_offsets`, `heartbeat`), which does what the handler would do and puts numbers into the remembered
response. Every other request, and every one that would be refused, is let through to its handler, which has all the
rules; `cache` remembers one in a while of those for the next time.

Nothing is decided here: without this package every client is told the same, for more CPU time. Begin with `cache`,
then `template`.
"""
