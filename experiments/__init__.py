"""The experiments: one file for each figure or table; `make reproduce` runs them."""
