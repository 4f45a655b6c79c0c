"""Other systems' settings as a profile: `fsdpbench import`."""

from . import systems

__all__ = ["systems"]  # which registers the importers
