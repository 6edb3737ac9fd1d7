"""Predictions from posterior draws: new rows, leave-one-out, calibration, uncertainty."""
