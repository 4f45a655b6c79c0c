"""Other systems' settings as a profile: `fsdpbench import`."""

from . import systems as systems  # which registers the importers
