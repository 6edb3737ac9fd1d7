"""Reference posteriors: what they are of, how they are made, and how they are compared."""
