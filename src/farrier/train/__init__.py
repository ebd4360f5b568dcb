"""Training: settings, rows, schedule, steps and the loop over them."""
