// PyTorch's caching allocator by its rules, one by one, and on schedules with times given by hand.
#include "clock/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/schedule_cases.h"

namespace fsdpbench::clock {
namespace {

constexpr std::int64_t kMebi = 1 << 20;

TEST(CachingAllocator, SmallBlocksShareSegmentsOfTwoMiB) {
  CachingAllocator a;
  a.allocate(1, Lane::compute, 0);
  EXPECT_EQ(a.statistics().allocated, 512);
  EXPECT_EQ(a.statistics().reserved, 2 * kMebi);
  a.allocate(513, Lane::compute, 0);
  EXPECT_EQ(a.statistics().allocated, 512 + 1024);
  EXPECT_EQ(a.statistics().reserved, 2 * kMebi);
  a.allocate(kMebi, Lane::compute, 0);  // the largest small one; of the segment 1536 bytes are gone
  EXPECT_EQ(a.statistics().reserved, 2 * kMebi);
  a.allocate(kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 4 * kMebi);
}

TEST(CachingAllocator, UpToTenMiBIsCutFromTwentyAndMoreHasItsOwnSegment) {
  CachingAllocator a;
  a.allocate(kMebi + 1, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 20 * kMebi);
  a.allocate(10 * kMebi - 512, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 20 * kMebi);
  CachingAllocator b;
  b.allocate(10 * kMebi, Lane::compute, 0);
  EXPECT_EQ(b.statistics().reserved, 10 * kMebi);
  b.allocate(11 * kMebi + 1, Lane::compute, 0);  // rounded to 2 MiB: 12
  EXPECT_EQ(b.statistics().reserved, 22 * kMebi);
}

TEST(CachingAllocator, LargeBlocksAreSplitIfMoreThanOneMiBRemains) {
  CachingAllocator a;
  a.free(a.allocate(20 * kMebi, Lane::compute, 0));
  a.allocate(19 * kMebi, Lane::compute, 0);  // 1 MiB would remain: the block is handed out whole
  EXPECT_EQ(a.statistics().allocated, 20 * kMebi);
  CachingAllocator b;
  b.free(b.allocate(20 * kMebi, Lane::compute, 0));
  b.allocate(19 * kMebi - 512, Lane::compute, 0);
  EXPECT_EQ(b.statistics().allocated, 19 * kMebi - 512);
  b.allocate(kMebi + 512, Lane::compute, 0);  // what was split off
  EXPECT_EQ(b.statistics().reserved, 20 * kMebi);
}

TEST(CachingAllocator, AnExpandableSegmentGrowsByPagesAndHasNoSlivers) {
  for (const bool expandable : {false, true}) {
    CachingAllocator a(0, expandable);
    const int first = a.allocate(30 * kMebi, Lane::compute, 0), second = a.allocate(30 * kMebi, Lane::compute, 0);
    EXPECT_EQ(a.statistics().reserved, 60 * kMebi);  // three pages of 20 MiB, or two segments
    a.free(first);
    a.free(second);
    a.allocate(70 * kMebi, Lane::compute, 0);  // of the same segment, with one page more; else of a third
    EXPECT_EQ(a.statistics().reserved, expandable ? 80 * kMebi : 130 * kMebi);
    a.allocate(1, Lane::compute, 0);  // a small one has a segment of its own, of pages of 2 MiB
    EXPECT_EQ(a.statistics().reserved, (expandable ? 80 : 130) * kMebi + 2 * kMebi);
    a.allocate(20 * kMebi, Lane::all_gather, 0);  // as has another stream
    EXPECT_EQ(a.statistics().reserved, (expandable ? 80 : 130) * kMebi + 22 * kMebi);
  }
}

TEST(CachingAllocator, OfAnExpandableSegmentWholeFreePagesGoBackToAFullDevice) {
  CachingAllocator a(60 * kMebi, true);
  const int first = a.allocate(30 * kMebi, Lane::compute, 0);
  a.allocate(5 * kMebi, Lane::compute, 0);  // 30 to 35 of 40 MiB
  a.free(first);
  a.allocate(40 * kMebi, Lane::all_gather, 0);  // the first page is unmapped; the second holds the 5 MiB
  EXPECT_EQ(a.statistics().retries, 1);
  EXPECT_EQ(a.statistics().failures, 0);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  a.allocate(10 * kMebi, Lane::compute, 0);  // what is left of the second page
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  a.allocate(20 * kMebi, Lane::compute, 0);  // nothing is
  EXPECT_EQ(a.statistics().failures, 1);
}

/// A free block that can grow is taken for as large as it can become: 5 MiB and the hole behind it, of twice 20 MiB or
/// to the end, come after 30.
TEST(CachingAllocator, AHoleIsAsLargeAsAllAddressesWithoutMemoryThatTouch) {
  for (const bool twice : {false, true}) {
    CachingAllocator a((twice ? 100 : 60) * kMebi, true);
    const int large = a.allocate(30 * kMebi, Lane::compute, 0);
    a.allocate(5 * kMebi, Lane::compute, 0);
    const int first = a.allocate(25 * kMebi, Lane::compute, 0);  // from 35 on
    const int second = twice ? a.allocate(20 * kMebi, Lane::compute, 0) : 0;
    if (twice) a.allocate(20 * kMebi, Lane::compute, 0);
    a.free(first);
    a.allocate(20 * kMebi, Lane::all_gather, 0);  // the device is full: 40 to 60 goes
    if (twice) a.free(second);
    if (twice) a.allocate(20 * kMebi, Lane::all_gather, 0);  // and 60 to 80
    const int hole = twice ? 2 : 1;
    EXPECT_EQ(a.statistics().retries, hole);
    a.free(large);
    a.allocate(5 * kMebi, Lane::compute, 0);   // of the 30
    a.allocate(30 * kMebi, Lane::compute, 0);  // from 35 on, for which there is no memory
    EXPECT_EQ(a.statistics().retries, hole + 1);
    EXPECT_EQ(a.statistics().failures, 1);
    const std::int64_t reserved = (twice ? 140 : 100) * kMebi;
    EXPECT_EQ(a.statistics().reserved, reserved);
    a.allocate(25 * kMebi, Lane::compute, 0);  // the rest of the 30, of which no page was free as a whole
    EXPECT_EQ(a.statistics().reserved, reserved);
  }
}

TEST(CachingAllocator, TheSmallestBlockThatIsLargeEnoughIsTaken) {
  CachingAllocator a;
  const int large = a.allocate(40 * kMebi, Lane::compute, 0);
  const int middle = a.allocate(30 * kMebi, Lane::compute, 0);
  a.free(large);
  a.free(middle);
  a.allocate(30 * kMebi, Lane::compute, 0);
  a.allocate(40 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 70 * kMebi);
  EXPECT_EQ(a.statistics().peak_allocated, 70 * kMebi);
}

TEST(CachingAllocator, NeighboursThatAreFreeBecomeOneBlock) {
  CachingAllocator a;
  a.free(a.allocate(60 * kMebi, Lane::compute, 0));
  const int first = a.allocate(20 * kMebi, Lane::compute, 0);
  const int second = a.allocate(20 * kMebi, Lane::compute, 0);
  const int third = a.allocate(20 * kMebi, Lane::compute, 0);
  a.free(first);
  a.free(third);
  a.allocate(40 * kMebi, Lane::compute, 0);  // there are twice 20, apart
  EXPECT_EQ(a.statistics().reserved, 100 * kMebi);
  a.free(second);
  a.allocate(60 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 100 * kMebi);
}

TEST(CachingAllocator, AStreamReusesItsOwnBlocksAlone) {
  CachingAllocator a;
  a.free(a.allocate(30 * kMebi, Lane::compute, 0));
  a.allocate(30 * kMebi, Lane::all_gather, 0);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  a.allocate(30 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
}

TEST(CachingAllocator, EventsAreAskedWhenMemoryIsAllocated) {
  CachingAllocator a;
  a.free_after(a.allocate(30 * kMebi, Lane::compute, 0), 100);
  EXPECT_EQ(a.statistics().allocated, 0);  // the program has given it back
  const int second = a.allocate(30 * kMebi, Lane::compute, 99);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  a.allocate(30 * kMebi, Lane::compute, 100);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  EXPECT_EQ(a.statistics().peak_allocated, 60 * kMebi);
  // Where an event has not passed, a neighbour is not merged with it.
  a.free_after(second, 200);
  const int third = a.allocate(10 * kMebi, Lane::compute, 300);
  const int fourth = a.allocate(20 * kMebi, Lane::compute, 300);
  a.free_after(third, 400);
  a.free(fourth);
  a.allocate(30 * kMebi, Lane::compute, 399);
  EXPECT_EQ(a.statistics().reserved, 90 * kMebi);
  a.allocate(30 * kMebi, Lane::compute, 400);
  EXPECT_EQ(a.statistics().reserved, 90 * kMebi);
}

TEST(CachingAllocator, AFullDeviceGetsItsFreeSegmentsBack) {
  CachingAllocator a(100 * kMebi);
  a.free_after(a.allocate(60 * kMebi, Lane::compute, 0), 1e9);
  a.allocate(80 * kMebi, Lane::all_gather, 0);  // waits for the event, returns the 60
  EXPECT_EQ(a.statistics().reserved, 80 * kMebi);
  EXPECT_EQ(a.statistics().peak_reserved, 80 * kMebi);
  EXPECT_EQ(a.statistics().retries, 1);
  EXPECT_EQ(a.statistics().failures, 0);
  a.allocate(21 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().retries, 2);
  EXPECT_EQ(a.statistics().failures, 1);
}

TEST(CachingAllocator, ASegmentThatIsSplitDoesNotGoBack) {
  CachingAllocator a(100 * kMebi);
  a.free(a.allocate(60 * kMebi, Lane::compute, 0));
  a.allocate(20 * kMebi, Lane::compute, 0);
  a.allocate(80 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().failures, 1);
}

/// The allocator's rules without numbers of blocks, lists or addresses: segments are rows of pieces, searched in order.
class RowsOfPieces {
 public:
  RowsOfPieces(std::int64_t capacity, bool expandable) : capacity_(capacity), expandable_(expandable) {}

  int allocate(std::int64_t bytes, Lane stream, double now) {
    take_back(now);
    const std::int64_t size = (bytes + 511) / 512 * 512;
    const bool small = size <= kMebi;
    std::optional<Place> place = smallest(size, stream, small);
    if (!place) place = expandable_ ? grown(size, stream, small) : new_segment(size, stream, small);
    Piece& piece = at(*place);
    const std::int64_t rest = piece.bytes - size;
    if (small || expandable_ ? rest >= 512 : rest > kMebi) cut(*place, size);
    at(*place).used = true;
    at(*place).id = ++ids_;
    s.allocated += at(*place).bytes;
    s.peak_allocated = std::max(s.peak_allocated, s.allocated);
    return ids_;
  }
  void free(int id) {
    s.allocated -= at(place_of(id)).bytes;
    make_free(id);
  }
  void free_after(int id, double passed) {
    s.allocated -= at(place_of(id)).bytes;
    pending_.emplace_back(passed, id);
  }
  CachingAllocator::Statistics s;

 private:
  struct Piece {
    std::int64_t bytes = 0;
    bool used = false, mapped = true;
    int id = 0;
  };
  struct Segment {
    Lane stream;
    bool small;
    std::vector<Piece> pieces;
  };
  using Place = std::pair<std::size_t, std::size_t>;  // segment, piece

  Piece& at(Place p) { return segments_[p.first].pieces[p.second]; }
  Place place_of(int id) {
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      for (std::size_t k = 0; k < segments_[i].pieces.size(); ++k) {
        if (segments_[i].pieces[k].id == id) return {i, k};
      }
    }
    throw std::out_of_range("no such piece");
  }
  void cut(Place p, std::int64_t size) {
    Piece rest = at(p);
    rest.bytes -= size;
    at(p).bytes = size;
    auto& pieces = segments_[p.first].pieces;
    pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(p.second) + 1, rest);
  }
  /// Neighbours that are free, and alike, become one.
  void tidy(std::size_t segment) {
    auto& pieces = segments_[segment].pieces;
    for (std::size_t k = 0; k + 1 < pieces.size();) {
      const bool alike = !pieces[k].used && !pieces[k + 1].used && pieces[k].mapped == pieces[k + 1].mapped;
      if (alike) {
        pieces[k].bytes += pieces[k + 1].bytes;
        pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(k) + 1);
      } else {
        ++k;
      }
    }
  }
  void make_free(int id) {
    const Place p = place_of(id);
    at(p).used = false;
    at(p).id = 0;
    tidy(p.first);
  }
  void take_back(double now) {
    for (std::size_t i = 0; i < pending_.size();) {
      if (pending_[i].first > now) {
        ++i;
        continue;
      }
      make_free(pending_[i].second);
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::optional<Place> smallest(std::int64_t size, Lane stream, bool small) {
    std::vector<Place> fit;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      if (segments_[i].stream != stream || segments_[i].small != small) continue;
      for (std::size_t k = 0; k < segments_[i].pieces.size(); ++k) {
        const Piece& piece = segments_[i].pieces[k];
        if (!piece.used && piece.mapped && piece.bytes >= size) fit.emplace_back(i, k);
      }
    }
    if (fit.empty()) return std::nullopt;
    std::ranges::stable_sort(fit, {}, [&](Place p) { return at(p).bytes; });
    const auto could_be = [&](Place p) {
      const auto& pieces = segments_[p.first].pieces;
      const bool grows = p.second + 1 < pieces.size() && !pieces[p.second + 1].mapped;
      return pieces[p.second].bytes + (grows ? pieces[p.second + 1].bytes : 0);
    };
    std::size_t chosen = 0;
    while (expandable_ && chosen + 1 < fit.size() && could_be(fit[chosen + 1]) < could_be(fit[chosen])) ++chosen;
    return fit[chosen];
  }
  bool is_room(std::int64_t bytes) const { return capacity_ == 0 || s.reserved + bytes <= capacity_; }
  void reserve(std::int64_t bytes) {
    s.reserved += bytes;
    s.peak_reserved = std::max(s.peak_reserved, s.reserved);
  }
  Place new_segment(std::int64_t size, Lane stream, bool small) {
    const std::int64_t two = 2 * kMebi;
    const std::int64_t bytes = small ? two : size < 10 * kMebi ? 20 * kMebi : (size + two - 1) / two * two;
    if (!is_room(bytes)) {
      take_back(1e300);
      std::erase_if(segments_, [&](const Segment& segment) {
        const bool goes = segment.pieces.size() == 1 && !segment.pieces.front().used;
        if (goes) s.reserved -= segment.pieces.front().bytes;
        return goes;
      });
      ++s.retries;
      if (!is_room(bytes)) ++s.failures;
    }
    reserve(bytes);
    segments_.push_back({stream, small, {{.bytes = bytes}}});
    return {segments_.size() - 1, 0};
  }

  /// Free pieces one after another that begin before or at addresses without memory, and are long enough.
  Place where_to_grow(std::int64_t size, Lane stream, bool small) {
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const Segment& segment = segments_[i];
      if (segment.stream != stream || segment.small != small) continue;
      for (std::size_t k = 0; k < segment.pieces.size(); ++k) {
        if (segment.pieces[k].mapped) continue;
        const std::size_t begin = k > 0 && !segment.pieces[k - 1].used ? k - 1 : k;
        std::int64_t room = 0;
        for (std::size_t n = begin; n < segment.pieces.size() && !segment.pieces[n].used; ++n)
          room += segment.pieces[n].bytes;
        if (room >= size) return {i, begin};
      }
    }
    segments_.push_back({stream, small, {{.bytes = (20 * kMebi) << 21, .mapped = false}}});
    return {segments_.size() - 1, 0};
  }
  std::optional<Place> try_to_grow(std::int64_t size, Lane stream, bool small, bool beyond) {
    Place p = where_to_grow(size, stream, small);
    const std::int64_t page = small ? 2 * kMebi : 20 * kMebi;
    const auto& pieces = segments_[p.first].pieces;
    while (!pieces[p.second].mapped || pieces[p.second].bytes < size) {
      const bool itself = !pieces[p.second].mapped;
      const std::size_t next = p.second + (itself ? 0 : 1);
      const std::int64_t lacks = size - (itself ? 0 : pieces[p.second].bytes);
      const std::int64_t bytes = (std::min(lacks, pieces[next].bytes) + page - 1) / page * page;
      if (!beyond && !is_room(bytes)) return std::nullopt;
      reserve(bytes);
      if (bytes < pieces[next].bytes) cut({p.first, next}, bytes);
      at({p.first, next}).mapped = true;
      tidy(p.first);
    }
    return p;
  }
  Place grown(std::int64_t size, Lane stream, bool small) {
    if (const auto p = try_to_grow(size, stream, small, false)) return *p;
    take_back(1e300);
    for (std::size_t i = 0; i < segments_.size(); ++i) unmap(i);
    std::erase_if(segments_, [](const Segment& g) { return g.pieces.size() == 1 && !g.pieces.front().mapped; });
    ++s.retries;
    if (const auto p = try_to_grow(size, stream, small, false)) return *p;
    ++s.failures;
    return *try_to_grow(size, stream, small, true);
  }
  void unmap(std::size_t segment) {
    const std::int64_t page = segments_[segment].small ? 2 * kMebi : 20 * kMebi;
    std::int64_t address = 0;
    for (std::size_t k = 0; k < segments_[segment].pieces.size(); ++k) {
      const Piece piece = segments_[segment].pieces[k];
      const std::int64_t first = (address + page - 1) / page * page, last = (address + piece.bytes) / page * page;
      if (!piece.used && piece.mapped && first < last) {
        if (address + piece.bytes > last) cut({segment, k}, last - address);
        if (first > address) cut({segment, k++}, first - address);
        at({segment, k}).mapped = false;
        s.reserved -= last - first;
        address = first;
      }
      address += segments_[segment].pieces[k].bytes;
    }
    tidy(segment);
  }

  std::int64_t capacity_;
  bool expandable_;
  std::vector<Segment> segments_;
  std::vector<std::pair<double, int>> pending_;
  int ids_ = 0;
};

TEST(CachingAllocator, OfAnySequenceIsWhatTheRulesSay) {
  for (const bool expandable : {false, true}) {
    for (const std::int64_t capacity : {std::int64_t{0}, 150 * kMebi}) {
      for (unsigned seed = 0; seed < 25; ++seed) {
        std::mt19937 random(seed);
        CachingAllocator a(capacity, expandable);
        RowsOfPieces b(capacity, expandable);
        std::vector<std::pair<int, int>> held;
        for (int i = 0; i < 300; ++i) {
          const double now = 10.0 * i;
          if (random() % 5 < 3 || held.empty()) {
            const auto most = static_cast<std::int64_t>(random() % 3 == 0 ? 30 * kMebi
                                                        : random() % 2    ? 12 * kMebi
                                                                          : kMebi);
            std::int64_t bytes = 1 + static_cast<std::int64_t>(random()) % most;
            const std::int64_t grid = most / (most == 30 * kMebi ? 6 : 4);  // half of the requests fit just so
            if (random() % 2 == 0) bytes = std::max(grid, bytes / grid * grid);
            const Lane stream = random() % 3 == 0 ? Lane::all_gather : Lane::compute;
            held.emplace_back(a.allocate(bytes, stream, now), b.allocate(bytes, stream, now));
          } else {
            const std::size_t which = random() % held.size();
            if (random() % 2 == 0) {
              a.free(held[which].first);
              b.free(held[which].second);
            } else {
              const double passed = now + 10.0 * static_cast<double>(random() % 6);
              a.free_after(held[which].first, passed);
              b.free_after(held[which].second, passed);
            }
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
          }
          ASSERT_EQ(a.statistics(), b.s) << "seed " << seed << ", request " << i << ", expandable " << expandable
                                         << ": " << a.statistics().reserved << " and " << b.s.reserved;
        }
      }
    }
  }
}

TEST(CachingAllocator, OfNoBytesThereIsNoBlock) {
  CachingAllocator a;
  const int held = a.allocate(30 * kMebi, Lane::compute, 0);
  a.free_after(held, 5);
  const int none = a.allocate(0, Lane::compute, 10);
  EXPECT_EQ(a.statistics().allocated, 0);
  a.free(none);
  a.free_after(none, 20);
  EXPECT_EQ(a.statistics().peak_reserved, 30 * kMebi);
  EXPECT_EQ(a.statistics().allocated, 0);
}

/// Three times: computation allocates 30 MiB, and a reduction on its own lane frees it.
struct ThreeReductions {
  ThreeReductions() {
    schedules.steps.resize(1);
    schedule::Schedule& step = schedules.steps.front();
    for (int i = 0; i < 3; ++i) {
      step.buffers.push_back({.bytes = 30 * kMebi});
      schedule::Op& backward = step.ops.emplace_back();
      backward.kind = schedule::OpKind::backward;
      backward.allocates = {i};
      backward.record = i;
      schedule::Op& reduce = step.ops.emplace_back();
      reduce.kind = schedule::OpKind::reduce_scatter;
      reduce.lane = Lane::reduce_scatter;
      reduce.waits = {{i, schedule::WaitReason::data}};
      reduce.frees = {i};
    }
    schedules.event_count = 3;
  }
  /// Each reduction ends so long after its backward; the host issues each pair of ops 100 ns after the one before.
  CachingAllocator::Statistics with_reductions_of(std::int64_t ns) const {
    std::vector<trace::Record> records;
    for (int i = 0; i < 3; ++i) {
      const std::int64_t issued = 1000 + 100 * i;
      records.push_back({.op = 2 * i, .issued_ns = issued, .begin_ns = issued, .end_ns = issued + 10});
      records.push_back({.op = 2 * i + 1, .issued_ns = issued, .begin_ns = issued + 10, .end_ns = issued + 10 + ns});
    }
    return allocator_walk(schedules, records, 0);
  }
  schedule::Schedules schedules;
};

TEST(AllocatorWalk, WhatAReductionReadsIsReusedOnceItIsOver) {
  const ThreeReductions three;
  EXPECT_EQ(three.with_reductions_of(90).peak_reserved, 30 * kMebi);   // over when the host asks again
  EXPECT_EQ(three.with_reductions_of(91).peak_reserved, 60 * kMebi);   // 1 ns too late
  EXPECT_EQ(three.with_reductions_of(500).peak_reserved, 90 * kMebi);  // all are held
  EXPECT_EQ(three.with_reductions_of(500).peak_allocated, 30 * kMebi);
}

TEST(AllocatorWalk, AnOpWithoutWorkIsOverWhenItsLaneComesPastIt) {
  ThreeReductions three;
  schedule::Schedule& step = three.schedules.steps.front();
  for (int i = 0; i < 3; ++i) {  // computation frees what the other lane allocated, and waits for it
    std::swap(step.ops[static_cast<std::size_t>(2 * i)].lane, step.ops[static_cast<std::size_t>(2 * i + 1)].lane);
    step.ops[static_cast<std::size_t>(2 * i + 1)].kind = schedule::OpKind::reshard;
  }
  std::vector<trace::Record> records;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t issued = 1000 + 100 * i;
    records.push_back({.op = 2 * i, .issued_ns = issued, .begin_ns = issued, .end_ns = issued + 150});
    records.push_back({.op = 2 * i + 1, .issued_ns = issued});
  }
  EXPECT_EQ(allocator_walk(three.schedules, records, 0).peak_reserved, 60 * kMebi);
}

/// Memory of frameworks beside a schedule's buffers: libraries and buckets always, and what passes between two phases.
TEST(FrameworkBlocks, AreThoseOfItsSettings) {
  using config::Simulate;
  const auto blocks = [](const std::function<void(config::RunConfig&)>& change) {
    config::RunConfig c = testing::decoder_config(2, 4);
    c.device.backend = config::BackendKind::virtual_;
    c.simulate.framework = Simulate::Framework::pytorch;
    c.simulate.loss = Simulate::Loss::eager;
    c.fsdp.param_dtype = c.fsdp.reduce_dtype = DType::bf16;
    c.train.batch_per_rank = 3;
    c.train.seq_len = 10;
    change(c);
    return framework_blocks(testing::make_case(c), 100);
  };
  const FrameworkBlocks plain = blocks([](config::RunConfig&) {});
  EXPECT_EQ(plain.libraries, 100);
  EXPECT_EQ(plain.buckets, 0);
  EXPECT_TRUE(plain.autograd);
  EXPECT_EQ(plain.piece, 3 * 10 * 64 * 4);
  EXPECT_EQ(plain.head, 3) << "behind the embedding and two blocks";
  EXPECT_EQ(plain.embedding, 64 * 32 * 2);
  EXPECT_EQ(plain.update, 0);
  EXPECT_EQ(blocks([](config::RunConfig& c) { c.simulate.framework = Simulate::Framework::own; }), FrameworkBlocks{});
  for (const auto loss : {Simulate::Loss::fused, Simulate::Loss::chunked}) {
    EXPECT_EQ(blocks([&](config::RunConfig& c) { c.simulate.loss = loss; }).piece, 0);
  }
  EXPECT_EQ(blocks([](config::RunConfig& c) { c.mesh = {4, 2, 1, 2}; }).piece, 3 * 10 * 64 * 4 / 2);
  EXPECT_EQ(blocks([](config::RunConfig& c) { c.mesh = {4, 2, 1, 2}; }).embedding, plain.embedding / 2);
  // Where embedding and head are no unit of their own, or one tensor, or not trained, gradients are another matter.
  EXPECT_EQ(blocks([](config::RunConfig& c) { c.model.tied_head = true; }).embedding, 0);
  EXPECT_EQ(blocks([](config::RunConfig& c) { c.fsdp.wrap.mode = config::Wrap::Mode::model; }).embedding, 0);
  EXPECT_EQ(blocks([](config::RunConfig& c) { c.fsdp.shard_threshold = 1; }).embedding, 0);
  EXPECT_EQ(blocks([](config::RunConfig& c) { c.model.lora_rank = 4; }).embedding, 0);
  // Temporaries are as large as the second moments, of which a rank of four has a quarter.
  const FrameworkBlocks apart = blocks([](config::RunConfig& c) { c.simulate.fused_optimizer = false; });
  std::int64_t moments = 0;
  for (const schedule::Buffer& buffer : testing::make_case(testing::decoder_config(2, 4)).schedules.steady().buffers) {
    if (buffer.role == schedule::BufferRole::second_moment) moments += buffer.bytes;
  }
  EXPECT_EQ(apart.update, moments);
  EXPECT_GT(moments, 0);
  config::RunConfig whole = testing::decoder_config(2, 4);  // norms, of 5 x 32 elements, are no rank's own
  whole.fsdp.shard_threshold = 33;
  moments = 0;
  for (const schedule::Buffer& buffer : testing::make_case(whole).schedules.steady().buffers) {
    if (buffer.role == schedule::BufferRole::second_moment) moments += buffer.bytes;
  }
  EXPECT_EQ(blocks([](config::RunConfig& c) {
              c.simulate.fused_optimizer = false;
              c.fsdp.shard_threshold = 33;
            }).update,
            moments + 5 * 32 * 4);
  EXPECT_EQ(blocks([](config::RunConfig& c) {
              c.simulate.fused_optimizer = false;
              c.fsdp.cpu_offload = config::CpuOffload::all;
            }).update,
            0)
      << "the host has them";
  EXPECT_EQ(blocks([](config::RunConfig& c) { c.model.layers = 1; }).embedding, plain.embedding);
}

TEST(FrameworkBlocks, HoldBucketsOfZeroAndOfDdp) {
  using config::ReduceBy;
  using config::ReduceLane;
  const auto buckets = [](const std::function<void(config::RunConfig&)>& change) {
    config::RunConfig c = testing::decoder_config(2, 4);
    c.device.backend = config::BackendKind::virtual_;
    c.simulate.framework = config::Simulate::Framework::pytorch;
    c.fsdp.param_dtype = c.fsdp.reduce_dtype = DType::bf16;
    change(c);
    return framework_blocks(testing::make_case(c), 0).buckets;
  };
  const auto zero = [&](ReduceBy by, ReduceLane lane) {
    return buckets([&](config::RunConfig& c) {
      c.fsdp.strategy = config::Strategy::shard_grad_op;
      c.fsdp.reduce_bucket = 5000;
      c.fsdp.reduce_by = by;
      c.fsdp.reduce_lane = lane;
    });
  };
  EXPECT_EQ(zero(ReduceBy::all_reduce, ReduceLane::reduce_scatter), 2 * 5000 * 2) << "one fills while one is reduced";
  EXPECT_EQ(zero(ReduceBy::all_reduce, ReduceLane::compute), 5000 * 2);
  EXPECT_EQ(zero(ReduceBy::reduce_scatter, ReduceLane::reduce_scatter), 5000 * 2);
  const auto ddp = [&](config::Layout layout, int shard, int replicate) {
    return buckets([&](config::RunConfig& c) {
      c.fsdp.strategy = shard > 1 ? config::Strategy::full_shard : config::Strategy::no_shard;
      c.fsdp.layout = layout;
      c.mesh = {shard * replicate, shard, replicate};
    });
  };
  config::RunConfig all = testing::decoder_config(2, 4);
  EXPECT_EQ(ddp(config::Layout::per_param, 1, 4), testing::make_case(all).plan.shapes.trained_count() * 2);
  EXPECT_EQ(ddp(config::Layout::flat, 1, 4), 0);
  EXPECT_EQ(ddp(config::Layout::per_param, 1, 1), 0);
  EXPECT_EQ(ddp(config::Layout::per_param, 4, 1), 0);
}

/// The host is at most 24 passes ahead of the device.
TEST(AllocatorWalk, TheHostWaitsForThePassBeforeTheLast24) {
  schedule::Schedules schedules;
  schedule::Schedule& step = schedules.steps.emplace_back();
  schedules.event_count = 1;
  std::vector<trace::Record> records;
  // A block is freed by another lane that comes past it at 5000. Each pass begins at 1000 i; the host issued all at 1.
  const auto add = [&](schedule::OpKind kind, Lane lane, std::int64_t begin, std::int64_t end) -> schedule::Op& {
    records.push_back(
        {.op = static_cast<std::int32_t>(records.size()), .issued_ns = 1, .begin_ns = begin, .end_ns = end});
    schedule::Op& op = step.ops.emplace_back();
    op.kind = kind;
    op.lane = lane;
    return op;
  };
  const auto reserved = [&](schedule::OpKind kind, int passes) {
    step = {};
    records.clear();
    step.buffers = {{.bytes = 30 * kMebi}, {.bytes = 30 * kMebi}};
    add(schedule::OpKind::optimizer, Lane::compute, 1, 2).allocates = {0};
    add(schedule::OpKind::reduce_scatter, Lane::reduce_scatter, 2, 5000).frees = {0};
    for (int i = 1; i <= passes; ++i) add(kind, Lane::compute, 1000 * i, 1000 * i + 900);
    add(schedule::OpKind::optimizer, Lane::compute, 90'000, 90'001).allocates = {1};
    return allocator_walk(schedules, records, 0).peak_reserved;
  };
  using schedule::OpKind;
  for (const OpKind kind : {OpKind::forward, OpKind::recompute, OpKind::backward}) {
    EXPECT_EQ(reserved(kind, 24 + 4), 60 * kMebi) << "the host is at 4000";
    EXPECT_EQ(reserved(kind, 24 + 5), 30 * kMebi) << "at 5000 the block is free again";
  }
  EXPECT_EQ(reserved(OpKind::copy_out, 24 + 5), 60 * kMebi) << "which is no pass";
}

/// Ops one after another on the compute lane, and buffers of so many MiB.
struct WalkByHand {
  int buffer(std::int64_t mebi, schedule::BufferRole role, MemorySpace space = MemorySpace::device) {
    schedule::Buffer& added = step().buffers.emplace_back();
    added.role = role;
    added.category = schedule::category_of(role);
    added.bytes = mebi * kMebi;
    added.space = space;
    return static_cast<int>(step().buffers.size()) - 1;
  }
  void op(schedule::OpKind kind, int module, std::vector<int> allocates, std::vector<int> frees,
          schedule::Phase phase = schedule::Phase::backward) {
    schedule::Op& added = step().ops.emplace_back();
    added.kind = kind;
    added.phase = phase;
    added.module = module;
    added.allocates = std::move(allocates);
    added.frees = std::move(frees);
  }
  CachingAllocator::Statistics walk(const FrameworkBlocks& framework = {}) const {
    std::vector<trace::Record> records;
    for (std::size_t i = 0; i < schedules.steps.front().ops.size(); ++i) {
      const auto at = 10 * static_cast<std::int64_t>(i);
      records.push_back({.op = static_cast<int>(i), .issued_ns = at, .begin_ns = at, .end_ns = at + 9});
    }
    return allocator_walk(schedules, records, 0, 0, false, framework);
  }
  schedule::Schedule& step() { return schedules.steps.front(); }
  schedule::Schedules schedules{{{}}, 0};
};

/// MiB of each category.
CategoryBytes mebi(std::initializer_list<std::pair<MemoryCategory, std::int64_t>> parts) {
  CategoryBytes bytes{};
  for (const auto& [category, size] : parts) bytes[index_of(category)] = size * kMebi;
  return bytes;
}

TEST(AllocatorWalk, BuffersOfTheDeviceAreHeldFromTheBeginningOrWhileOpsNeedThem) {
  using schedule::BufferRole;
  using schedule::OpKind;
  WalkByHand w;
  w.buffer(30, BufferRole::master_shard);
  w.buffer(70, BufferRole::master_shard, MemorySpace::host);
  for (schedule::Buffer& buffer : w.step().buffers) buffer.persistent = true;
  const int saved = w.buffer(20, BufferRole::saved), there = w.buffer(50, BufferRole::host_shard, MemorySpace::host);
  const int less = w.buffer(14, BufferRole::gathered);
  w.op(OpKind::forward, 0, {there}, {});
  w.op(OpKind::host_wait, 0, {}, {});
  w.op(OpKind::forward, 0, {saved}, {there});
  w.op(OpKind::backward, 0, {}, {saved});
  w.op(OpKind::all_gather, 0, {less}, {});
  const CachingAllocator::Statistics s = w.walk();
  EXPECT_EQ(s.peak_allocated, 50 * kMebi);
  EXPECT_EQ(s.peak_reserved, 50 * kMebi);
  EXPECT_EQ(s.allocated, 44 * kMebi);
  EXPECT_EQ(s.at_peak, mebi({{MemoryCategory::parameter_shards, 30}, {MemoryCategory::activations, 20}}));
}

/// Tensors that pass between two phases do so once, before the op that begins the second has its own.
TEST(AllocatorWalk, TensorsPassBetweenPhasesAlone) {
  using schedule::OpKind;
  using schedule::Phase;
  WalkByHand w;
  for (const auto& [kind, phase] : {std::pair{OpKind::forward, Phase::forward},
                                    {OpKind::backward, Phase::backward},
                                    {OpKind::optimizer, Phase::optimizer}}) {
    const int buffer = w.buffer(100, schedule::BufferRole::saved);
    w.op(kind, 0, {buffer}, {}, phase);
    w.op(kind, 0, {}, {buffer}, phase);
  }
  EXPECT_EQ(w.walk({.piece = 12 * kMebi, .update = 14 * kMebi}).peak_allocated, 100 * kMebi);
  EXPECT_EQ(w.walk({.piece = 52 * kMebi}).peak_allocated, 104 * kMebi);
  EXPECT_EQ(w.walk({.update = 102 * kMebi}).peak_allocated, 102 * kMebi);
  EXPECT_EQ(w.walk({.update = 102 * kMebi}).peak_reserved, 202 * kMebi);
  EXPECT_EQ(w.walk({.piece = 12 * kMebi, .update = 102 * kMebi}).peak_reserved, 120 * kMebi) << "8 of 12, and 6";
  const CachingAllocator::Statistics all =
      w.walk({.libraries = 30 * kMebi, .buckets = 16 * kMebi, .piece = 12 * kMebi, .update = 120 * kMebi});
  EXPECT_EQ(all.peak_allocated, (30 + 16 + 120) * kMebi);
  EXPECT_EQ(all.allocated, 46 * kMebi);
  EXPECT_EQ(all.at_peak, mebi({{MemoryCategory::activations, 30},
                               {MemoryCategory::communication_buffers, 16},
                               {MemoryCategory::optimizer, 120}}));
}

TEST(AllocatorWalk, WorkspacesOfAnEagerLossAreTensorsAndItsBackwardHasNone) {
  using schedule::BufferRole;
  using schedule::OpKind;
  for (const std::int64_t piece : {0, 12}) {
    WalkByHand w;
    const int first = w.buffer(40, BufferRole::workspace), second = w.buffer(60, BufferRole::workspace);
    const int saved = w.buffer(36, BufferRole::saved);
    w.op(OpKind::forward, 1, {first, saved}, {first});
    const CachingAllocator::Statistics forward = w.walk({.piece = piece * kMebi, .head = 1});
    EXPECT_EQ(forward.peak_allocated, 76 * kMebi);
    EXPECT_EQ(forward.peak_reserved, (piece == 0 ? 76 : 3 * 12 + 20 + 36) * kMebi) << "4 of a segment of 20";
    EXPECT_EQ(forward.allocated, 36 * kMebi);
    w.op(OpKind::backward, 1, {second}, {second});
    const CachingAllocator::Statistics both = w.walk({.piece = piece * kMebi, .head = 1});
    EXPECT_EQ(both.peak_allocated, (piece == 0 ? 36 + 60 : 76) * kMebi);
    EXPECT_EQ(both.at_peak, mebi({{MemoryCategory::activations, piece == 0 ? 96 : 76}}));
    w.op(OpKind::forward, 1, {second}, {second});  // no backward, and one of another module
    EXPECT_EQ(w.walk({.piece = piece * kMebi, .head = 1}).at_peak, mebi({{MemoryCategory::activations, 96}}));
    EXPECT_EQ(w.walk({.piece = piece * kMebi, .head = 0}).peak_allocated, 96 * kMebi);
    EXPECT_EQ(w.walk({.piece = piece * kMebi, .head = 1}).allocated, 36 * kMebi);
  }
}

TEST(AllocatorWalk, AutogradHasGradientsWhenWhatTheyAreComputedOfIsFreed) {
  using schedule::BufferRole;
  for (const auto& [role, later] : {std::pair{BufferRole::gradients, true}, {BufferRole::workspace, false}}) {
    WalkByHand w;
    const int saved = w.buffer(30, BufferRole::saved), added = w.buffer(40, role);
    w.op(schedule::OpKind::forward, 0, {saved}, {}, schedule::Phase::forward);
    w.op(schedule::OpKind::backward, 0, {added}, {saved});
    EXPECT_EQ(w.walk({.autograd = true}).peak_allocated, (later ? 40 : 70) * kMebi);
    EXPECT_EQ(w.walk({.autograd = false}).peak_allocated, 70 * kMebi);
  }
}

/// A unit of embedding and head: the head's backward has 24 of 40 MiB of gradients, the embedding's adds 16.
TEST(AllocatorWalk, TheEmbeddingsGradientsComeWithItsBackward) {
  using schedule::BufferRole;
  using schedule::OpKind;
  const auto walk = [](BufferRole role, const FrameworkBlocks& framework) {
    WalkByHand w;
    const int gradients = w.buffer(40, role), between = w.buffer(50, BufferRole::saved);
    w.op(OpKind::backward, 1, {gradients}, {});
    w.op(OpKind::backward, 2, {}, {});
    w.op(OpKind::recompute, 0, {between}, {between});
    w.op(OpKind::backward, 0, {}, {});
    w.op(OpKind::backward, 0, {}, {});
    const CachingAllocator::Statistics before = w.walk(framework);
    EXPECT_EQ(before.allocated, 40 * kMebi);
    w.op(OpKind::reduce_scatter, 0, {}, {gradients});
    EXPECT_EQ(w.walk(framework).allocated, 0);
    return before;
  };
  const FrameworkBlocks blocks{.autograd = true, .head = 1, .embedding = 16 * kMebi};
  const CachingAllocator::Statistics s = walk(BufferRole::gradients, blocks);
  EXPECT_EQ(s.peak_allocated, (24 + 50) * kMebi);
  EXPECT_EQ(s.at_peak, mebi({{MemoryCategory::gradients, 24}, {MemoryCategory::activations, 50}}));
  EXPECT_EQ(walk(BufferRole::d_stream, blocks).peak_allocated, 90 * kMebi);
  EXPECT_EQ(walk(BufferRole::gradients, {.autograd = true, .head = 1}).peak_allocated, 90 * kMebi);
  EXPECT_EQ(walk(BufferRole::gradients, {.autograd = true, .head = 3, .embedding = 16 * kMebi}).peak_allocated,
            90 * kMebi);
}

/// Two streams want 30 MiB each, one after the other. Of 40 MiB each gets what the other has given back.
TEST(AllocatorForecast, IsOfTheFirstStepsAndTwoThatRepeat) {
  schedule::Training training;
  training.schedules = {{{}, {}}, 0};
  for (const std::size_t step : {0, 1}) {
    schedule::Schedule& schedule = training.schedules.steps[step];
    schedule.buffers = {{.bytes = 30 * kMebi}, {.bytes = 30 * kMebi}};
    schedule.ops.resize(1 + step);
    schedule.ops.front().allocates = schedule.ops.front().frees = {0};
    schedule.ops.back().allocates = schedule.ops.back().frees = {static_cast<int>(step)};
    if (step == 1) schedule.ops.back().lane = Lane::all_gather;
  }
  OpTimes times;
  times.steps = {{{10}}, {{10}, {10}}};
  const CachingAllocator::Statistics s = allocator_forecast(training, times, 40 * kMebi);
  EXPECT_EQ(s.retries, 3) << "none in the first step, one in the second, two in the third";
  EXPECT_EQ(s.peak_reserved, 30 * kMebi);
  EXPECT_EQ(allocator_forecast(training, times).peak_reserved, 60 * kMebi);
  training.config.simulate.expandable_segments = true;
  EXPECT_EQ(allocator_forecast(training, times).peak_reserved, 80 * kMebi) << "two pages of 20 each";
}

}  // namespace
}  // namespace fsdpbench::clock
