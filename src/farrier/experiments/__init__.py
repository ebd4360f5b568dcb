"""One file for each figure or table of the paper; `farrier reproduce` runs them."""
