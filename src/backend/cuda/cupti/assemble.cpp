#include "backend/cuda/cupti/assemble.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

namespace fsdpbench::backend::cuda {
namespace {

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      name.starts_with("_Z") ? abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status) : nullptr, &std::free);
  return text != nullptr ? text.get() : name;
}

/// Times known of one op.
struct Span {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  bool has_work = false;
  bool lost = false;
};

constexpr std::size_t kNone = -1;

std::size_t op_of(const std::vector<IssuedOp>& ops, std::uint32_t first, const Launch& launch) {
  if (launch.owner) {
    const std::size_t index = launch.owner->op - first;  // wraps for those of before, which are then too large
    return index < ops.size() ? index : kNone;
  }
  if (!launch.call) return kNone;
  const auto after = std::ranges::upper_bound(ops, launch.call->begin_ns, {}, &IssuedOp::begin_ns);
  if (after == ops.begin()) return kNone;
  const IssuedOp& op = *std::prev(after);
  const StreamKey stream{launch.works.front().device, launch.works.front().stream};
  const bool fits = launch.call->begin_ns <= op.end_ns && stream == op.stream;
  return fits ? static_cast<std::size_t>(std::prev(after) - ops.begin()) : kNone;
}

/// Warm-up, downloads and late records are nobody's either, but not during the ops.
bool during(const std::vector<IssuedOp>& ops, const Launch& launch) {
  return launch.call && !ops.empty() && launch.call->begin_ns >= ops.front().begin_ns &&
         launch.call->begin_ns <= ops.back().end_ns;
}

bool leaves_work(const Call& call) { return call.what->does == KnownCall::Does::launch && !call.failed; }

}  // namespace

std::int32_t NameList::index_of(const std::string& name) {
  const auto [at, fresh] = indices_.try_emplace(name, static_cast<std::int32_t>(names_.size()));
  if (fresh) names_.push_back(readable(name));
  return at->second;
}

std::vector<std::string> NameList::take() {
  indices_.clear();
  return std::exchange(names_, {});
}

void assemble(const std::vector<IssuedOp>& ops, std::uint32_t first, const std::vector<Launch>& launches,
              const std::set<std::uint32_t>& marks, NameList& names, std::vector<Activity>& activities,
              TimerCounts& counts) {
  std::vector<Span> spans(ops.size());
  for (const Launch& launch : launches) {
    if (launch.call && launch.call->what->does == KnownCall::Does::mark) continue;
    const std::size_t index = op_of(ops, first, launch);
    if (!launch.call) counts.without_launch += static_cast<std::int64_t>(launch.works.size());
    if (index == kNone) {
      if (during(ops, launch)) counts.foreign += static_cast<std::int64_t>(launch.works.size());
      continue;
    }
    Span& span = spans[index];
    // An owner alone is of a call that is not recorded, if the marks say that no other is missing.
    if (launch.works.empty() && (launch.call ? leaves_work(*launch.call) : marks.empty())) {
      ++counts.missing;
      span.lost = true;
    }
    for (const Work& work : launch.works) {
      if (work.begin_ns == 0 || work.end_ns < work.begin_ns) {
        ++(work.begin_ns == 0 ? counts.zero_times : counts.incomplete);
        span.lost = true;
        continue;
      }
      span.begin_ns = span.has_work ? std::min(span.begin_ns, work.begin_ns) : work.begin_ns;
      span.end_ns = std::max(span.end_ns, work.end_ns);
      span.has_work = true;
      Activity activity;
      activity.kind = work.kind;
      activity.step = ops[index].step;
      activity.op = ops[index].op;
      activity.name = names.index_of(work.name);
      activity.stream = static_cast<std::int32_t>(work.stream);
      activity.correlation = work.correlation;
      activity.begin_ns = work.begin_ns;
      activity.end_ns = work.end_ns;
      activity.bytes = work.bytes;
      if (launch.call) {
        activity.launch_begin_ns = launch.call->begin_ns;
        activity.launch_end_ns = launch.call->end_ns;
        activity.launch_name = names.index_of(launch.call->what->name);
        activity.launch_thread = launch.call->thread;
        counts.before_launch += work.begin_ns < launch.call->begin_ns ? 1 : 0;
      }
      activities.push_back(activity);
    }
  }

  std::array<std::int64_t, kLaneCount> lane_end{};
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::uint32_t number = first + static_cast<std::uint32_t>(i);
    Span span = spans[i];
    const bool covered = marks.empty() || (marks.contains(number) && marks.contains(number + 1));
    ++counts.ops;
    if (span.lost || !covered) {
      ++counts.without_times;
      *ops[i].stamp = {};
      continue;
    }
    std::int64_t& end = lane_end[fsdpbench::index_of(ops[i].lane)];
    if (!span.has_work) {
      ++counts.without_work;
      span.begin_ns = span.end_ns = std::max(ops[i].begin_ns, end);
    }
    ops[i].stamp->begin_ns = span.begin_ns;
    ops[i].stamp->end_ns = span.end_ns;
    end = std::max(end, span.end_ns);
  }
}

}  // namespace fsdpbench::backend::cuda
