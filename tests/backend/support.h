#pragma once

// Helpers of the backend tests: values, uploads, expected sums.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/kernels.h"
#include "base/dtype.h"
#include "base/error.h"

namespace fsdpbench::backend {

using MakeBackend = std::unique_ptr<Backend> (*)();
using Body = std::function<void(RankContext&)>;

constexpr std::int64_t kMillisecond = 1'000'000;

/// Why a run of so many ranks cannot be tried here; empty: it can. The test program of a backend that needs hardware
/// puts its own function here.
inline std::function<std::string(int ranks)> why_skip = [](int) { return std::string(); };

/// How far sums may be off the ordered sum, absolutely (values of value_of() lie within +-ranks): 0 where a backend
/// keeps Communicator's word. The test program of one that cannot sets it, for fp32 and for bf16.
struct SumTolerance {
  double f32 = 0;
  double bf16 = 0;
};
inline SumTolerance sum_tolerance;

/// Skips the test, and returns, if it cannot be tried: to be called last.
inline void run(MakeBackend make, int ranks, const Body& body) {
  if (const std::string why = why_skip(ranks); !why.empty()) GTEST_SKIP() << why;
  BackendOptions options;
  options.ranks = ranks;
  make()->run(options, body);
}

/// Runs `body` on `ranks` ranks, which must fail, and returns the message.
inline std::string failure_of(MakeBackend make, const BackendOptions& options, const Body& body) {
  try {
    make()->run(options, body);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "(nothing was thrown)";
}

/// Puts host values into device memory; `values` must live until the lane was waited for.
template <class T>
void upload(Device& device, Lane lane, const std::vector<T>& values, std::byte* target) {
  device.enqueue(
      lane, "upload",
      [source = values.data(), bytes = static_cast<std::int64_t>(values.size() * sizeof(T)), target](Kernels& kernels) {
        kernels.upload(source, target, bytes);
      },
      nullptr);
}

template <class T>
void download(Device& device, Lane lane, const std::byte* source, std::vector<T>& values) {
  device.enqueue(
      lane, "download",
      [source, bytes = static_cast<std::int64_t>(values.size() * sizeof(T)), target = values.data()](Kernels& kernels) {
        kernels.download(source, target, bytes);
      },
      nullptr);
}

inline void delay(Device& device, Lane lane, std::int64_t nanoseconds, Stamp* stamp = nullptr) {
  device.enqueue(
      lane, "delay", [nanoseconds](Kernels& kernels) { kernels.delay(nanoseconds); }, stamp);
}

/// A value that differs for each (rank, element) and whose sums must be rounded.
inline float value_of(int rank, std::int64_t element) {
  std::uint32_t x = static_cast<std::uint32_t>(element) * 2654435761U + static_cast<std::uint32_t>(rank) * 40503U + 1U;
  x ^= x >> 15;
  x *= 2246822519U;
  x ^= x >> 13;
  return (static_cast<float>(x >> 8) / 8388608.0F - 1.0F) * static_cast<float>(rank + 1);
}

inline float to_float(float value) { return value; }
inline float to_float(std::uint16_t bits) { return bf16_to_float(bits); }
template <class T>
T from_float(float value) {
  if constexpr (sizeof(T) == 2) {
    return float_to_bf16(value);
  } else {
    return value;
  }
}

/// Elements [first, first + count) of `rank`'s message.
template <class T>
std::vector<T> values_of(int rank, std::int64_t first, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = from_float<T>(value_of(rank, first + i));
  return values;
}

/// The ordered sum that the contract asks for, of `ranks`' messages.
template <class T>
std::vector<T> sum_of(const std::vector<int>& ranks, std::int64_t first, std::int64_t count, float scale) {
  std::vector<T> sums(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = to_float(from_float<T>(value_of(ranks.front(), first + i)));
    for (std::size_t r = 1; r < ranks.size(); ++r) sum += to_float(from_float<T>(value_of(ranks[r], first + i)));
    sums[static_cast<std::size_t>(i)] = from_float<T>(sum * scale);
  }
  return sums;
}

/// `actual` is what a reduction gave, of values of value_of().
template <class T>
void expect_sums(const std::vector<T>& actual, const std::vector<T>& expected) {
  const double tolerance = sizeof(T) == 2 ? sum_tolerance.bf16 : sum_tolerance.f32;
  ASSERT_EQ(actual.size(), expected.size());
  if (tolerance == 0) {
    EXPECT_EQ(actual, expected);
    return;
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(to_float(actual[i]), to_float(expected[i]), tolerance) << "element " << i;
  }
}

inline std::vector<int> first_ranks(int count) {
  std::vector<int> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return ranks;
}

template <class T>
constexpr DType dtype_of() {
  return sizeof(T) == 2 ? DType::bf16 : DType::f32;
}

/// Device memory holding `values` when this returns.
template <class T>
std::byte* put(Device& device, const std::vector<T>& values) {
  std::byte* memory = device.allocate(static_cast<std::int64_t>(values.size() * sizeof(T)),
                                      MemoryCategory::communication_buffers, Lane::compute);
  upload(device, Lane::compute, values, memory);
  device.synchronize();
  return memory;
}

template <class T>
std::vector<T> get(Device& device, const std::byte* memory, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  device.synchronize();
  download(device, Lane::compute, memory, values);
  device.synchronize();
  return values;
}

/// Device memory that every lane may use at once.
template <class T>
std::byte* reserve(Device& device, std::int64_t count) {
  std::byte* memory = device.allocate(count * static_cast<std::int64_t>(sizeof(T)),
                                      MemoryCategory::communication_buffers, Lane::compute);
  device.synchronize();
  return memory;
}

template <class T>
void check_collectives(RankContext& context, std::int64_t count) {
  Device& device = context.device;
  Communicator& world = context.world;
  const int n = world.size();
  const int rank = world.rank();
  const DType dtype = dtype_of<T>();
  const float scale = 1.0F / static_cast<float>(n + 1);

  std::vector<T> gathered;
  for (int r = 0; r < n; ++r) {
    const std::vector<T> slice = values_of<T>(r, 0, count);
    gathered.insert(gathered.end(), slice.begin(), slice.end());
  }
  std::byte* shard = put(device, values_of<T>(rank, 0, count));
  std::byte* full = reserve<T>(device, n * count);
  world.all_gather(Lane::all_gather, shard, full, count, dtype, nullptr);
  EXPECT_EQ(get<T>(device, full, n * count), gathered) << "all_gather";

  std::vector<T> only_mine(gathered.size());
  std::copy_n(gathered.begin() + rank * count, count, only_mine.begin() + rank * count);
  std::byte* in_place = put(device, only_mine);
  std::byte* slot = in_place + rank * count * static_cast<std::int64_t>(sizeof(T));
  world.all_gather(Lane::all_gather, slot, in_place, count, dtype, nullptr);
  EXPECT_EQ(get<T>(device, in_place, n * count), gathered) << "all_gather in place";

  const std::vector<T> expected_shard = sum_of<T>(first_ranks(n), rank * count, count, scale);
  std::byte* message = put(device, values_of<T>(rank, 0, n * count));
  world.reduce_scatter(Lane::reduce_scatter, message, shard, count, dtype, scale, nullptr);
  expect_sums(get<T>(device, shard, count), expected_shard);
  slot = message + rank * count * static_cast<std::int64_t>(sizeof(T));
  world.reduce_scatter(Lane::reduce_scatter, message, slot, count, dtype, scale, nullptr);
  expect_sums(get<T>(device, slot, count), expected_shard);

  std::byte* buffer = put(device, values_of<T>(rank, 0, count));
  world.all_reduce(Lane::all_reduce, buffer, count, dtype, scale, nullptr);
  expect_sums(get<T>(device, buffer, count), sum_of<T>(first_ranks(n), 0, count, scale));

  buffer = put(device, values_of<T>(rank, 0, count));
  world.broadcast(Lane::copy, buffer, count, dtype, n / 2, nullptr);
  EXPECT_EQ(get<T>(device, buffer, count), values_of<T>(n / 2, 0, count)) << "broadcast";
}

}  // namespace fsdpbench::backend
