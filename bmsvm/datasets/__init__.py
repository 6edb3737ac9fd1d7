"""Data sets: the four of the paper, and a problem with eleven classes."""

from bmsvm.datasets._bundled import load_glass, load_vehicle, load_wine
from bmsvm.datasets._synthetic import make_eleven, make_waveform

__all__ = ["load_glass", "load_vehicle", "load_wine", "make_eleven", "make_waveform"]
