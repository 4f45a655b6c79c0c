#include "clock/caching_allocator.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "clock/forecast.h"
#include "schedule/memory_walk.h"

namespace fsdpbench::clock {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kLeastBlock = 512;
constexpr std::int64_t kMostSmall = kMiB;
constexpr std::int64_t kSmallSegment = 2 * kMiB;
constexpr std::int64_t kLargeSegment = 20 * kMiB;
constexpr std::int64_t kLeastOwnSegment = 10 * kMiB;
constexpr std::int64_t kSegmentGranule = 2 * kMiB;

std::int64_t segment_size(std::int64_t size) {
  if (size <= kMostSmall) return kSmallSegment;
  if (size < kLeastOwnSegment) return kLargeSegment;
  return round_up(size, kSegmentGranule);
}

bool is_worth_splitting(std::int64_t rest, bool finely) { return finely ? rest >= kLeastBlock : rest > kMostSmall; }

/// Bytes of memory that an expandable segment gets at a time.
std::int64_t page_size(bool small) { return small ? kSmallSegment : kLargeSegment; }
/// More than any GPU has; PyTorch takes 9/8 of the device's memory.
constexpr std::int64_t kSegmentAddresses = kLargeSegment << 21;

}  // namespace

CachingAllocator::BlockId CachingAllocator::allocate(std::int64_t bytes, Lane stream, double now_ns) {
  if (bytes == 0) return kNone;  // PyTorch does not ask its allocator for an empty tensor, so no event is asked either
  take_back(now_ns);
  const std::int64_t size = round_up(bytes, kLeastBlock);
  const bool small = size <= kMostSmall;
  int block = find_free(size, small, stream);
  if (block == kNone) block = expandable_ ? grow_segment(size, small, stream) : new_segment(size, small, stream);
  if (is_worth_splitting(at(block).bytes - size, small || expandable_)) {
    list(split_off(block, size));
  }
  at(block).in_use = true;
  statistics_.allocated = checked_sum(statistics_.allocated, at(block).bytes);
  statistics_.peak_allocated = std::max(statistics_.peak_allocated, statistics_.allocated);
  return block;
}

void CachingAllocator::free(BlockId block) {
  if (block == kNone) return;
  statistics_.allocated -= at(block).bytes;
  make_free(block);
}

void CachingAllocator::free_after(BlockId block, double passed_ns) {
  if (block == kNone) return;
  statistics_.allocated -= at(block).bytes;
  pending_.emplace(passed_ns, block);
}

void CachingAllocator::list(int block) {
  const Block& b = at(block);
  if (b.mapped) {
    free_blocks(b.small).emplace(b.stream, b.bytes, b.address, block);
  } else {
    unmapped_blocks(b.small).emplace(b.stream, b.address, block);
  }
}

void CachingAllocator::unlist(int block) {
  const Block& b = at(block);
  if (b.mapped) {
    free_blocks(b.small).erase({b.stream, b.bytes, b.address, block});
  } else {
    unmapped_blocks(b.small).erase({b.stream, b.address, block});
  }
}

int CachingAllocator::new_block(const Block& block) {
  blocks_.push_back(block);
  return static_cast<int>(blocks_.size()) - 1;
}

int CachingAllocator::find_free(std::int64_t size, bool small, Lane stream) {
  const Free& blocks = free_blocks(small);
  auto found = blocks.lower_bound({stream, size, 0, 0});
  if (found == blocks.end() || std::get<0>(*found) != stream) return kNone;
  // A block that can grow is as large as it can become, so that others which are large enough come before it.
  for (auto next = std::next(found); expandable_ && next != blocks.end() && std::get<0>(*next) == stream &&
                                     grown_bytes(std::get<3>(*next)) < grown_bytes(std::get<3>(*found));
       ++next) {
    found = next;
  }
  const int block = std::get<3>(*found);
  unlist(block);
  return block;
}

int CachingAllocator::new_segment(std::int64_t size, bool small, Lane stream) {
  const std::int64_t bytes = segment_size(size);
  if (!is_room(bytes)) {
    return_segments();
    ++statistics_.retries;
    if (!is_room(bytes)) ++statistics_.failures;
  }
  reserve(bytes);
  const std::int64_t address = next_address_;
  next_address_ = checked_sum(next_address_, bytes);
  return new_block({.stream = stream, .small = small, .address = address, .bytes = bytes});
}

void CachingAllocator::reserve(std::int64_t bytes) {
  statistics_.reserved = checked_sum(statistics_.reserved, bytes);
  statistics_.peak_reserved = std::max(statistics_.peak_reserved, statistics_.reserved);
}

/// A block of the stream's expandable segment, which is grown as far as needed.
int CachingAllocator::grow_segment(std::int64_t size, bool small, Lane stream) {
  if (const auto block = try_to_grow(size, small, stream, false)) return *block;
  return_segments();
  ++statistics_.retries;
  if (const auto block = try_to_grow(size, small, stream, false)) return *block;
  ++statistics_.failures;
  return *try_to_grow(size, small, stream, true);
}

std::optional<int> CachingAllocator::try_to_grow(std::int64_t size, bool small, Lane stream, bool beyond_capacity) {
  int block = place_to_grow(size, small, stream);
  if (!at(block).mapped && !map(block, std::min(at(block).bytes, size), beyond_capacity)) return std::nullopt;
  while (at(block).bytes < size) {
    const int next = at(block).next;
    if (!map(next, std::min(size - at(block).bytes, at(next).bytes), beyond_capacity)) return std::nullopt;
    block = next;  // of which `block` is now the beginning
  }
  unlist(block);
  return block;
}

/// The first addresses of the stream that are free, with or without memory, and as many as `size`; else those of a new
/// segment.
int CachingAllocator::place_to_grow(std::int64_t size, bool small, Lane stream) {
  for (const auto& [of, address, unmapped] : unmapped_blocks(small)) {
    if (of != stream) continue;
    const int before = at(unmapped).previous;
    const int block = before != kNone && !at(before).in_use ? before : unmapped;
    if (is_room_from(block, size)) return block;
  }
  return new_block({.stream = stream, .small = small, .mapped = false, .bytes = kSegmentAddresses});
}

bool CachingAllocator::is_room_from(int block, std::int64_t size) const {
  std::int64_t room{};
  for (; block != kNone && !blocks_[block].in_use; block = blocks_[block].next) room += blocks_[block].bytes;
  return room >= size;
}

/// How large a free block becomes if the addresses behind it get memory, too.
std::int64_t CachingAllocator::grown_bytes(int block) const {
  const Block& b = blocks_[block];
  if (b.next == kNone || blocks_[b.next].mapped) return b.bytes;
  return b.bytes + blocks_[b.next].bytes;
}

/// Memory for the first `size` bytes of addresses, which begin a page; then the block is free. False: there is none.
bool CachingAllocator::map(int block, std::int64_t size, bool beyond_capacity) {
  const std::int64_t bytes = round_up(size, page_size(at(block).small));
  if (!beyond_capacity && !is_room(bytes)) return false;
  reserve(bytes);
  unlist(block);
  if (bytes < at(block).bytes) list(split_off(block, bytes));
  at(block).mapped = true;
  make_free(block);
  return true;
}

/// The whole pages of a free block go back to the driver.
void CachingAllocator::unmap(int block) {
  const std::int64_t page = page_size(at(block).small), address = at(block).address;
  const std::int64_t first = round_up(address, page), last = (address + at(block).bytes) / page * page;
  if (first >= last) return;
  unlist(block);
  if (first > address) {
    const int rest = split_off(block, first - address);
    list(block);
    block = rest;
  }
  if (at(block).bytes > last - first) list(split_off(block, last - first));
  statistics_.reserved -= last - first;
  at(block).mapped = false;
  merge(block, at(block).previous);
  merge(block, at(block).next);
  list(block);
}

/// The block keeps `size` bytes; what is behind them is a block of its own, in no list.
int CachingAllocator::split_off(int block, std::int64_t size) {
  const Block whole = at(block);
  const int rest = new_block({.stream = whole.stream,
                              .small = whole.small,
                              .mapped = whole.mapped,
                              .address = whole.address + size,
                              .bytes = whole.bytes - size,
                              .previous = block,
                              .next = whole.next});
  if (whole.next != kNone) at(whole.next).previous = rest;
  at(block).next = rest;
  at(block).bytes = size;
  return rest;
}

/// `neighbour` becomes a part of `block`, if it is free and has memory as that does.
void CachingAllocator::merge(int block, int neighbour) {
  if (neighbour == kNone || at(neighbour).in_use || at(neighbour).mapped != at(block).mapped) return;
  unlist(neighbour);
  Block& b = at(block);
  const Block& n = at(neighbour);
  b.bytes += n.bytes;
  if (b.previous == neighbour) {
    b.address = n.address;
    b.previous = n.previous;
    if (b.previous != kNone) at(b.previous).next = block;
  } else {
    b.next = n.next;
    if (b.next != kNone) at(b.next).previous = block;
  }
}

void CachingAllocator::make_free(int block) {
  merge(block, at(block).previous);
  merge(block, at(block).next);
  at(block).in_use = false;
  list(block);
}

/// Asks the events.
void CachingAllocator::take_back(double now_ns) {
  while (!pending_.empty() && pending_.top().first <= now_ns) {
    const int block = pending_.top().second;
    pending_.pop();
    make_free(block);
  }
}

/// Waits for all events; then what is wholly free goes back to the driver.
void CachingAllocator::return_segments() {
  take_back(std::numeric_limits<double>::infinity());
  if (expandable_) {
    std::vector<int> all;
    for (const bool small : {false, true}) {
      for (const auto& entry : free_blocks(small)) all.push_back(std::get<3>(entry));
    }
    for (const int block : all) unmap(block);
    return;
  }
  for (Free& blocks : free_) {
    std::erase_if(blocks, [&](const auto& entry) {
      const int block = std::get<3>(entry);
      if (at(block).is_split()) return false;
      statistics_.reserved -= at(block).bytes;
      return true;
    });
  }
}
namespace {

using schedule::BufferId;
using schedule::Op;
using schedule::Schedule;

class AllocatorWalk {
 public:
  AllocatorWalk(int event_count, std::int64_t capacity, bool expandable, const FrameworkBlocks& framework)
      : allocator_(capacity, expandable), framework_(framework), events_ns_(event_count, 0) {}

  void allocate_persistent(const Schedule& schedule) {
    allocate(framework_.libraries, MemoryCategory::activations);
    allocate(framework_.buckets, MemoryCategory::communication_buffers);
    for (const schedule::Buffer& buffer : schedule.buffers) {
      const bool here = buffer.persistent && buffer.space == MemorySpace::device;
      if (here) allocate(buffer.bytes, buffer.category);
    }
  }

  void step(const Schedule& schedule, std::span<const trace::Record> records) {
    held_.resize(schedule.buffers.size());
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) issue(schedule, schedule.ops[i], records[i]);
  }

  CachingAllocator::Statistics statistics() const {
    CachingAllocator::Statistics result = allocator_.statistics();
    result.at_peak = at_peak_;
    return result;
  }

 private:
  struct Held {
    std::vector<CachingAllocator::BlockId> blocks;
    Lane stream = Lane::compute;
  };

  /// Blocks of `piece` bytes, and one of the rest.
  Held allocate(std::int64_t bytes, MemoryCategory category, Lane stream = Lane::compute, double now_ns = 0,
                std::int64_t piece = 0) {
    const std::int64_t before = allocator_.statistics().peak_allocated;
    Held held{{}, stream};
    live_[index_of(category)] += bytes;
    for (; piece > 0 && bytes > piece; bytes -= piece)
      held.blocks.push_back(allocator_.allocate(piece, stream, now_ns));
    held.blocks.push_back(allocator_.allocate(bytes, stream, now_ns));
    if (allocator_.statistics().peak_allocated > before) at_peak_ = live_;
    return held;
  }

  void allocate(const Schedule& schedule, BufferId id, Lane stream, double now_ns) {
    const schedule::Buffer& buffer = schedule.buffers[id];
    if (buffer.space != MemorySpace::device) return;
    const std::int64_t piece = buffer.role == schedule::BufferRole::workspace ? framework_.piece : 0;
    held_[id] = allocate(buffer.bytes, buffer.category, stream, now_ns, piece);
  }
  void free(Held& held, MemoryCategory category, std::int64_t bytes, Lane lane, double lane_ns) {
    live_[index_of(category)] -= bytes;
    for (const CachingAllocator::BlockId block : std::exchange(held.blocks, {})) {
      held.stream == lane ? allocator_.free(block) : allocator_.free_after(block, lane_ns);
    }
  }
  /// An eager loss's backward, with two gradients, is over before the hooks that gather for the head's.
  /// AdamW by foreach has the root of all second moments at once.
  void pass_phase(const Op& op, double now_ns) {
    const schedule::Phase before = std::exchange(phase_, op.phase);
    if (before == schedule::Phase::forward && op.phase == schedule::Phase::backward) {
      pass(2 * framework_.piece, MemoryCategory::activations, now_ns);
    } else if (before == schedule::Phase::backward && op.phase == schedule::Phase::optimizer) {
      pass(framework_.update, MemoryCategory::optimizer, now_ns);
    }
  }
  void pass(std::int64_t bytes, MemoryCategory category, double now_ns) {
    Held passing = allocate(bytes, category, Lane::compute, now_ns, framework_.piece);
    free(passing, category, bytes, Lane::compute, now_ns);
  }
  /// In a unit that has the embedding, too, autograd has the head's gradients long before the embedding's.
  void allocate_later(const Schedule& schedule, const Op& op, BufferId id, double now_ns) {
    const schedule::Buffer& buffer = schedule.buffers[id];
    if (op.module != framework_.head || buffer.role != schedule::BufferRole::gradients) {
      return allocate(schedule, id, op.lane, now_ns);
    }
    held_[id] = allocate(buffer.bytes - framework_.embedding, buffer.category, op.lane, now_ns);
    without_embedding_ = id;
  }
  bool is_of_loss(const Schedule& schedule, const Op& op, BufferId id) const {
    return framework_.piece > 0 && op.kind == schedule::OpKind::backward && op.module == framework_.head &&
           schedule.buffers[id].role == schedule::BufferRole::workspace;
  }

  bool comes_later(const Schedule& schedule, const Op& op, BufferId id) const {
    return framework_.autograd && schedule::may_come_later(schedule, op, id);
  }

  /// When the host gets to an op: the driver holds 1,024 launches, and a block's pass is some 40 kernels.
  double issued_ns(const Op& op, const trace::Record& record) {
    constexpr std::size_t kPassesAhead = 24;
    const bool passes = op.kind == schedule::OpKind::forward || op.kind == schedule::OpKind::recompute ||
                        op.kind == schedule::OpKind::backward;
    if (passes) begun_ns_.push(static_cast<double>(record.begin_ns));
    if (begun_ns_.size() > kPassesAhead) {
      host_ns_ = std::max(host_ns_, begun_ns_.front());
      begun_ns_.pop();
    }
    return host_ns_ = std::max(host_ns_, static_cast<double>(record.issued_ns));
  }

  void issue(const Schedule& schedule, const Op& op, const trace::Record& record) {
    if (op.is_host()) return;
    const double now_ns = issued_ns(op, record);
    pass_phase(op, now_ns);
    for (const BufferId id : op.allocates) {
      if (!comes_later(schedule, op, id) && !is_of_loss(schedule, op, id)) allocate(schedule, id, op.lane, now_ns);
    }
    // An op without work has no times of its own: it is over when its lane comes past it.
    double& lane_ns = lanes_ns_[index_of(op.lane)];
    for (const schedule::Wait& wait : op.waits) {
      lane_ns = std::max(lane_ns, events_ns_[wait.event]);
    }
    if (op.has_work()) lane_ns = std::max(lane_ns, static_cast<double>(record.end_ns));
    if (op.record != schedule::kNoEvent) events_ns_[op.record] = lane_ns;
    for (const BufferId id : op.frees) {
      const schedule::Buffer& buffer = schedule.buffers[id];
      if (buffer.space != MemorySpace::device || is_of_loss(schedule, op, id)) continue;
      free(held_[id], buffer.category, buffer.bytes, op.lane, lane_ns);
    }
    for (const BufferId id : op.allocates) {
      if (comes_later(schedule, op, id)) allocate_later(schedule, op, id, now_ns);
    }
    if (op.kind == schedule::OpKind::backward && op.module == 0 && without_embedding_ != schedule::kNoBuffer) {
      Held rest = allocate(framework_.embedding, MemoryCategory::gradients, op.lane, now_ns);
      held_[std::exchange(without_embedding_, schedule::kNoBuffer)].blocks.push_back(rest.blocks.front());
    }
  }

  CachingAllocator allocator_;
  FrameworkBlocks framework_;
  std::array<double, kLaneCount> lanes_ns_{};
  std::vector<double> events_ns_;
  std::vector<Held> held_;  // by buffer, but for persistent ones
  CategoryBytes live_{}, at_peak_{};
  std::queue<double> begun_ns_;  // of the last passes
  BufferId without_embedding_ = schedule::kNoBuffer;
  schedule::Phase phase_ = schedule::Phase::optimizer;  // of the last op
  double host_ns_ = 0;
};

/// [Note: blocks that frameworks hold]
/// cuBLAS has a workspace for the forward thread and one for autograd's, taken from the allocator (2.11's
/// CUDABlas.cpp). DDP copies gradients into buckets that live as long as the model (gradient_as_bucket_view = False).
/// DeepSpeed allocates reduce_bucket_size elements however small the model is: two buckets where reductions overlap.
std::int64_t bucket_bytes(const schedule::Training& training) {
  const config::Fsdp& fsdp = training.config.fsdp;
  const std::int64_t element = size_of(training.plan.reduce_dtype);
  if (training.plan.mesh.shard > 1) {
    const bool two = fsdp.reduce_by == config::ReduceBy::all_reduce && fsdp.reduce_lane != config::ReduceLane::compute;
    return checked_product(two ? 2 : 1, fsdp.reduce_bucket, element);
  }
  const bool ddp = fsdp.layout == config::Layout::per_param && training.plan.mesh.replicate > 1;
  return ddp ? checked_product(training.plan.shapes.trained_count(), element) : 0;
}

}  // namespace

CachingAllocator::Statistics allocator_walk(const schedule::Schedules& schedules,
                                            std::span<const trace::Record> records, std::size_t first,
                                            std::int64_t capacity, bool expandable, const FrameworkBlocks& framework) {
  AllocatorWalk walk(schedules.event_count, capacity, expandable, framework);
  walk.allocate_persistent(schedules.steps.front());
  for (std::size_t step = first; !records.empty(); ++step) {
    const Schedule& schedule = schedules.of_step(step);
    walk.step(schedule, records.first(schedule.ops.size()));
    records = records.subspan(schedule.ops.size());
  }
  return walk.statistics();
}

FrameworkBlocks framework_blocks(const schedule::Training& training, std::int64_t workspace_bytes) {
  const config::RunConfig& config = training.config;
  const plan::Plan& plan = training.plan;
  if (config.framework() == config::Simulate::Framework::own) return {};
  using Loss = config::Simulate::Loss;
  const bool eager = config.loss() != Loss::fused && config.loss() != Loss::chunked;
  const std::int64_t tokens = checked_product(config.train.batch_per_rank, config.train.seq_len);
  const std::int64_t logits = checked_product(tokens, config.model.vocab, size_of(DType::f32));
  FrameworkBlocks blocks{.libraries = workspace_bytes,
                         .buckets = bucket_bytes(training),
                         .autograd = true,
                         .piece = eager ? logits / config.mesh.tensor / config.mesh.context : 0,
                         .head = static_cast<int>(plan.shapes.modules.size()) - 1};
  for (const schedule::Buffer& buffer : training.schedules.steady().buffers) {
    const bool moment = buffer.role == schedule::BufferRole::second_moment ||
                        buffer.role == schedule::BufferRole::second_moment_replicated;
    const bool here = moment && buffer.space == MemorySpace::device && !config.simulate.fused_optimizer;
    if (here) blocks.update = checked_sum(blocks.update, buffer.bytes);
  }
  const bool together = plan.unit_of_module.front() == plan.unit_of_module.back() && !config.model.tied_head &&
                        plan.units.size() > 1 && !config.model.freezes() && config.fsdp.shard_threshold == 0;
  if (together) {
    blocks.embedding =
        checked_product(config.model.vocab / config.mesh.tensor, config.model.width, size_of(plan.gradient_dtype));
  }
  return blocks;
}

CachingAllocator::Statistics allocator_forecast(const schedule::Training& training, const OpTimes& times,
                                                std::int64_t capacity) {
  std::array<trace::RankTrace, 1> traces;
  forecast_run(training, times, training.schedules.steps.size() + 1, 0, traces);
  return allocator_walk(training.schedules, traces.front().records, 0, capacity,
                        training.config.simulate.expandable_segments,
                        framework_blocks(training, times.workspace_bytes));
}

}  // namespace fsdpbench::clock
