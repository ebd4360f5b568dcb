"""Inference: training, prediction and compaction."""
