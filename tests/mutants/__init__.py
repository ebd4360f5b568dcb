"""One-line mistakes, and a program that checks that the tests notice them."""
