#include "trace/rank_reader.h"

#include <fmt/format.h>

#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "base/clean_text.h"
#include "base/error.h"
#include "trace/event_reader.h"
#include "trace/fields.h"
#include "trace/input_file.h"

namespace fsdpbench::trace {
namespace {

/// More than any run of ours has in a rank's file.
constexpr std::int64_t kMostEvents = 100'000'000;
constexpr std::int64_t kOrigin_ns = 1;

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  void event(const ParsedEvent& event) {
    if (event.ph != "X") return;
    const Value* step = event.arg(field::kStep.name);
    if (step == nullptr || !step->is_integer()) return;
    const Value* op = event.arg(field::kOp.name);
    if (op == nullptr) {
      window(event);
    } else if (op->is_integer()) {
      row(event, step->integer, op->integer);
    }
  }

  RankTrace take(const FileFacts& facts) {
    if (!facts.rank || trace_.steps.empty()) {
      throw ConfigError(fmt::format(
          "{}: is no trace of one rank with its steps; expected a file trace/rank_N.json.gz of a result folder.",
          path_));
    }
    trace_.rank = static_cast<int>(*facts.rank);
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(const ParsedEvent& event, std::string_view what) const {
    throw ConfigError(
        fmt::format("{}: event {}: {}; the file is damaged, or another program wrote it.", path_, event.index, what));
  }

  std::int64_t time(const ParsedEvent& event, const Field& field) const {
    const Value* value = field.place == Place::args ? event.arg(field.name) : event.member(field.name);
    const std::optional<std::int64_t> ns = value == nullptr ? std::nullopt : nanoseconds(*value);
    if (!ns) refuse(event, fmt::format("{} is missing, or is no number of microseconds", field.name));
    return *ns;
  }

  void window(const ParsedEvent& event) {
    const std::int64_t begin = time(event, field::kTs) + kOrigin_ns;
    trace_.steps.push_back({begin, begin + time(event, field::kDur), 0});
    first_ = trace_.records.size();
  }

  void row(const ParsedEvent& event, std::int64_t step, std::int64_t op) {
    if (trace_.steps.empty()) refuse(event, "an op before the first step");
    const std::string_view category = event.category;
    const bool profiled = event.arg(field::kExternalId.name) != nullptr;
    const std::int64_t begin = time(event, field::kTs) + kOrigin_ns;
    const std::int64_t end = begin + time(event, field::kDur);
    if (category == "cpu_op" || (category == "cuda_runtime" && !profiled)) {
      if (std::cmp_not_equal(op, trace_.records.size() - first_)) refuse(event, "an op out of order");
      Record& record = trace_.records.emplace_back();
      record.step = static_cast<std::int32_t>(step);
      record.op = static_cast<std::int32_t>(op);
      record.issued_ns = begin;
      const bool waits = event.name == "cudaEventSynchronize";
      if (waits) record.end_ns = end;
      trace_.steps.back().issued_ns = end;
      return;
    }
    // With a profiler the kernels have rows, too; the op's own is the annotation around them.
    if (profiled != (category == "gpu_user_annotation")) return;
    if (category != "gpu_user_annotation" && category != "kernel" && !category.starts_with("gpu_mem")) return;
    if (op < 0 || std::cmp_greater_equal(op, trace_.records.size() - first_)) refuse(event, "an op that nobody issued");
    Record& record = trace_.records[first_ + static_cast<std::size_t>(op)];
    record.begin_ns = begin;
    record.end_ns = end;
    if (event.arg(field::kWaitedForPeers.name) != nullptr) {
      record.peers_arrived_ns = begin + time(event, field::kWaitedForPeers);
    }
    if (event.arg(field::kOwnLink.name) != nullptr) record.link_ns = time(event, field::kOwnLink);
    if (event.arg(field::kWaitedForCore.name) != nullptr) record.core_wait_ns = time(event, field::kWaitedForCore);
  }

  const std::string& path_;
  RankTrace trace_;
  std::size_t first_ = 0;  // record of the step
};

}  // namespace

RankTrace read_rank_trace(const std::string& path) {
  InputFile file(path);
  std::istream in(&file);
  constexpr std::size_t kMostOfAMessage = 400;
  std::optional<std::string> trouble;
  const auto fault = [&](ReadFault, std::optional<std::int64_t>, std::string_view message) {
    if (!trouble) trouble = clean_text(message, kMostOfAMessage);
  };
  Reader reader(path);
  const FileFacts facts = read_events(in, kMostEvents, fault, [&](const ParsedEvent& event) { reader.event(event); });
  if (!file.error().empty()) {
    throw ConfigError(fmt::format("{}: cannot be read to its end: {}.", path, file.error()));
  }
  if (trouble) throw ConfigError(fmt::format("{}: {}", path, *trouble));
  return reader.take(facts);
}

}  // namespace fsdpbench::trace
