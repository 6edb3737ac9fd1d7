"""Models as files of an open format, which run nothing when they are loaded."""

from bmsvm.persistence.errors import ModelFileError
from bmsvm.persistence.model_file import FORMAT_VERSION, load, save

__all__ = ["FORMAT_VERSION", "ModelFileError", "load", "save"]
