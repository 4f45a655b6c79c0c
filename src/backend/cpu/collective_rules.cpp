#include "backend/cpu/collective_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/ring.h"

namespace fsdpbench::backend::cpu {
namespace {

bool is_reduction(Collective kind) { return kind == Collective::reduce_scatter || kind == Collective::all_reduce; }

bool match(const CollectiveCall& a, const CollectiveCall& b) {
  return a.kind == b.kind && a.count == b.count && a.dtype == b.dtype && a.scale == b.scale && a.root == b.root &&
         a.parts.pieces == b.parts.pieces;
}

std::string describe_call(const CollectiveCall& call) {
  std::string text = fmt::format("{} of {} {}", to_string(call.kind), call.count, to_string(call.dtype));
  if (call.parts.pieces > 0) text += fmt::format(" a row, in parts of {} pieces", call.parts.pieces);
  if (is_reduction(call.kind)) text += fmt::format(" scaled by {}", call.scale);
  if (call.kind == Collective::broadcast) text += fmt::format(" from {}", call.root);
  return text;
}

}  // namespace

std::int64_t wire_bytes(const CollectiveCall& call, int size) {
  return ring_bytes(call.kind, call.count * size_of(call.dtype), size);
}

std::int64_t link_bytes(const CollectiveCall& call, int size) {
  if (call.kind == Collective::broadcast && size > 1) return call.count * size_of(call.dtype);
  return wire_bytes(call, size);
}

std::int64_t part_rows(const CollectiveCall& call, const std::int32_t* lengths, int rank) {
  const std::int32_t* const part = lengths + static_cast<std::ptrdiff_t>(rank) * call.parts.pieces;
  return std::accumulate(part, part + call.parts.pieces, std::int64_t{0});
}

std::int64_t bytes_to_others(const CollectiveCall& call, int rank, int size) {
  std::int64_t rows = 0;
  for (int to = 0; to < size; ++to) {
    const std::int32_t* const part = call.parts.sent + static_cast<std::ptrdiff_t>(to) * call.parts.pieces;
    if (const auto wrong = std::find_if(part, part + call.parts.pieces, [](std::int32_t n) { return n < 0; });
        wrong != part + call.parts.pieces) {
      throw BackendError(fmt::format("{} sends {} rows to rank {} of its group", to_string(call.kind), *wrong, to));
    }
    if (to != rank) rows += part_rows(call, call.parts.sent, to);
  }
  return rows * call.count * size_of(call.dtype);
}

void check_room(const CollectiveCall& call, int rank, int size) {
  std::int64_t rows = 0;
  for (int from = 0; from < size; ++from) rows += part_rows(call, call.parts.received, from);
  if (rows <= call.parts.room) return;
  throw BackendError(fmt::format("{} rows come to rank {} of its group by {}, which has room for {}", rows, rank,
                                 to_string(call.kind), call.parts.room));
}

int hops(Collective kind, int size) {
  if (kind == Collective::send_recv) return size > 1 ? 1 : 0;
  return ring_hops(size, kind == Collective::all_reduce ? 2 : 1);
}

void check_match(std::span<const CollectiveCall> calls, std::span<const int> world_ranks) {
  for (std::size_t rank = 1; rank < calls.size(); ++rank) {
    if (match(calls.front(), calls[rank])) continue;
    throw BackendError(fmt::format("the ranks call different collectives: world rank {} {}, world rank {} {}",
                                   world_ranks.front(), describe_call(calls.front()), world_ranks[rank],
                                   describe_call(calls[rank])));
  }
}

void copy_bytes(const std::byte* source, std::byte* target, std::int64_t bytes) {
  if (source != target && bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

Slices Slices::divide(std::int64_t count, int size) { return {count, round_up(ceil_div(count, size), 32)}; }

}  // namespace fsdpbench::backend::cpu
