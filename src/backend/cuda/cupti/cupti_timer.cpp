#include "backend/cuda/cupti/cupti_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/clock.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr auto kKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
// NVIDIA's release notes of 13.0 Update 1 list what it mended.
constexpr std::uint32_t kFirstGood = 130001;
// Records of one step may all be late; who has none for two has none to wait for.
constexpr int kGiveUpAfter = 2;

}  // namespace

CuptiTimer::CuptiTimer(Collector& collector, std::function<void()> at_end, Patience patience)
    : collector_(collector), at_end_(std::move(at_end)), patience_(patience), timer_(collector.new_timer_number()) {
  int device = 0;
  if (collector_.api().current_device(&device) == cudaSuccess) device_ = static_cast<std::uint32_t>(device);
  Collector::expect_ops_of_this_thread();
}

CuptiTimer::~CuptiTimer() {
  if (at_end_) at_end_();
}

StreamKey CuptiTimer::key_of(cudaStream_t stream) {
  for (const auto& [known, key] : streams_) {
    if (known == stream) return key;
  }
  StreamKey key{device_, 0};
  collector_.api().get_stream_id(nullptr, stream, 0, &key.stream);
  streams_.emplace_back(stream, key);
  return key;
}

void CuptiTimer::mark(std::uint32_t number) {
  collector_.api().push_external_id(kKind, OpId{timer_, number}.packed());
  collector_.api().mark();
}

void CuptiTimer::begin(Lane lane, cudaStream_t stream, std::int32_t step, std::int32_t op, Stamp* stamp) {
  if (stamp == nullptr) return;
  const auto number = first_ + static_cast<std::uint32_t>(ops_.size());
  ops_.push_back({step, op, lane, key_of(stream), now_ns(), 0, stamp});
  open_ = true;
  mark(number);
}

void CuptiTimer::end(Lane, cudaStream_t) {
  if (!open_) return;
  open_ = false;
  collector_.api().pop_external_id(kKind, nullptr);
  ops_.back().end_ns = now_ns();
}

void CuptiTimer::wait_for_records() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::chrono::microseconds pause{100};
  while (true) {
    collector_.flush();
    const RecordTable::State state = collector_.table().state(timer_, first_);
    const auto waited = Clock::now() - begin;
    const bool all_marks = !has_marks_ || state.marks > ops_.size();  // one more than ops
    // With all marks the calls in between have come too: who is nameless then stays so.
    const bool in_doubt = state.transfers > 0 || (!has_marks_ && state.nameless > 0);
    if (all_marks && state.open == 0 && (!in_doubt || waited > patience_.grace)) return;
    if (has_marks_ && state.marks == 0 && state.works > 0 && state.open == 0 && waited > patience_.grace) {
      has_marks_ = false;  // this CUPTI does not record that call
      return;
    }
    if (waited > patience_.whole || in_a_row_ >= kGiveUpAfter) return;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds{5000});
  }
}

void CuptiTimer::settle() {
  if (ops_.empty()) return;
  const auto after_last = first_ + static_cast<std::uint32_t>(ops_.size());
  mark(after_last);
  collector_.api().pop_external_id(kKind, nullptr);
  wait_for_records();

  std::vector<StreamKey> streams;
  for (const auto& [stream, key] : streams_) streams.push_back(key);
  const std::vector<Launch> launches = collector_.table().take(timer_, streams);
  const bool any = std::ranges::any_of(launches, [](const Launch& launch) { return launch.owner.has_value(); });
  without_records_ += any ? 0 : 1;
  in_a_row_ = any ? 0 : in_a_row_ + 1;
  std::set<std::uint32_t> marks;
  for (const Launch& launch : launches) {
    if (launch.owner && launch.call && launch.call->what->does == KnownCall::Does::mark) marks.insert(launch.owner->op);
  }
  const std::size_t before = activities_.size();
  if (has_marks_ && marks.empty()) marks.insert(after_last + 1);  // nothing came: no op is covered
  assemble(ops_, first_, launches, marks, names_, activities_, counts_);
  std::sort(activities_.begin() + static_cast<std::ptrdiff_t>(before), activities_.end(),
            [](const Activity& a, const Activity& b) {
              return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.correlation < b.correlation;
            });
  ops_.clear();
  first_ = after_last + 1;
}

Activities CuptiTimer::take_activities() {
  Activities result;
  result.all = std::exchange(activities_, {});
  result.names = names_.take();
  return result;
}

Facts CuptiTimer::facts() const {
  std::uint32_t version = 0;
  collector_.api().get_version(&version);
  const CuptiVersion release{version};
  Facts facts{{"timer", release.major() < 13 ? fmt::format("CUPTI activity records (version {}, of CUDA 12)", version)
                                             : fmt::format("CUPTI {}.{} activity records (version {})", release.major(),
                                                           release.minor(), version)}};
  const auto add = [&](const char* name, std::int64_t value, const char* meaning) {
    if (value > 0) facts.emplace_back(name, fmt::format("{}: {}", value, meaning));
  };
  if (release.major() == 13 && version < kFirstGood) {
    facts.emplace_back("known problems",
                       "CUPTI 13.0 before Update 1 may hang when it is switched off and crash when flushed");
  }
  for (const std::string& note : collector_.notes()) facts.emplace_back("record buffers", note);
  if (!has_marks_) facts.emplace_back("op marks", "not recorded by this CUPTI: lost records of an op may go unseen");
  const Collector::Losses losses = collector_.losses();
  const RecordTable::Counts joined = collector_.table().counts();
  add("ops without times", counts_.without_times,
      "a record of them is missing; figures of their steps must not be used");
  add("steps without records", without_records_, "CUPTI records nothing any more; no op of theirs has times");
  add("records dropped", losses.dropped_by_cupti, "CUPTI had no room for them");
  add("record buffers dropped", losses.shortages, "all were in use; what they held is lost");
  add("records without time", counts_.zero_times, "CUPTI's memory on the device did not suffice");
  add("records incomplete", counts_.incomplete, "their work had not ended");
  add("launches without record", counts_.missing, "their kernels were never reported");
  add("records without launch", counts_.without_launch + joined.without_launch,
      "the call that made them was not reported");
  add("kernels before their launch", counts_.before_launch, "the clocks of host and device differ by that much");
  add("records outside of ops", counts_.foreign,
      "put on a lane between its ops; delays that were asked for are among them");
  add("records twice", joined.duplicates, "left out");
  add("records of unknown kinds", joined.unknown, "left out");
  add("record buffers damaged", joined.damaged, "they could not be read to their end");
  add("ops without device work", counts_.without_work, "they launched nothing; their time is when they were issued");
  return facts;
}

}  // namespace fsdpbench::backend::cuda
