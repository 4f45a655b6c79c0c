#pragma once

// Runs as a GPU's profiler would tell them: records of ops, and the activities inside them.

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "base/intervals.h"
#include "trace/support.h"

namespace fsdpbench::trace {

/// A run of one rank with everything that the writers need.
struct GpuRun {
  RankTrace trace;
  std::vector<OpLabel> labels;  ///< by op, the same in every step
  RankFacts facts{0, 2, "cuda", {{"0", "none", {}}, {"1", "shard", {0, 1}}}};
  TimeBase time;

  LabelOf label() const {
    return [this](std::int32_t, std::int32_t op) -> const OpLabel& { return labels.at(static_cast<std::size_t>(op)); };
  }

  std::int32_t name(const std::string& text) {
    const auto at = std::ranges::find(trace.activity_names, text);
    if (at != trace.activity_names.end()) return static_cast<std::int32_t>(at - trace.activity_names.begin());
    trace.activity_names.push_back(text);
    return static_cast<std::int32_t>(trace.activity_names.size() - 1);
  }
  Activity activity(std::int32_t op, Activity::Kind kind, const std::string& device_name, std::int32_t stream,
                    std::uint32_t correlation, std::int64_t begin_ns, std::int64_t end_ns) {
    Activity a;
    a.kind = kind;
    a.step = 0;
    a.op = op;
    a.name = name(device_name);
    a.stream = stream;
    a.correlation = correlation;
    a.begin_ns = begin_ns;
    a.end_ns = end_ns;
    return a;
  }
};

inline OpLabel compute_label(const std::string& name, Lane lane = Lane::compute) {
  OpLabel label;
  label.name = name;
  label.unit = "0";
  label.lane = lane;
  return label;
}
inline OpLabel copy_label(const std::string& name, Lane lane) {
  OpLabel label = compute_label(name, lane);
  label.category = OpCategory::copy;
  label.bytes = 4096;
  return label;
}
inline OpLabel gather_label(const std::string& name) {
  OpLabel label = compute_label(name, Lane::all_gather);
  label.category = OpCategory::communication;
  label.bytes = 4000;
  label.parameters = true;
  label.collective = {CollectiveKind::all_gather, 1, 1000, DType::f32};
  return label;
}

/// One step of 400 us: two computations on stream 7 and a gather on stream 20. Known: computation 140 us,
/// communication 100, overlap 50, busy 190, idle 10 from the first begin to the last end.
inline GpuRun golden_gpu_run() {
  GpuRun run;
  run.time.origin_ns = 1'000'000;
  run.labels = {compute_label("forward 0"), gather_label("all_gather 1"), compute_label("forward 1")};
  const auto us = [](std::int64_t t) { return 1'000'000 + t * 1000; };
  run.trace.steps = {{us(0), us(400)}};
  run.trace.records = {
      {0, 0, us(10), us(100), us(200), 0}, {0, 1, us(30), us(150), us(250), 0}, {0, 2, us(50), us(260), us(300), 0}};
  run.trace.activities = {
      run.activity(0, Activity::Kind::kernel, "gemm_bf16", 7, 101, us(100), us(200)),
      run.activity(1, Activity::Kind::kernel, "ncclDevKernel_AllGather_RING_LL", 20, 102, us(150), us(250)),
      run.activity(2, Activity::Kind::kernel, "gemm_bf16", 7, 103, us(260), us(300))};
  for (std::size_t i = 0; i < 3; ++i) {
    Activity& a = run.trace.activities[i];
    a.launch_name = run.name("cudaLaunchKernel");
    a.launch_begin_ns = us(10 + 20 * static_cast<std::int64_t>(i));
    a.launch_end_ns = a.launch_begin_ns + 5000;
  }
  return run;
}

/// Some steps with all that a real run has: ops of several kernels without gaps, one overlapping the next; casts by
/// kernels and by copies; collectives of NCCL's and of other works; names that readers misunderstand; launches of
/// other threads and of none; ops without work.
inline GpuRun synthetic_gpu_run(int rank, unsigned seed) {
  GpuRun run;
  std::mt19937 random(seed);
  const auto some = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  run.facts.rank = run.trace.rank = rank;
  run.time.origin_ns = 5'000'000'000;
  constexpr int kOps = 60;
  for (int i = 0; i < kOps; ++i) {
    switch (i % 5) {
      case 0: run.labels.push_back(gather_label("all_gather " + std::to_string(i))); break;
      case 1: run.labels.push_back(copy_label("copy_out " + std::to_string(i), Lane::compute)); break;
      case 2: run.labels.push_back(copy_label("cast_shard " + std::to_string(i), Lane::copy)); break;
      default: run.labels.push_back(compute_label("forward " + std::to_string(i)));
    }
  }
  const std::array<std::int32_t, kLaneCount> streams{7, 20, 21, 22, 23};
  std::uint32_t correlation = 1000;
  std::int64_t host = run.time.origin_ns;
  for (std::int32_t step = 0; step < 3; ++step) {
    const std::int64_t begin = host;
    std::array<std::int64_t, kLaneCount> free{};
    std::int64_t last = 0;
    std::vector<Activity> works;
    for (std::int32_t op = 0; op < kOps; ++op) {
      const OpLabel& label = run.labels[static_cast<std::size_t>(op)];
      const std::int64_t issued = host;
      host += some(5'000, 20'000);
      std::int64_t& lane = free[index_of(label.lane)];
      std::int64_t at = std::max(host, lane) + some(0, 30'000);
      Record record{step, op, issued, at, at, 0};
      const std::int64_t count = op == 33 ? 0 : some(1, 4);
      std::int64_t launched = issued;
      for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t length = some(5'000, 80'000);
        Activity a = run.activity(op, Activity::Kind::kernel, "gemm", streams[index_of(label.lane)], ++correlation, at,
                                  at + length);
        a.step = step;
        if (label.category == OpCategory::communication) {
          a.name = run.name(k == 0 ? "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)" : "copy_back");
          a.launch_thread = 77;
        } else if (label.category == OpCategory::copy) {
          a.kind = k % 2 == 0 ? Activity::Kind::kernel : Activity::Kind::copy;
          a.name = run.name(k % 2 == 0 ? "void cast<float>(float const*)" : "Memcpy DtoD (Device -> Device)");
          a.bytes = k % 2 == 0 ? 0 : 1 << 20;
        } else if (k == 2) {
          a.name = run.name("void dma_gemm()");
        }
        if (some(0, 9) > 0) {
          a.launch_name =
              run.name(label.category == OpCategory::communication ? "cuLaunchKernelEx" : "cudaLaunchKernel");
          a.launch_begin_ns = launched;
          launched += some(0, 1'000);
          a.launch_end_ns = launched;
        }
        works.push_back(a);
        at += length - (k + 1 < count && some(0, 4) == 0 ? some(1, 4'000) : 0);  // the next may begin before its end
        record.end_ns = std::max(record.end_ns, a.end_ns);
      }
      lane = record.end_ns;
      last = std::max(last, record.end_ns);
      run.trace.records.push_back(record);
    }
    std::ranges::stable_sort(works, {}, &Activity::begin_ns);
    run.trace.activities.insert(run.trace.activities.end(), works.begin(), works.end());
    host = std::max(host, last) + 1'000;
    run.trace.steps.push_back({begin, host});
    host += 50'000;
  }
  return run;
}

/// Figures of the records, over all steps, in microseconds.
struct RecordFigures {
  double compute_us = 0, communication_us = 0, overlap_us = 0, busy_us = 0;
};
inline RecordFigures figures_of(const GpuRun& run) {
  std::vector<Interval> computation, communication, copies;
  for (const Record& record : run.trace.records) {
    const OpCategory category = run.labels[static_cast<std::size_t>(record.op)].category;
    (category == OpCategory::computation ? computation
     : category == OpCategory::copy      ? copies
                                         : communication)
        .push_back({record.begin_ns, record.end_ns});
  }
  const auto comp = unite(computation), comm = unite(communication);
  const auto all = unite(unite(comp, comm), unite(copies));
  const auto us = [](const IntervalSet& set) { return static_cast<double>(length(set)) / 1000; };
  return {us(comp), us(comm), us(intersect(comp, comm)), us(all)};
}

}  // namespace fsdpbench::trace
