"""Packages of the plugin for installation without pip: archives for each platform, the krew manifest; and its reference."""
