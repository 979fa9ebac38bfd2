"""A test kit for controllers. Provisional: it may change in a minor version."""
