"""Data larger than memory, several devices and several processes."""
