#include "foreign/job_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "account/cause.h"
#include "account/counterfactual.h"
#include "base/enum_table.h"
#include "config/write.h"
#include "foreign/job_report.h"
#include "runs/cause_fields.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

constexpr std::int64_t kShortestStall_ns = 1000;  // the sums have those that are shorter

double ms_of_job(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }
double in_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

/// Causes that have any time.
struct TimesByCause {
  static json write(const foreign::CauseMs& times) {
    json j = json::object();
    for (const account::Cause cause : kEnumerators<account::Cause>) {
      if (times[cause] > 0) j[std::string(to_string(cause))] = times[cause];
    }
    return j;
  }
  static TypeFacts facts() { return {"map of number"}; }
};

/// A step, or the mean of several, in milliseconds.
struct PartsOfStep {
  PartsOfStep(const account::StepBreakdown& sum, std::size_t steps) {
    const auto mean = [&](std::int64_t ns) { return ms_of_job(ns) / static_cast<double>(steps); };
    step_ms = mean(sum.step);
    compute_ms = mean(sum.computation);
    comm_ms = mean(sum.communication);
    overlap_ms = mean(sum.overlap);
    exposed_comm_ms = mean(sum.exposed_communication);
    exposed_copy_ms = mean(sum.exposed_copy);
    idle_ms = mean(sum.idle);
  }
  double step_ms = 0, compute_ms = 0, comm_ms = 0, overlap_ms = 0, exposed_comm_ms = 0, exposed_copy_ms = 0,
         idle_ms = 0;
};

struct UseInStep {
  const foreign::CollectiveUse& use;
  double begin_us = 0;
  double us = 0;
  std::string unit;  ///< empty: none
};

struct StallInStep {
  double begin_us = 0;
  double us = 0;
  account::Cause cause = account::Cause::unknown;
  std::string row;     ///< of the trace; empty: none
  int late_rank = -1;  ///< its number; -1: nobody
};

struct StepOfRank {
  PartsOfStep parts;
  std::int64_t number = 0;
  foreign::CauseMs causes;
  std::vector<UseInStep> collectives;
  std::vector<StallInStep> stalls;
};

struct StreamOfRank {
  const foreign::Stream& stream;
  const foreign::StreamRole& role;
};

struct RankOfJob {
  const foreign::ExplainedRank& rank;
  const std::string& file;
  std::vector<StreamOfRank> streams;
  std::vector<StepOfRank> steps;
  std::optional<PartsOfStep> mean;
};

std::vector<KernelsOfJob> kernels_of_job(const std::vector<foreign::KernelSum>& sums, const foreign::Explanation& x) {
  std::vector<KernelsOfJob> kernels;
  for (const foreign::KernelSum& sum : sums) kernels.emplace_back(sum, x);
  return kernels;
}

struct UnitOfJob {
  const foreign::FoundUnit& unit;
  bool root = false;
};

StepOfRank step_of_job(const ExplainedJob& e, std::size_t rank, std::size_t s) {
  const foreign::RankRows& rows = e.job.ranks[rank];
  const foreign::RecognisedRank& found = e.recognition.ranks[rank];
  const foreign::ExplainedStep& step = e.explanation.ranks[rank].steps[s];
  const std::int64_t begin_ns = found.cut.steps[s].window.begin;
  StepOfRank one{PartsOfStep(step.parts, 1), step.number, {}, {}, {}};
  // Times 1e-6, and not over 1e6: the last digit of what files have.
  for (const account::Cause cause : kEnumerators<account::Cause>) {
    one.causes[cause] = static_cast<double>(step.causes[cause]) * 1e-6;
  }
  for (const foreign::CollectiveUse& use : found.uses[s]) {
    const foreign::DeviceRow& row = rows.device[static_cast<std::size_t>(use.row)];
    one.collectives.push_back(
        {use, in_us(row.begin_ns - begin_ns), in_us(row.end_ns - row.begin_ns),
         use.unit >= 0 ? e.recognition.table.units[static_cast<std::size_t>(use.unit)].label : std::string()});
  }
  for (const account::Stall& stall : step.stalls) {
    if (stall.time.end - stall.time.begin < kShortestStall_ns) continue;
    StallInStep& told = one.stalls.emplace_back();
    told.begin_us = in_us(stall.time.begin - begin_ns);
    told.us = in_us(stall.time.end - stall.time.begin);
    told.cause = stall.cause;
    if (stall.op >= 0) {
      told.row = rows.names[static_cast<std::size_t>(rows.device[static_cast<std::size_t>(stall.op)].name)];
    }
    if (stall.late_rank >= 0) told.late_rank = e.job.ranks[static_cast<std::size_t>(stall.late_rank)].rank;
  }
  return one;
}

std::vector<RankOfJob> ranks_of_job(const ExplainedJob& e) {
  std::vector<RankOfJob> ranks;
  for (std::size_t r = 0; r < e.explanation.ranks.size(); ++r) {
    const foreign::ExplainedRank& rank = e.explanation.ranks[r];
    RankOfJob& one = ranks.emplace_back(RankOfJob{rank, e.job.ranks[r].file, {}, {}, {}});
    for (std::size_t s = 0; s < e.recognition.ranks[r].streams.size(); ++s) {
      one.streams.push_back({e.job.ranks[r].streams[s], e.recognition.ranks[r].streams[s]});
    }
    account::StepBreakdown sum;
    for (std::size_t s = 0; s < rank.steps.size(); ++s) {
      one.steps.push_back(step_of_job(e, r, s));
      sum += rank.steps[s].parts;
    }
    if (!rank.steps.empty()) one.mean.emplace(sum, rank.steps.size());
  }
  return ranks;
}

}  // namespace

template <>
const Fields<PartsOfStep>& fields<PartsOfStep>() {
  using P = PartsOfStep;
  static const auto kAll = declare<P>(
      "StepParts", "What a step is made of; the four parts add up to it.", "account/step_breakdown.h",
      [](Fields<P>& f) {
        f("step_ms", &P::step_ms, "ms", "the step time");
        f("compute_ms", &P::compute_ms, "ms", "time in which computation ran");
        f("comm_ms", &P::comm_ms, "ms", "time in which a collective ran, exposed or hidden");
        f("overlap_ms", &P::overlap_ms, "ms", "time in which both ran");
        f("exposed_comm_ms", &P::exposed_comm_ms, "ms", "time in which a collective ran and nothing was computed");
        f("exposed_copy_ms", &P::exposed_copy_ms, "ms", "time in which only a copy ran");
        f("idle_ms", &P::idle_ms, "ms", "time in which nothing ran");
      });
  return kAll;
}

template <>
const Fields<UseInStep>& fields<UseInStep>() {
  using U = UseInStep;
  static const auto kAll =
      declare<U>("CollectiveUse", "A collective in a step.", "foreign/collective_use.h", [](Fields<U>& f) {
        f(
            "kind", [](const U& u) { return to_string(u.use.kind); }, "", "`all_gather`, …");
        f(
            "purpose", [](const U& u) { return to_string(u.use.purpose); }, "", "what it was for");
        f(
            "phase", [](const U& u) { return to_string(u.use.phase); }, "", "phase of the step");
        f("begin_us", &U::begin_us, "us", "since the step began");
        f("us", &U::us, "us", "how long it took");
        f("unit", [](const U& u) { return u.unit; }, "", "whose it was", {.when = When::if_any});
      });
  return kAll;
}

template <>
const Fields<StallInStep>& fields<StallInStep>() {
  using S = StallInStep;
  static const auto kAll = declare<S>(
      "JobStall", "Time of a step in which nothing was computed; shorter ones than 1 us are only in the sums.",
      "account/find_stalls.h", [](Fields<S>& f) {
        f("begin_us", &S::begin_us, "us", "since the step began");
        f("us", &S::us, "us", "how long it was");
        f("cause", &S::cause, "", "name of the cause ([explain.md](explain.md))");
        f("row", &S::row, "", "of the trace, that was waited for", {.when = When::if_any});
        f("late_rank", &S::late_rank, "", "who came last", {.when = When::if_known});
      });
  return kAll;
}

template <>
const Fields<StepOfRank>& fields<StepOfRank>() {
  using S = StepOfRank;
  static const auto kAll = declare<S>("JobStep", "One rank's step.", "foreign/explain.h", [](Fields<S>& f) {
    f.spread(
        [](const S& s) -> const auto& { return s.parts; }, fields<PartsOfStep>());
    f("step", &S::number, "", "number of the step");
    f.operator()<TimesByCause>("causes_ms", &S::causes, "ms", "of the time without computation, by cause");
    f(
        "collectives", [](const S& s) -> const auto& { return s.collectives; }, "", "each");
    f(
        "stalls", [](const S& s) -> const auto& { return s.stalls; }, "", "each");
  });
  return kAll;
}

template <>
const Fields<StreamOfRank>& fields<StreamOfRank>() {
  using S = StreamOfRank;
  static const auto kAll =
      declare<S>("Stream", "A stream of a rank's device.", "foreign/recognise.h", [](Fields<S>& f) {
        f(
            "stream", [](const S& s) { return s.stream.id; }, "", "its number");
        f(
            "device", [](const S& s) { return s.stream.device; }, "", "its device");
        f(
            "role", [](const S& s) { return s.role.role; }, "", "what it does");
        f(
            "rows", [](const S& s) { return s.role.rows; }, "", "how many there are");
        f(
            "busy_ms", [](const S& s) { return ms_of_job(s.role.busy_ns); }, "ms", "that something ran on it");
      });
  return kAll;
}

template <>
const Fields<RankOfJob>& fields<RankOfJob>() {
  using R = RankOfJob;
  static const auto kAll = declare<R>("JobRank", "One rank.", "foreign/explain.h", [](Fields<R>& f) {
    f(
        "rank", [](const R& r) { return r.rank.rank; }, "", "number of the rank");
    f(
        "file", [](const R& r) { return r.file; }, "", "its trace");
    f(
        "clock_offset_ns", [](const R& r) { return r.rank.clock_offset_ns; }, "ns", "to the first rank's clock");
    f(
        "overlap_pct", [](const R& r) { return r.rank.overlap_pct; }, "%",
        "of communication, what is hidden, over the whole file; absent without communication");
    f(
        "overlap_hta_pct", [](const R& r) { return r.rank.overlap_hta_pct; }, "%",
        "the same as HolisticTraceAnalysis counts it: by its own kinds of kernels, without what was launched after the "
        "last profiled step began; absent without communication or kernels of a device");
    f(
        "most_allocated_bytes", [](const R& r) { return r.rank.most_allocated; }, "B",
        "by the allocator; absent if the trace does not say");
    f(
        "most_reserved_bytes", [](const R& r) { return r.rank.most_reserved; }, "B", "likewise");
    f(
        "streams", [](const R& r) -> const auto& { return r.streams; }, "", "of its device");
    f(
        "steps", [](const R& r) -> const auto& { return r.steps; }, "", "each");
    f(
        "mean", [](const R& r) -> const auto& { return r.mean; }, "", "of its steps");
  });
  return kAll;
}

template <>
const Fields<foreign::Finding>& fields<foreign::Finding>() {
  using F = foreign::Finding;
  static const auto kAll =
      declare<F>("JobFinding", "Something that was found out about the job.", "foreign/recognise.h", [](Fields<F>& f) {
        f("what", &F::what, "", "what the finding is about");
        f("value", &F::value, "", "what was found");
        f("evidence", &F::evidence, "", "a sentence that says why");
        f("confidence", &F::confidence, "", "how sure it is, from 0 to 1");
      });
  return kAll;
}

template <>
const Fields<UnitOfJob>& fields<UnitOfJob>() {
  using U = UnitOfJob;
  static const auto kAll = declare<U>("JobUnit", "A unit of the job.", "foreign/collective_use.h", [](Fields<U>& f) {
    f(
        "label", [](const U& u) { return u.unit.label; }, "", "label in the annotation, or its place");
    f(
        "root", [](const U& u) { return u.root; }, "", "whether it holds what no other unit holds");
    f("elements", [](const U& u) { return u.unit.elements; }, "", "number of elements, padding included",
      {.when = When::if_known});
    f("bytes", [](const U& u) { return u.unit.bytes; }, "B", "bytes as gathered", {.when = When::if_known});
  });
  return kAll;
}

template <>
const Fields<foreign::ScheduleMatch>& fields<foreign::ScheduleMatch>() {
  using M = foreign::ScheduleMatch;
  static const auto kAll = declare<M>(
      "ScheduleMatch", "The schedule whose order of launches the job has.", "foreign/match_schedule.h",
      [](Fields<M>& f) {
        f(
            "preset", [](const M& m) { return m.config.fsdp.preset; }, "", "`fsdp.preset`");
        f("exact", &M::exact, "", "every launch is where the schedule has it");
        f(
            "collectives_off", [](const M& m) { return m.collectives_off; }, "", "how many collectives are elsewhere");
        f(
            "distance", [](const M& m) { return m.distance; }, "", "of both orders");
        f(
            "same_order", [](const M& m) { return m.same_order; }, "", "collectives come in the schedule's order");
        f(
            "deviations", [](const M& m) { return m.deviations; }, "", "a sentence each");
        f(
            "fsdp", [](const M& m) { return config::to_json(m.config)["fsdp"]; }, "", "all keys of `fsdp`");
      });
  return kAll;
}

namespace {

struct MeshOfJob {
  std::int64_t shard = 0;
  std::int64_t replicate = 0;
};

}  // namespace

template <>
const Fields<MeshOfJob>& fields<MeshOfJob>() {
  static const auto kAll =
      declare<MeshOfJob>("JobMesh", "How ranks are arranged.", "foreign/recognise.h", [](Fields<MeshOfJob>& f) {
        f("shard", &MeshOfJob::shard, "", "number of ranks that split a unit");
        f("replicate", &MeshOfJob::replicate, "", "number of ranks that hold equal shards");
      });
  return kAll;
}

template <>
const Fields<foreign::Recognition>& fields<foreign::Recognition>() {
  using R = foreign::Recognition;
  static const auto kAll = declare<R>(
      "Recognition", "What the job is, and how that was found out.", "foreign/recognise.h", [](Fields<R>& f) {
        f(
            "kind", [](const R& r) { return to_string(r.kind); }, "", "kind of job");
        f(
            "name", [](const R& r) { return r.name; }, "", "name of its engine");
        f(
            "findings", [](const R& r) { return r.findings; }, "", "what was found out, with evidence");
        f(
            "unknown", [](const R& r) { return r.unknown; }, "", "what the trace does not tell, one sentence each");
        f(
            "units",
            [](const R& r) {
              std::vector<UnitOfJob> units;
              for (const foreign::FoundUnit& unit : r.table.units) {
                units.push_back({unit, static_cast<int>(units.size()) == r.table.root});
              }
              return units;
            },
            "", "units in the order of forward");
        f(
            "mesh",
            [](const R& r) {
              return r.is_fsdp() ? std::optional(MeshOfJob{r.facts.shard, r.facts.replicate}) : std::nullopt;
            },
            "", "how ranks are arranged; only for sharded jobs");
        f(
            "accumulate", [](const R& r) { return r.is_fsdp() ? std::optional(r.facts.accumulate) : std::nullopt; }, "",
            "microbatches per step; only for sharded jobs");
        f(
            "schedule", [](const R& r) -> const auto& { return r.schedule; }, "",
            "schedule that the job follows; only for sharded jobs");
      });
  return kAll;
}

template <>
const Fields<foreign::ArrivalSkew>& fields<foreign::ArrivalSkew>() {
  using A = foreign::ArrivalSkew;
  static const auto kAll =
      declare<A>("JobArrival", "How far apart ranks arrive: from the first one's begin to the last one's.",
                 "foreign/explain.h", [](Fields<A>& f) {
                   f("times", &A::times, "", "collectives that were compared, in all steps");
                   f("median_ms", &A::median_ms, "ms", "median");
                   f("worst_ms", &A::worst_ms, "ms", "the largest");
                   f("last_rank", &A::last_rank, "", "rank that was last most often; absent if all arrived at once",
                     {.when = When::if_known});
                   f("last_pct", &A::last_pct, "%", "how often that rank was last");
                 });
  return kAll;
}

template <>
const Fields<KernelsOfJob>& fields<KernelsOfJob>() {
  using K = KernelsOfJob;
  static const auto kAll = declare<K>(
      "JobKernels", "Kernels of one kind, or of one kind and name, on all ranks.", "foreign/kernel_times.h",
      [](Fields<K>& f) {
        f("kernel", [](const K& k) { return k.sum.name; }, "", "name; absent: all of the kind", {.when = When::if_any});
        f(
            "kind", [](const K& k) { return to_string(k.sum.kind); }, "",
            "`products`, `attention`, `elementwise` (with normalisation), `optimizer`, `copies`, `communication` or "
            "`other`");
        f(
            "launches", [](const K& k) { return k.sum.launches; }, "", "in all steps of all ranks");
        f("total_ms", &K::total_ms, "ms", "time in all steps of all ranks, from begin to end of each");
        f("a_step", &K::a_step, "", "launches, mean over ranks and steps");
        f("ms", &K::ms, "ms", "time, mean over ranks and steps");
        f("share_pct", &K::share_pct, "%", "share of the time of all kernels");
      });
  return kAll;
}

template <>
const Fields<foreign::ExplainedCollective>& fields<foreign::ExplainedCollective>() {
  using C = foreign::ExplainedCollective;
  static const auto kAll =
      declare<C>("JobCollective", "Collectives of one kind, unit and phase: means over ranks and steps, a step.",
                 "foreign/explain.h", [](Fields<C>& f) {
                   f("kind", &C::kind, "", "`all_gather`, …");
                   f("unit", &C::unit, "", "whose they are; empty: not known");
                   f("phase", &C::phase, "", "phase of the step");
                   f(
                       "purpose", [](const C& c) { return to_string(c.purpose); }, "", "what they are for");
                   f("a_step", &C::times, "", "how many a step");
                   f("time_ms", &C::time_ms, "ms", "all of them");
                   f("wait_ms", &C::waited_ms, "ms", "part of `time_ms` until the last peer had arrived");
                   f("exposed_ms", &C::exposed_ms, "ms", "of it, while nothing computed");
                   f.operator()<TimesByCause>("causes_ms", &C::causes_ms, "ms", "of the exposed time, by cause");
                   f("bytes", &C::bytes, "B", "of a message", {.when = When::if_known});
                   f("group_size", &C::ranks, "", "number of ranks that take part", {.when = When::if_any});
                   f("busbw_gb_per_s", &C::busbw_gb_s, "GB/s", "of the transfer, as nccl-tests defines it");
                   f("link_gb_per_s", &C::link_gb_s, "GB/s",
                     "bus bandwidth that the cluster's link has at most; absent without a cluster");
                   f("link_share_pct", &C::link_share_pct, "%", "share of it; absent if it would be above 100");
                   f("arrival", &C::arrival, "",
                     "how far apart ranks arrive; absent where no collective has the rows of all its ranks");
                 });
  return kAll;
}

template <>
const Fields<ProductsOfJob>& fields<ProductsOfJob>() {
  using P = ProductsOfJob;
  static const auto kAll = declare<P>(
      "JobProducts", "Matrix products of one dtype, where the trace has the shapes (`record_shapes`).",
      "foreign/kernel_times.h", [](Fields<P>& f) {
        f(
            "dtype", [](const P& p) { return p.sum.dtype; }, "", "of the first matrix, as PyTorch calls it");
        f(
            "a_step", [](const P& p) { return static_cast<double>(p.sum.products) / p.steps; }, "",
            "products, mean over ranks and steps");
        f(
            "ms", [](const P& p) { return ms_of_job(p.sum.ns) / p.steps; }, "ms",
            "time of the kernels that were launched for them, mean over ranks and steps");
        f(
            "tflop_per_s", [](const P& p) { return p.sum.tflop_per_s(); }, "TFLOP/s", "2 m n k of each ÷ that time");
        f(
            "peak_tflops", [](const P& p) { return p.sum.peak_tflops; }, "TFLOP/s",
            "dense peak of the cluster's GPU; for `float` that of TF32 where there is one; absent without a cluster");
        f(
            "share_pct", [](const P& p) { return p.sum.share_pct; }, "%",
            "share of it; absent if it would be above 100");
      });
  return kAll;
}

template <>
const Fields<foreign::Contention>& fields<foreign::Contention>() {
  using C = foreign::Contention;
  static const auto kAll =
      declare<C>("Contention", "A matrix product that takes longer while a collective runs.", "foreign/explain.h",
                 [](Fields<C>& f) {
                   f("kernel", &C::kernel, "", "its name");
                   f("alone_us", &C::alone_us, "us", "median, alone");
                   f("beside_us", &C::beside_us, "us", "median, beside a collective");
                   f(
                       "alone", [](const C& c) { return c.alone; }, "", "launches alone");
                   f(
                       "beside", [](const C& c) { return c.beside; }, "", "launches beside a collective");
                   f("lost_ms", &C::lost_ms, "ms", "a step");
                 });
  return kAll;
}

template <>
const Fields<account::ReplayedKnob>& fields<account::ReplayedKnob>() {
  using K = account::ReplayedKnob;
  static const auto kAll = declare<K>(
      "ReplayedKnob", "A key turned in a replay of the job's own op times.", "account/advice.h", [](Fields<K>& f) {
        f(
            "set", [](const K& k) { return k.gain.set; }, "", "the change, as `key=value`");
        f(
            "cause", [](const K& k) { return k.gain.cause; }, "", "the cause that it is meant for");
        f.spread(
            [](const K& k) -> const auto& { return k.gain; }, fields<account::Counterfactual>());
        f(
            "advice",
            [](const K& k) {
              return k.advised() ? std::optional(account::knob_sentence(k.gain, k.words)) : std::nullopt;
            },
            "", "a sentence that says what the change gains; absent unless the change is advised");
        f("words", &K::words, "", "the setting in the traced program's words; empty: it is this program, or unknown");
        f(
            "no_word", [](const K& k) { return !k.sayable; }, "",
            "it cannot be set there, as `words` says, or nobody knows how");
      });
  return kAll;
}

namespace {

/// The step times of the slowest rank: a summary and each.
const Fields<foreign::Explanation>& slowest_rank_fields() {
  using X = foreign::Explanation;
  static const auto kAll =
      declare<X>("JobStepTime", "Step times of the slowest rank.", "foreign/explain.h", [](Fields<X>& f) {
        f.spread(
            [](const X& x) -> const auto& { return x.step_ms; }, fields<account::Summary>());
        f(
            "steps_ms", [](const X& x) { return x.steps_ms; }, "ms", "each step that all ranks have");
      });
  return kAll;
}

const Fields<foreign::Explanation>& job_step_fields() {
  using X = foreign::Explanation;
  static const auto kAll =
      declare<X>("JobStepMean", "A step: means over ranks and steps.", "foreign/explain.h", [](Fields<X>& f) {
        f("mean_ms", &X::mean_step_ms, "ms", "the step");
        f("compute_ms", &X::computation_ms, "ms", "time in which computation ran");
        f("comm_ms", &X::communication_ms, "ms", "time in which a collective ran, exposed or hidden");
        f("exposed_comm_ms", &X::exposed_communication_ms, "ms",
          "time in which a collective ran and nothing was computed");
        f("exposed_copy_ms", &X::exposed_copy_ms, "ms", "time in which only a copy ran");
        f("idle_ms", &X::idle_ms, "ms", "time in which nothing ran");
        f.operator()<TimesByCause>("causes_ms", &X::causes_ms, "ms", "of the time without computation, by cause");
        f.part("slowest_rank", slowest_rank_fields(), [](const X& x) { return x.step_ms.n > 0; });
      });
  return kAll;
}

const Fields<foreign::Explanation>& kernel_fields() {
  using X = foreign::Explanation;
  static const auto kAll = declare<X>(
      "JobKernelTimes", "Where the time of kernels went, by kind and by name.", "foreign/kernel_times.h",
      [](Fields<X>& f) {
        f(
            "total_ms", [](const X& x) { return ms_of_job(x.kernels.ns); }, "ms",
            "time of all kernels in all steps of all ranks, from begin to end of each; those that run at once count "
            "twice");
        f(
            "by_kind", [](const X& x) { return kernels_of_job(x.kernels.by_kind, x); }, "",
            "by kind, the most time first; they add up to `total_ms`");
        f(
            "top", [](const X& x) { return kernels_of_job(x.kernels.top, x); }, "",
            "by name, the most time first; at most ten");
        f("products",
          [](const X& x) {
            std::vector<ProductsOfJob> all;
            for (const foreign::ProductSum& sum : x.kernels.products) {
              all.push_back({sum, static_cast<double>(x.rank_steps)});
            }
            return all;
          },
          "", "matrix products by dtype, the most time first", {.when = When::if_any});
      });
  return kAll;
}

/// Of a job that has one.
const Fields<ExplainedJob>& late_rank_fields() {
  using E = ExplainedJob;
  static const auto kAll = declare<E>(
      "JobLateRank", "The rank that the others wait for in each step.", "foreign/link_rows.h", [](Fields<E>& f) {
        f(
            "rank", [](const E& e) { return e.job.ranks[static_cast<std::size_t>(e.explanation.late->place)].rank; },
            "", "its number");
        f(
            "where", [](const E& e) { return to_string(e.explanation.late->where); }, "",
            "what makes it late: `its kernels`, `its host`, `its input` or `its communication`");
        f(
            "where_ms", [](const E& e) { return e.explanation.late->where_ms; }, "ms",
            "what that takes beyond the median of the others, a step");
        f.spread(
            [](const E& e) -> const auto& { return e.explanation.late->late_ms; }, fields<account::Summary>());
      });
  return kAll;
}

const Fields<ExplainedJob>& job_fields() {
  using E = ExplainedJob;
  static const auto kAll = declare<E>(
      "TraceExplanation", "explain.json of `trace explain` ([trace-explain.md](trace-explain.md)).",
      "foreign/job_report.h", [](Fields<E>& f) {
        f(
            "kind", [](const E&) { return std::string("trace_explanation"); }, "", "`trace_explanation`");
        f(
            "schema_version", [](const E&) { return kJobSchemaVersion; }, "", "version of this file's format");
        f(
            "recognition", [](const E& e) -> const auto& { return e.recognition; }, "", "what kind of job it is");
        f.object(
            "step", [](const E& e) -> const auto& { return e.explanation; }, job_step_fields(),
            "parts of the step, means over ranks and steps");
        f(
            "collectives", [](const E& e) -> const auto& { return e.explanation.collectives; }, "",
            "collectives by kind, unit and phase, the most exposed first");
        f.object(
            "kernels", [](const E& e) -> const auto& { return e.explanation; }, kernel_fields(),
            "kernels by kind, and those that take most time");
        f(
            "critical_path", [](const E& e) { return path_of_job(e); }, "",
            "the chain of work that decided how long steps were");
        f(
            "wasted_gathers", [](const E& e) -> const auto& { return e.unused.all; }, "",
            "all-gathers that nobody used, or that bring what was there");
        f("wasted_gathers_unknown", [](const E& e) { return e.unused.unknown; }, "",
          "why it is not known whether any is wasted", {.when = When::if_any});
        f(
            "exchanges", [](const E& e) -> const auto& { return e.explanation.exchanges; }, "",
            "tokens on their way to experts and back; absent without any");
        f(
            "contention", [](const E& e) -> const auto& { return e.explanation.contention; }, "",
            "kernels that run slower beside collectives, those that lose most time first");
        f(
            "late_launches_pct",
            [](const E& e) {
              return e.explanation.launches_known ? std::optional(e.explanation.late_launches_pct) : std::nullopt;
            },
            "%", "share of computation that began right after its launch");
        f(
            "host_ahead_ms",
            [](const E& e) {
              return e.explanation.launches_known ? std::optional(e.explanation.host_ahead_ms) : std::nullopt;
            },
            "ms", "how long before a kernel began the host had launched it, the median of kernels");
        f(
            "host_most_ahead_ms",
            [](const E& e) {
              return e.explanation.launches_known ? std::optional(e.explanation.host_most_ahead_ms) : std::nullopt;
            },
            "ms", "the same, the longest");
        f(
            "clock_residual_ns", [](const E& e) { return e.explanation.clock_residual_ns; }, "ns",
            "error that the clocks of ranks may have");
        f(
            "late_rank",
            [](const E& e) {
              const auto& late = e.explanation.late_rank;
              return late ? std::optional(e.job.ranks[static_cast<std::size_t>(*late)].rank) : std::nullopt;
            },
            "", "rank that came last in most of the waiting");
        f.part("late", late_rank_fields(), [](const E& e) { return e.explanation.late.has_value(); });
        f(
            "causes", [](const E& e) -> const auto& { return e.explanation.causes; }, "",
            "why computation was not running, the largest cause first, with what would help");
        f(
            "headline", [](const E& e) { return headline(e); }, "",
            "what to change, or that nothing would help, a sentence or two");
        f(
            "typical_ms", [](const E& e) { return e.replay ? std::optional(e.replay->replayed_ms) : std::nullopt; },
            "ms", "the replay of the traced step");
        f(
            "least_ms", [](const E& e) { return e.replay ? std::optional(e.replay->least_ms) : std::nullopt; }, "ms",
            "what one rank needs for its own kernels and its host: no setting makes the step shorter");
        f(
            "knobs", [](const E& e) -> const auto& { return e.replayed; }, "",
            "keys whose change would gain more than the noise, the largest gain first");
        f("not_replayed_because", [](const E& e) { return e.not_replayed_because; }, "",
          "why nothing was replayed, a sentence", {.when = When::if_any});
        f(
            "notes", [](const E& e) { return e.explanation.notes; }, "", "sentences to read before any number");
        f(
            "ranks", [](const E& e) { return ranks_of_job(e); }, "", "parts of the step on each rank");
      });
  return kAll;
}

}  // namespace

json job_json(const ExplainedJob& explained) { return job_fields().write(explained); }

const ObjectFacts& job_file_facts() { return job_fields().facts(); }

}  // namespace fsdpbench::app
