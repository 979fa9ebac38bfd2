"""Measures the live page under load: many jobs, many pods, many browsers."""
