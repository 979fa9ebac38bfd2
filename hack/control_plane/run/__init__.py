"""Running control planes: the keeper process of each, its folder, its parts, and the clients of these."""
