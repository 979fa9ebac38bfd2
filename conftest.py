"""Enables the plugin of the test kit for all tests, which its users have from its entry point."""

pytest_plugins = ["kit.plugin"]
