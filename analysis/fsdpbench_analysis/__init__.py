"""Draws fsdpbench's result files. Every number comes from the files; nothing is measured or computed here."""

import os

# No display is needed, whatever the environment says; before matplotlib is imported anywhere.
os.environ["MPLBACKEND"] = "Agg"

__version__ = "0.1.0"
