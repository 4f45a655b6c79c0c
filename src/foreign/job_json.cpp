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
#include "foreign/evidence.h"
#include "foreign/job_report.h"
#include "foreign/xla_program.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

constexpr std::int64_t kShortestStall_ns = 1000;  // the sums have those that are shorter

double ms_of_job(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }
double in_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

/// The number of the rank at a place.
int number_of(const ExplainedJob& e, int place) { return e.job.ranks[place].rank; }
const foreign::LateRank& late_of(const ExplainedJob& e) { return *e.explanation.late; }

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

/// A step, or several whose mean counts.
struct StepParts {
  account::StepBreakdown sum;
  double steps = 1;
};
auto mean(std::int64_t account::StepBreakdown::*part) {
  return [part](const StepParts& parts) { return ms_of_job(parts.sum.*part) / parts.steps; };
}

struct UseInStep {
  const foreign::CollectiveUse* use = nullptr;
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
  StepParts parts;
  std::int64_t number = 0;
  foreign::CauseMs causes;
  std::vector<UseInStep> collectives;
  std::vector<StallInStep> stalls;
};

using StreamOfRank = std::pair<const foreign::Stream*, const foreign::StreamRole*>;
using UnitOfJob = std::pair<const foreign::FoundUnit*, bool>;  // whether it is the root

struct RankOfJob {
  const foreign::ExplainedRank* rank = nullptr;
  const std::string* file = nullptr;
  std::vector<StreamOfRank> streams;
  std::vector<StepOfRank> steps;
  StepParts sum;
};

std::vector<KernelsOfJob> kernels_of_job(const std::vector<foreign::KernelSum>& sums, const foreign::Explanation& x) {
  std::vector<KernelsOfJob> kernels;
  for (const foreign::KernelSum& sum : sums) kernels.emplace_back(sum, x);
  return kernels;
}

std::vector<UnitOfJob> units_of_job(const foreign::UnitTable& table) {
  std::vector<UnitOfJob> units;
  for (const foreign::FoundUnit& unit : table.units) {
    units.emplace_back(&unit, static_cast<int>(units.size()) == table.root);
  }
  return units;
}

StepOfRank step_of_job(const ExplainedJob& e, std::size_t rank, std::size_t s) {
  const foreign::RankRows& rows = e.job.ranks[rank];
  const foreign::RecognisedRank& found = e.recognition.ranks[rank];
  const foreign::ExplainedStep& step = e.explanation.ranks[rank].steps[s];
  const std::int64_t begin_ns = found.cut.steps[s].window.begin;
  StepOfRank one{{step.parts}, step.number, {}, {}, {}};
  // Times 1e-6, and not over 1e6: the last digit of what files have.
  for (const account::Cause cause : kEnumerators<account::Cause>) {
    one.causes[cause] = static_cast<double>(step.causes[cause]) * 1e-6;
  }
  for (const foreign::CollectiveUse& use : found.uses[s]) {
    const foreign::DeviceRow& row = rows.device[use.row];
    one.collectives.push_back({&use, in_us(row.begin_ns - begin_ns), in_us(row.end_ns - row.begin_ns),
                               use.unit >= 0 ? e.recognition.table.units[use.unit].label : std::string()});
  }
  for (const account::Stall& stall : step.stalls) {
    if (stall.time.end - stall.time.begin < kShortestStall_ns) continue;
    StallInStep& told = one.stalls.emplace_back();
    told.begin_us = in_us(stall.time.begin - begin_ns);
    told.us = in_us(stall.time.end - stall.time.begin);
    told.cause = stall.cause;
    if (stall.op >= 0) told.row = rows.names[rows.device[stall.op].name];
    if (stall.late_rank >= 0) told.late_rank = e.job.ranks[stall.late_rank].rank;
  }
  return one;
}

std::vector<RankOfJob> ranks_of_job(const ExplainedJob& e) {
  std::vector<RankOfJob> ranks;
  for (std::size_t r = 0; r < e.explanation.ranks.size(); ++r) {
    const foreign::ExplainedRank& rank = e.explanation.ranks[r];
    RankOfJob& one = ranks.emplace_back(RankOfJob{&rank, &e.job.ranks[r].file, {}, {}, {}});
    for (std::size_t s = 0; s < e.recognition.ranks[r].streams.size(); ++s) {
      one.streams.emplace_back(&e.job.ranks[r].streams[s], &e.recognition.ranks[r].streams[s]);
    }
    for (std::size_t s = 0; s < rank.steps.size(); ++s) {
      one.steps.push_back(step_of_job(e, r, s));
      one.sum.sum += rank.steps[s].parts;
    }
    one.sum.steps = static_cast<double>(rank.steps.size());
  }
  return ranks;
}

}  // namespace

// clang-format off
template <>
Fields<StepParts> declared() {
  using B = account::StepBreakdown;
  return {"StepParts", "Parts of a step; the four add up to it.", "account/step_breakdown.h", {
    {"step_ms", mean(&B::step), "ms", "the step time"},
    {"compute_ms", mean(&B::computation), "ms", "time in which computation ran"},
    {"comm_ms", mean(&B::communication), "ms", "time in which a collective ran, exposed or hidden"},
    {"overlap_ms", mean(&B::overlap), "ms", "time in which both ran"},
    {"exposed_comm_ms", mean(&B::exposed_communication), "ms", "time in which a collective ran and nothing was computed"},
    {"exposed_copy_ms", mean(&B::exposed_copy), "ms", "time in which only a copy ran"},
    {"idle_ms", mean(&B::idle), "ms", "time in which nothing ran"},
  }};
}

template <>
Fields<UseInStep> declared() {
  using U = UseInStep;
  return {"CollectiveUse", "A collective in a step.", "foreign/collective_use.h", {
    {"kind", via(&U::use, &foreign::CollectiveUse::kind), "", "`all_gather`, …"},
    {"purpose", via(&U::use, &foreign::CollectiveUse::purpose), "", "what it was for"},
    {"phase", via(&U::use, &foreign::CollectiveUse::phase), "", "phase of the step"},
    {"begin_us", &U::begin_us, "us", "since the step began"},
    {"us", &U::us, "us", "how long it took"},
    {"unit", &U::unit, "", "whose it was", if_any},
  }};
}

template <>
Fields<StallInStep> declared() {
  using S = StallInStep;
  return {"JobStall", "Time of a step in which nothing was computed; shorter ones than 1 us are only in the sums.", "account/find_stalls.h", {
    {"begin_us", &S::begin_us, "us", "since the step began"},
    {"us", &S::us, "us", "how long it was"},
    {"cause", &S::cause, "", "name of the cause ([explain.md](explain.md))"},
    {"row", &S::row, "", "of the trace, that was waited for", if_any},
    {"late_rank", &S::late_rank, "", "who came last", if_known},
  }};
}

template <>
Fields<StepOfRank> declared() {
  using S = StepOfRank;
  return {"JobStep", "One rank's step.", "foreign/explain.h", {
    spread(&S::parts),
    {"step", &S::number, "", "number of the step"},
    {"causes_ms", as<TimesByCause>(&S::causes), "ms", "of the time without computation, by cause"},
    {"collectives", &S::collectives, "", "each"},
    {"stalls", &S::stalls, "", "each"},
  }};
}

template <>
Fields<StreamOfRank> declared() {
  using S = StreamOfRank;
  return {"Stream", "A stream of a rank's device.", "foreign/recognise.h", {
    {"stream", via(&S::first, &foreign::Stream::id), "", "its number"},
    {"device", via(&S::first, &foreign::Stream::device), "", "its device"},
    {"role", via(&S::second, &foreign::StreamRole::role), "", "what it does"},
    {"rows", via(&S::second, &foreign::StreamRole::rows), "", "how many there are"},
    {"busy_ms", via(&S::second, &foreign::StreamRole::busy_ns, ms_of_job), "ms", "that something ran on it"},
  }};
}

template <>
Fields<RankOfJob> declared() {
  using R = RankOfJob;
  return {"JobRank", "One rank.", "foreign/explain.h", {
    {"rank", via(&R::rank, &foreign::ExplainedRank::rank), "", "number of the rank"},
    {"file", &R::file, "", "its trace"},
    {"clock_offset_ns", via(&R::rank, &foreign::ExplainedRank::clock_offset_ns), "ns", "to the first rank's clock"},
    {"overlap_pct", via(&R::rank, &foreign::ExplainedRank::overlap_pct), "%", "of communication, what is hidden, over the whole file; absent without communication"},
    {"most_allocated_bytes", via(&R::rank, &foreign::ExplainedRank::most_allocated), "B", "by the allocator; absent if the trace does not say"},
    {"most_reserved_bytes", via(&R::rank, &foreign::ExplainedRank::most_reserved), "B", "likewise"},
    {"streams", &R::streams, "", "of its device"},
    {"steps", &R::steps, "", "each"},
    {"mean", &R::sum, "", "of its steps", when([](const R& r) { return !r.steps.empty(); })},
  }};
}

template <>
Fields<foreign::Finding> declared() {
  using F = foreign::Finding;
  return {"JobFinding", "Something that was found out about the job.", "foreign/recognise.h", {
    {"what", &F::what, "", "what the finding is about"},
    {"value", &F::value, "", "what was found"},
    {"evidence", &F::evidence, "", "a sentence that says why"},
    {"confidence", &F::confidence, "", "how sure it is, from 0 to 1"},
  }};
}

template <>
Fields<UnitOfJob> declared() {
  using U = UnitOfJob;
  return {"JobUnit", "A unit of the job.", "foreign/collective_use.h", {
    {"label", via(&U::first, &foreign::FoundUnit::label), "", "label in the annotation, or its place"},
    {"root", &U::second, "", "whether it holds what no other unit holds"},
    {"elements", via(&U::first, &foreign::FoundUnit::elements), "", "number of elements, padding included", if_known},
    {"bytes", via(&U::first, &foreign::FoundUnit::bytes), "B", "bytes as gathered", if_known},
  }};
}

template <>
Fields<foreign::ScheduleMatch> declared() {
  using M = foreign::ScheduleMatch;
  return {"ScheduleMatch", "The schedule whose order of launches the job has.", "foreign/match_schedule.h", {
    {"preset", via(&M::config, &config::RunConfig::fsdp, &config::Fsdp::preset), "", "`fsdp.preset`"},
    {"exact", &M::exact, "", "every launch is where the schedule has it"},
    {"collectives_off", &M::collectives_off, "", "how many collectives are elsewhere"},
    {"distance", &M::distance, "", "of both orders"},
    {"same_order", &M::same_order, "", "collectives come in the schedule's order"},
    {"deviations", &M::deviations, "", "a sentence each"},
    {"fsdp", [](const M& m) { return config::to_json(m.config)["fsdp"]; }, "", "all keys of `fsdp`"},
  }};
}

template <>
Fields<foreign::Recognition> declared() {
  using R = foreign::Recognition;
  return {"Recognition", "Recognised setup of the job, with the evidence for it.", "foreign/recognise.h", {
    {"kind", &R::kind, "", "kind of job"},
    {"name", &R::name, "", "name of its engine"},
    {"findings", &R::findings, "", "what was found out, with evidence"},
    {"unknown", &R::unknown, "", "what the trace does not tell, one sentence each"},
    {"units", via(&R::table, units_of_job), "", "units in the order of forward"},
    {"mesh", {"JobMesh", "Arrangement of the ranks.", "foreign/recognise.h", {
      {"shard", via(&R::facts, &foreign::TrainingFacts::shard), "", "number of ranks that split a unit"},
      {"replicate", via(&R::facts, &foreign::TrainingFacts::replicate), "", "number of ranks that hold equal shards"},
    }}, "how ranks are arranged; only for sharded jobs", when(&R::is_fsdp)},
    {"accumulate", via(&R::facts, &foreign::TrainingFacts::accumulate), "", "microbatches per step; only for sharded jobs", when(&R::is_fsdp)},
    {"schedule", &R::schedule, "", "schedule that the job follows; only for sharded jobs"},
  }};
}

template <>
Fields<KernelsOfJob> declared() {
  using K = KernelsOfJob;
  return {"JobKernels", "Kernels of one kind, or of one kind and name, on all ranks.", "foreign/kernel_times.h", {
    {"kernel", via(&K::sum, &foreign::KernelSum::name), "", "name; absent: all of the kind", if_any},
    {"kind", via(&K::sum, &foreign::KernelSum::kind), "", "`products`, `attention`, `elementwise` (with normalisation), `optimizer`, `copies`, `communication` or `other`"},
    {"launches", via(&K::sum, &foreign::KernelSum::launches), "", "in all steps of all ranks"},
    {"total_ms", &K::total_ms, "ms", "time in all steps of all ranks, from begin to end of each"},
    {"a_step", &K::a_step, "", "launches, mean over ranks and steps"},
    {"ms", &K::ms, "ms", "time, mean over ranks and steps"},
    {"share_pct", &K::share_pct, "%", "share of the time of all kernels"},
  }};
}

template <>
Fields<foreign::ExplainedCollective> declared() {
  using C = foreign::ExplainedCollective;
  return {"JobCollective", "Collectives of one kind, unit and phase: means over ranks and steps, a step.", "foreign/explain.h", {
    {"kind", &C::kind, "", "`all_gather`, …"},
    {"unit", &C::unit, "", "whose they are; empty: not known"},
    {"phase", &C::phase, "", "phase of the step"},
    {"purpose", &C::purpose, "", "what they are for"},
    {"a_step", &C::times, "", "how many a step"},
    {"time_ms", &C::time_ms, "ms", "all of them"},
    {"wait_ms", &C::waited_ms, "ms", "part of `time_ms` until the last peer had arrived"},
    {"exposed_ms", &C::exposed_ms, "ms", "of it, while nothing computed"},
    {"causes_ms", as<TimesByCause>(&C::causes_ms), "ms", "of the exposed time, by cause"},
    {"bytes", &C::bytes, "B", "of a message", if_known},
    {"group_size", &C::ranks, "", "number of ranks that take part", if_any},
    {"busbw_gb_per_s", &C::busbw_gb_s, "GB/s", "of the transfer, as nccl-tests defines it"},
    {"link_gb_per_s", &C::link_gb_s, "GB/s", "bus bandwidth that the cluster's link has at most; absent without a cluster"},
    {"link_share_pct", &C::link_share_pct, "%", "share of it; absent if it would be above 100"},
  }};
}

template <>
Fields<foreign::Contention> declared() {
  using C = foreign::Contention;
  return {"Contention", "A matrix product that takes longer while a collective runs.", "foreign/explain.h", {
    {"kernel", &C::kernel, "", "its name"},
    {"alone_us", &C::alone_us, "us", "median, alone"},
    {"beside_us", &C::beside_us, "us", "median, beside a collective"},
    {"alone", &C::alone, "", "launches alone"},
    {"beside", &C::beside, "", "launches beside a collective"},
    {"lost_ms", &C::lost_ms, "ms", "a step"},
  }};
}

template <>
Fields<account::ReplayedKnob> declared() {
  using K = account::ReplayedKnob;
  return {"ReplayedKnob", "A key turned in a replay of the job's own op times.", "account/advice.h", {
    {"set", via(&K::gain, &account::Counterfactual::set), "", "the change, as `key=value`"},
    {"cause", via(&K::gain, &account::Counterfactual::cause), "", "the cause that it is meant for"},
    spread(&K::gain),
    {"advice", [](const K& k) { return account::knob_sentence(k.gain, k.words); }, "", "a sentence that says what the change gains; absent unless the change is advised", when(&K::advised)},
    {"words", &K::words, "", "the setting in the traced program's words; empty: it is this program, or unknown"},
    {"no_word", [](const K& k) { return !k.sayable; }, "", "it cannot be set there, as `words` says, or nobody knows how"},
  }};
}

namespace {

const Fields<foreign::Explanation>& job_step_fields() {
  using X = foreign::Explanation;
  static const Fields<foreign::Explanation> kAll{"JobStepMean", "A step: means over ranks and steps.", "foreign/explain.h", {
    {"mean_ms", &X::mean_step_ms, "ms", "the step"},
    {"compute_ms", &X::computation_ms, "ms", "time in which computation ran"},
    {"comm_ms", &X::communication_ms, "ms", "time in which a collective ran, exposed or hidden"},
    {"exposed_comm_ms", &X::exposed_communication_ms, "ms", "time in which a collective ran and nothing was computed"},
    {"exposed_copy_ms", &X::exposed_copy_ms, "ms", "time in which only a copy ran"},
    {"idle_ms", &X::idle_ms, "ms", "time in which nothing ran"},
    {"causes_ms", as<TimesByCause>(&X::causes_ms), "ms", "of the time without computation, by cause"},
    {"slowest_rank", {"JobStepTime", "Step times of the slowest rank.", "foreign/explain.h", {
      spread(&X::step_ms),
      {"steps_ms", &X::steps_ms, "ms", "each step that all ranks have"},
    }}, when(via(&X::step_ms, &account::Summary::n))},
  }};
  return kAll;
}

const Fields<foreign::Explanation>& kernel_fields() {
  using X = foreign::Explanation;
  static const Fields<foreign::Explanation> kAll{"JobKernelTimes", "Where the time of kernels went, by kind and by name.", "foreign/kernel_times.h", {
    {"total_ms", via(&X::kernels, &foreign::KernelTimes::ns, ms_of_job), "ms", "time of all kernels in all steps of all ranks, from begin to end of each; those that run at once count twice"},
    {"by_kind", [](const X& x) { return kernels_of_job(x.kernels.by_kind, x); }, "", "by kind, the most time first; they add up to `total_ms`"},
    {"top", [](const X& x) { return kernels_of_job(x.kernels.top, x); }, "", "by name, the most time first; at most ten"},
  }};
  return kAll;
}

const Fields<ExplainedJob>& job_fields() {
  using E = ExplainedJob;
  using X = foreign::Explanation;
  static const Fields<ExplainedJob> kAll{"TraceExplanation", "explain.json of `trace explain` ([trace-explain.md](trace-explain.md)).", "foreign/job_report.h", {
    {"kind", [](const E&) { return "trace_explanation"; }, "", "`trace_explanation`"},
    {"schema_version", [](const E&) { return kJobSchemaVersion; }, "", "version of this file's format"},
    {"recognition", &E::recognition, "", "what kind of job it is"},
    {"step", as<ObjectOf<job_step_fields>>(&E::explanation), "", "parts of the step, means over ranks and steps"},
    {"collectives", via(&E::explanation, &X::collectives), "", "collectives by kind, unit and phase, the most exposed first"},
    {"kernels", as<ObjectOf<kernel_fields>>(&E::explanation), "", "kernels by kind, and those that take most time"},
    {"critical_path", path_of_job, "", "the chain of work that decided how long steps were"},
    {"wasted_gathers", via(&E::unused, &foreign::UnusedGathersFound::all), "", "all-gathers that nobody used, or that bring what was there"},
    {"wasted_gathers_unknown", via(&E::unused, &foreign::UnusedGathersFound::unknown), "", "why it is not known whether any is wasted", if_any},
    {"contention", via(&E::explanation, &X::contention), "", "kernels that run slower beside collectives, those that lose most time first"},
    {"late_launches_pct", via(&E::explanation, &X::late_launches_pct), "%", "share of computation that began right after its launch", when(via(&E::explanation, &X::launches_known))},
    {"host_ahead_ms", via(&E::explanation, &X::host_ahead_ms), "ms", "how long before a kernel began the host had launched it, the median of kernels", when(via(&E::explanation, &X::launches_known))},
    {"host_most_ahead_ms", via(&E::explanation, &X::host_most_ahead_ms), "ms", "the same, the longest", when(via(&E::explanation, &X::launches_known))},
    {"clock_residual_ns", via(&E::explanation, &X::clock_residual_ns), "ns", "error that the clocks of ranks may have"},
    {"late_rank", [](const E& e) { return number_of(e, *e.explanation.late_rank); }, "", "rank that came last in most of the waiting", when(via(&E::explanation, &X::late_rank))},
    {"late", {"JobLateRank", "The rank that the others wait for in each step.", "foreign/link_rows.h", {
      {"rank", [](const E& e) { return number_of(e, late_of(e).place); }, "", "its number"},
      {"where", via(late_of, &foreign::LateRank::where), "", "what makes it late: `its kernels`, `its host`, `its garbage collection`, `its input` or `its communication`"},
      {"where_ms", via(late_of, &foreign::LateRank::where_ms), "ms", "what that takes beyond the median of the others, a step"},
      spread(via(late_of, &foreign::LateRank::late_ms)),
    }}, when(via(&E::explanation, &X::late))},
    {"causes", via(&E::explanation, &X::causes), "", "why computation was not running, the largest cause first, with what would help"},
    {"headline", headline, "", "what to change, or that nothing would help, a sentence or two"},
    {"typical_ms", via(&E::replay, &TracedStep::replayed_ms), "ms", "the replay of the traced step"},
    {"least_ms", via(&E::replay, &TracedStep::least_ms), "ms", "what one rank needs for its own kernels and its host: no setting makes the step shorter"},
    {"knobs", &E::replayed, "", "keys whose change would gain more than the noise, the largest gain first"},
    {"not_replayed_because", &E::not_replayed_because, "", "why nothing was replayed, a sentence", if_any},
    {"notes", [](const E& e) {
       std::vector<std::string> notes = foreign::on_compute_stream(e.job.ranks.front());
       if (!notes.empty()) notes.front().insert(0, "Collectives on the stream that computes: ");
       notes.insert(notes.end(), e.explanation.notes.begin(), e.explanation.notes.end());
       return notes;
     }, "", "sentences to read before any number"},
    {"ranks", ranks_of_job, "", "parts of the step on each rank"},
  }};
  return kAll;
}
// clang-format on

}  // namespace

json job_json(const ExplainedJob& explained) { return job_fields().write(explained); }

const ObjectFacts& job_file_facts() { return job_fields().facts(); }

}  // namespace fsdpbench::app
