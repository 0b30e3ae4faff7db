"""What the page asks, a module for each of its parts. An answer is a JSON document; ``routes.py`` has the paths."""
