"""Networks: layers, likelihoods and the bound of a whole model."""
