"""Running control planes: the folder of each, its parts, and the clients of these."""
