"""Diagnoses why a job is not running: turns the evidence into a ranked list of causes with advice. Pure."""
