"""The plugin as it is installed without pip: its wheel, archives for each platform, a manifest for krew, its reference."""
