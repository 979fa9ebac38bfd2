"""The operator: what any controller needs, and the TFJob controller on top of it."""
