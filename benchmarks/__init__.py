"""Timings of compilation, training and prediction; `make bench` runs them."""
