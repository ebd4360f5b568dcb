"""`python -m farrier`."""

from .cli import main

main()
