#pragma once

#include <algorithm>

#include "support/emulated_machine.h"
#include "tune/search.h"

namespace fsdpbench::tune {

inline SearchResult search_in(const Space& space, SearchOptions options) {
  return search(space, testing::EmulatedMachine(), options);
}

inline double best_ms(const SearchResult& result) { return result.tried[*result.best].step_ns / 1e6; }

/// Shortest step of all policies that fit.
inline double shortest_ms(const SearchResult& result) {
  double least = best_ms(result);
  for (const Tried& tried : result.tried) {
    if (tried.fits) least = std::min(least, tried.step_ns / 1e6);
  }
  return least;
}

}  // namespace fsdpbench::tune
