#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "foreign/job_trace.h"
#include "foreign/kineto_rows.h"
#include "foreign/xla_module.h"
#include "trace/event_reader.h"

namespace fsdpbench::foreign {

/// A file of jax.profiler: the rows of all devices of one process, and of its host. Each device becomes a
/// rank. Kernels know the instruction that they are of; the module, which an xplane.pb brings along, knows what that
/// instruction communicates, and with whom.
///
/// [Note: steps of a compiled program]
/// StepTraceAnnotation is around the dispatch of a step, which may end before its first kernel begins. So steps are
/// executions of the module that takes most of the time: each begins where an instruction is launched that every
/// execution has once, the first of those. The annotation's numbers are theirs where there is one for each execution,
/// or for each two, three …
class XlaRows {
 public:
  explicit XlaRows(bool functions) : functions_(functions) {}

  /// A row of HOST.trace.json.gz or perfetto_trace.json.gz; false: it is none, and no name of a track.
  bool json_event(const trace::ParsedEvent& event);
  /// The bytes of an xplane.pb; at most `most_events` rows of them. Throws ConfigError: they are none.
  void xspace(std::string_view bytes, std::int64_t most_events);

  bool empty() const { return device_.empty(); }
  /// The ranks of the process; after the last row.
  std::vector<RankRows> take();
  /// The Unix time at its time 0, if that is told.
  std::optional<std::int64_t> base_ns() const { return base_ns_; }

 private:
  static constexpr std::string_view kKernel = "kernel", kCopy = "gpu_memcpy", kFill = "gpu_memset";
  enum class Of : std::uint8_t { nothing, device, python, calls, thunks };  // a track of the file
  /// An instruction of a module that the file brings along.
  struct OpFacts {
    std::optional<HloCollective> collective;
    const HloModule* module = nullptr;
    std::string path;
  };
  struct Row {
    Of of = Of::nothing;
    std::int64_t device = 0, track = 0, begin_ns = 0, length_ns = 0;
    std::int64_t correlation = -1, bytes = -1, run = -1, step = -1;
    std::int32_t name = 0, op = -1, module = -1, path = -1;  // of names_
    std::string_view category = kKernel;
    const OpFacts* facts = nullptr;
  };
  using Stat = std::pair<std::string_view, trace::Value>;

  /// A row of a track, all but its times.
  static Row row_of(std::string_view plane, std::string_view line);
  void add(Row row, std::string_view name, const std::vector<Stat>& stats);
  void plane(std::string_view bytes, std::int64_t most_events);
  void add_module(std::string_view bytes);
  void device_event(const Row& row, std::int64_t id, KinetoRows& to, std::int64_t& world);
  std::string mark_steps(const std::vector<Row>& rows, KinetoRows& to);

  bool functions_, on_host_ = false;
  NameTable names_;
  std::vector<Row> device_, host_;
  std::set<std::int64_t> steps_;                                 // numbers of StepTraceAnnotation
  std::map<std::int64_t, std::string> planes_;                   // of JSON, by pid
  std::map<std::pair<std::int64_t, std::int64_t>, Row> tracks_;  // of JSON, by pid and tid
  std::map<std::string, HloModule, std::less<>> modules_;
  std::map<std::pair<std::string, std::string>, OpFacts> ops_;  // by module and instruction
  std::map<std::tuple<const HloModule*, std::int32_t, std::int64_t>, std::string> own_groups_;  // also by device
  std::unordered_map<std::int64_t, std::int64_t> launches_;                                     // by correlation
  std::vector<std::int64_t> jaxlib_;                                                            // its version
  std::optional<std::int64_t> base_ns_;
  std::string device_model_, trouble_;
  std::int64_t rows_ = 0;
};

}  // namespace fsdpbench::foreign
