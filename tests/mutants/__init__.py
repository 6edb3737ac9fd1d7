"""Errors put into the sampler on purpose, and the tests that must notice them."""
