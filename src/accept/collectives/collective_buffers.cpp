#include "accept/collectives/collective_buffers.h"

#include <algorithm>
#include <span>

#include "backend/kernels.h"
#include "base/bytes.h"
#include "base/lane_pool.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using backend::Kernels;

constexpr std::int64_t kStaging_bytes = std::int64_t{4} << 20;
constexpr std::int64_t kOffBy = 8;  // a whole element of any dtype

}  // namespace

std::int64_t CollectiveBuffers::bytes(std::int64_t most_bytes) {
  return 2 * LanePool::rounded(checked_sum(most_bytes, 2 * kOffBy));
}

CollectiveBuffers::CollectiveBuffers(backend::RankContext& context, std::int64_t most_bytes, Lane lane, bool unaligned)
    : context_(context),
      lane_(lane),
      first_(context.device.allocate(bytes(most_bytes) / 2, MemoryCategory::communication_buffers, lane)),
      second_(context.device.allocate(bytes(most_bytes) / 2, MemoryCategory::communication_buffers, lane)),
      offset_(unaligned ? kOffBy : 0),
      staging_(static_cast<std::size_t>(std::min(most_bytes + kOffBy, kStaging_bytes))) {}

CollectiveBuffers::~CollectiveBuffers() {
  try {
    context_.device.free(first_, lane_);
    context_.device.free(second_, lane_);
  } catch (...) {  // the run has failed: the device goes, and its memory with it
  }
}

std::byte* CollectiveBuffers::target(const Message& message, bool in_place) const {
  // In place the reduced part replaces the rank's own part of the input.
  if (message.op != Collective::reduce_scatter) return second_ + offset_;
  return in_place ? source(message, true) + context_.rank * message.part_bytes() : first_ + offset_;
}

std::byte* CollectiveBuffers::source(const Message& message, bool in_place) const {
  if (message.op == Collective::reduce_scatter) return second_ + offset_;
  if (!in_place) return first_ + offset_;
  return second_ + offset_ + (message.op == Collective::all_gather ? context_.rank * message.part_bytes() : 0);
}

void CollectiveBuffers::upload(std::byte* to, std::int64_t count, DType dtype, int rank, const Pattern& pattern) {
  const std::int64_t element = size_of(dtype);
  const std::int64_t most = static_cast<std::int64_t>(staging_.size()) / element;
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t some = std::min(most, count - first);
    const std::int64_t bytes = some * element;
    pattern.fill(rank, first, std::span(staging_).first(static_cast<std::size_t>(bytes)));
    context_.device.enqueue(
        lane_, "fill", [&](Kernels& kernels) { kernels.upload(staging_.data(), to + first * element, bytes); },
        nullptr);
    context_.device.synchronize();
  }
}

void CollectiveBuffers::fill(const Message& message, bool in_place, int root, const Pattern& pattern) {
  const std::int64_t whole = message.bytes();
  context_.device.enqueue(
      lane_, "clear",
      [&](Kernels& kernels) {
        kernels.fill_zero(first_ + offset_, whole);
        kernels.fill_zero(second_ + offset_, whole);
      },
      nullptr);
  context_.device.synchronize();
  if (message.op == Collective::broadcast && context_.rank != root) return;
  // Of these a rank holds what goes to all others.
  const bool all_parts = message.op == Collective::reduce_scatter || message.op == Collective::all_to_all;
  const std::int64_t count = all_parts ? message.count * message.ranks : message.count;
  upload(source(message, in_place), count, message.dtype, context_.rank, pattern);
}

void CollectiveBuffers::issue(backend::Communicator& communicator, const Message& message, bool in_place, float scale,
                              int root, backend::Stamp* stamp) {
  const bool rooted = message.op == Collective::broadcast;
  communicator.enqueue(lane_,
                       {.kind = message.op,
                        .input = source(message, in_place),
                        .output = target(message, in_place),
                        .count = message.count,
                        .dtype = message.dtype,
                        .scale = message.reduces() ? scale : 1.0F,
                        .root = rooted ? root : 0},
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
    wrong += check(first, std::span<const std::byte>(staging_).first(static_cast<std::size_t>(bytes)));
  }
  return wrong;
}

std::int64_t CollectiveBuffers::wrong(const Message& message, bool in_place, Reduction reduction, int root,
                                      const Pattern& pattern) {
  const std::byte* const got = target(message, in_place);
  const auto holds = [&](int rank) {
    return [&pattern, rank](std::int64_t first, std::span<const std::byte> bytes) {
      return pattern.wrong(rank, first, bytes);
    };
  };
  if (message.op == Collective::broadcast) return checked(got, message.count, message.dtype, holds(root));
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
