#pragma once

#include <cstddef>
#include <cstring>

#include "backend/cuda/fake/kernels/grid_runner.h"

namespace fake {

/// Ends the program with a sentence unless all lanes are named: the kernels only exchange among whole warps.
void check_whole_warp(unsigned lanes);

/// Value that `lane` of the warp brought. All lanes call it.
template <class T>
T of_lane(unsigned lanes, T value, int lane) {
  static_assert(sizeof(T) <= 16);
  check_whole_warp(lanes);
  std::byte* const slots = warp_slots();
  std::memcpy(slots + 16 * fake::lane(), &value, sizeof(T));
  sync_warp();
  std::memcpy(&value, slots + 16 * lane, sizeof(T));
  return value;
}

/// Bit l is lane l's vote. All lanes call it.
unsigned ballot(unsigned lanes, bool vote);

}  // namespace fake
