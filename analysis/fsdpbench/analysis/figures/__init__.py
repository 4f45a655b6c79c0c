"""One figure a file: plain data in, a matplotlib Figure out. Nothing is measured or computed beyond layout."""
