"""Probability: knows no network, no data, no file."""
