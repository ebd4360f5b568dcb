"""What a posterior is used for: predictions, node scores, compaction and MCMC."""
