"""Executes plans: writes the status, creates, repairs and deletes children. `plan` decides, `executor` keeps the order."""
