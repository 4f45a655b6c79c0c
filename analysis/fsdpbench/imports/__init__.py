"""Settings of other systems as profiles: `fsdpbench import`. source.py has the register of importers."""
