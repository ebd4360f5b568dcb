"""MCMC: the target density, Markov chains and how they move."""
