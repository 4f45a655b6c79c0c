#include "accept/collectives/collective_buffers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "backend/kernels.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/lane_pool.h"
#include "base/random.h"

namespace fsdpbench::app {
namespace {

/// Up to here all integers are exact.
std::int64_t exact_up_to(DType dtype) { return dtype == DType::bf16 ? 256 : std::int64_t{1} << 24; }

void put(DType dtype, float value, std::byte* at) {
  const auto write = [&](auto element) { std::memcpy(at, &element, sizeof element); };
  return dtype == DType::bf16 ? write(float_to_bf16(value)) : write(value);
}

template <class T>
T element_at(const std::byte* at) {
  T element;
  std::memcpy(&element, at, sizeof element);
  return element;
}

double number_at(DType dtype, const std::byte* at) {
  return dtype == DType::bf16 ? bf16_to_float(element_at<std::uint16_t>(at)) : element_at<float>(at);
}

using backend::Collective;
using backend::Kernels;

constexpr std::int64_t kStaging_bytes = std::int64_t{4} << 20;

}  // namespace

Pattern::Pattern(DType dtype, bool reduced, int ranks, std::uint64_t round)
    : dtype_(dtype), ranks_(ranks), round_(split_mixed(round)) {
  constexpr int kPeak = 250;
  if (!reduced) {
    peak_ = kPeak;
    least_ = 1;  // a buffer that nobody wrote to is all zeros
    return;
  }
  const std::int64_t most = exact_up_to(dtype);
  stride_ = static_cast<int>(ceil_div(ranks, most));
  peak_ = static_cast<int>(std::clamp<std::int64_t>(most / ceil_div(ranks, stride_), 1, kPeak));
}

int Pattern::value(int rank, std::int64_t index) const {
  const std::uint64_t place = split_mixed(round_ ^ static_cast<std::uint64_t>(index));
  if ((static_cast<std::uint64_t>(rank) + place) % static_cast<std::uint64_t>(stride_) != 0) return 0;
  const std::uint64_t mine = mixed(place ^ static_cast<std::uint64_t>(rank) * 0x9E3779B97F4A7C15ULL);
  return least_ + static_cast<int>(mine % static_cast<std::uint64_t>(peak_ - least_ + 1));
}

void Pattern::fill(int rank, std::int64_t first, std::span<std::byte> out) const {
  const auto size = static_cast<std::size_t>(size_of(dtype_));
  for (std::size_t at = 0; at < out.size(); at += size, ++first)
    put(dtype_, static_cast<float>(value(rank, first)), out.data() + at);
}

std::int64_t Pattern::wrong(int rank, std::int64_t first, std::span<const std::byte> got) const {
  const auto size = static_cast<std::size_t>(size_of(dtype_));
  std::int64_t count = 0;
  for (std::size_t at = 0; at < got.size(); at += size, ++first) {
    if (number_at(dtype_, got.data() + at) != value(rank, first)) ++count;
  }
  return count;
}

std::int64_t Pattern::wrong_sums(Reduction reduction, std::int64_t first, std::span<const std::byte> got) const {
  const auto size = static_cast<std::size_t>(size_of(dtype_));
  const bool inexact = reduction == Reduction::average && (ranks_ & (ranks_ - 1)) != 0;
  const double tolerance = inexact ? std::ldexp(1.0, dtype_ == DType::bf16 ? -6 : -18) : 0;
  std::int64_t count = 0;
  for (std::size_t at = 0; at < got.size(); at += size, ++first) {
    double expected = 0;
    for (int rank = 0; rank < ranks_; ++rank) expected += value(rank, first);
    if (reduction == Reduction::average) expected /= ranks_;
    // Not "above": a NaN is wrong, too.
    if (!(std::abs(number_at(dtype_, got.data() + at) - expected) <= tolerance * expected)) ++count;
  }
  return count;
}

std::int64_t CollectiveBuffers::bytes(std::int64_t most_bytes) { return Blocks<2>::bytes(most_bytes); }

CollectiveBuffers::CollectiveBuffers(backend::RankContext& context, std::int64_t most_bytes, Lane lane, int root)
    : context_(context), lane_(lane), root_(root), blocks_(context, most_bytes, lane), staging_(kStaging_bytes) {}

std::byte* CollectiveBuffers::target(const Message& message, bool in_place) const {
  // In place the reduced part replaces the rank's own part of the input.
  if (message.op != Collective::reduce_scatter) return blocks_[1];
  return in_place ? source(message, true) + context_.rank * message.part_bytes() : blocks_[0];
}

std::byte* CollectiveBuffers::source(const Message& message, bool in_place) const {
  if (message.op == Collective::reduce_scatter) return blocks_[1];
  if (!in_place) return blocks_[0];
  return blocks_[1] + (message.op == Collective::all_gather ? context_.rank * message.part_bytes() : 0);
}

void CollectiveBuffers::upload(std::byte* to, std::int64_t count, DType dtype, int rank, const Pattern& pattern) {
  const std::int64_t element = size_of(dtype);
  const std::int64_t most = static_cast<std::int64_t>(staging_.size()) / element;
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t some = std::min(most, count - first);
    const std::int64_t bytes = some * element;
    pattern.fill(rank, first, std::span(staging_).first(bytes));
    context_.device.enqueue(
        lane_, "fill", [&](Kernels& kernels) { kernels.upload(staging_.data(), to + first * element, bytes); },
        nullptr);
    context_.device.synchronize();
  }
}

void CollectiveBuffers::fill(const Message& message, bool in_place, const Pattern& pattern) {
  const std::int64_t whole = message.bytes();
  context_.device.enqueue(
      lane_, "clear",
      [&](Kernels& kernels) {
        kernels.fill_zero(blocks_[0], whole);
        kernels.fill_zero(blocks_[1], whole);
      },
      nullptr);
  context_.device.synchronize();
  if (message.op == Collective::broadcast && context_.rank != root_) return;
  // In these collectives a rank holds what goes to all others.
  const bool all_parts = message.op == Collective::reduce_scatter || message.op == Collective::all_to_all;
  const std::int64_t count = all_parts ? message.count * message.ranks : message.count;
  upload(source(message, in_place), count, message.dtype, context_.rank, pattern);
}

void CollectiveBuffers::issue(backend::Communicator& communicator, const Message& message, bool in_place, float scale,
                              backend::Stamp* stamp) {
  const bool rooted = message.op == Collective::broadcast;
  communicator.enqueue(lane_,
                       {.kind = message.op,
                        .input = source(message, in_place),
                        .output = target(message, in_place),
                        .count = message.count,
                        .dtype = message.dtype,
                        .scale = message.reduces() ? scale : 1.0F,
                        .root = rooted ? root_ : 0},
                       stamp);
}

template <class Check>
std::int64_t CollectiveBuffers::checked(const std::byte* from, std::int64_t count, DType dtype, const Check& check) {
  const std::int64_t element = size_of(dtype);
  const std::int64_t most = static_cast<std::int64_t>(staging_.size()) / element;
  std::int64_t wrong = 0;
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t bytes = std::min(most, count - first) * element;
    context_.device.enqueue(
        lane_, "check", [&](Kernels& kernels) { kernels.download(from + first * element, staging_.data(), bytes); },
        nullptr);
    context_.device.synchronize();
    wrong += check(first, std::span<const std::byte>(staging_).first(bytes));
  }
  return wrong;
}

std::int64_t CollectiveBuffers::wrong(const Message& message, bool in_place, Reduction reduction,
                                      const Pattern& pattern) {
  const std::byte* const got = target(message, in_place);
  const auto holds = [&](int rank) {
    return [&pattern, rank](std::int64_t first, std::span<const std::byte> bytes) {
      return pattern.wrong(rank, first, bytes);
    };
  };
  if (message.op == Collective::broadcast) return checked(got, message.count, message.dtype, holds(root_));
  if (message.op == Collective::send_recv) {
    const int before = (context_.rank + message.ranks - 1) % message.ranks;
    return checked(got, message.count, message.dtype, holds(before));
  }
  if (message.op == Collective::all_gather) {
    std::int64_t wrong = 0;
    for (int rank = 0; rank < message.ranks; ++rank) {
      wrong += checked(got + rank * message.part_bytes(), message.count, message.dtype, holds(rank));
    }
    return wrong;
  }
  const std::int64_t own = context_.rank * message.count;
  if (message.op == Collective::all_to_all) {
    std::int64_t wrong = 0;
    for (int rank = 0; rank < message.ranks; ++rank) {
      wrong += checked(got + rank * message.part_bytes(), message.count, message.dtype,
                       [&](std::int64_t first, std::span<const std::byte> bytes) {
                         return pattern.wrong(rank, own + first, bytes);
                       });
    }
    return wrong;
  }
  const std::int64_t begin = message.op == Collective::reduce_scatter ? own : 0;
  return checked(got, message.count, message.dtype, [&](std::int64_t first, std::span<const std::byte> bytes) {
    return pattern.wrong_sums(reduction, begin + first, bytes);
  });
}

}  // namespace fsdpbench::app
