"""Running control planes: their folders, parts and clients."""
