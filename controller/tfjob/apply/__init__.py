"""Executes plans: writes the status; creates, repairs and deletes children. `executor` defines the order."""
