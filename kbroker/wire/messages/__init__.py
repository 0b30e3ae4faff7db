"""One module per API: its request, its response and the structs inside them."""
