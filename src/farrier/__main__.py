"""`python -m farrier`."""

from .cli.app import main

main()
