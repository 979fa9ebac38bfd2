"""Executes plans: writes the status; creates, repairs and deletes children. `jobs.reconciler` defines the order."""
