"""The commands of the command line, one file each; `cli.py` puts them together."""
