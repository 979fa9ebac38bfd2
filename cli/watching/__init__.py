"""A job as it changes: what is read in threads, and how the changes are shown."""
