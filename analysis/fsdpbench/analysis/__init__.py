"""Draws fsdpbench's result files. Every number comes from the files; nothing is measured or computed here."""

__version__ = "0.1.0"
