"""`python -m experiments NAME`."""

from .command import app

if __name__ == "__main__":
    app(prog_name="python -m experiments")
