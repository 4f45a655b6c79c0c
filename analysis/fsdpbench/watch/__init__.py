"""`fsdpbench watch`: who in a running job is late, silent or does not come, by what its libraries write anyway."""
