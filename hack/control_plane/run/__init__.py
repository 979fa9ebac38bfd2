"""Control planes that run: one keeper process each, its folder, its parts, and what reaches them."""
