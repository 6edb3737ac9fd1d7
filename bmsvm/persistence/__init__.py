"""Models as files of an open format, which run nothing when they are loaded."""

from bmsvm.persistence.model_file import FORMAT_VERSION, load, save
from bmsvm.storage.errors import ModelFileError

__all__ = ["FORMAT_VERSION", "ModelFileError", "load", "save"]
