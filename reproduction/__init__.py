"""Experiments that check the package: Table 1 of the paper, and simulation-based calibration."""
