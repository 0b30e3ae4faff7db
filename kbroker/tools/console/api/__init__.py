"""The answers to the page, a module for each part. An answer is a JSON document; ``routes.py`` has the paths."""
