"""Experiments that the package reproduces; each is a program of its own."""
