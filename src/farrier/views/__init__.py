"""Figures, text and reports about a fitted model."""
