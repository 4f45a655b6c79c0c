#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/words/words.h"
#include "foreign/collective_use.h"
#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

/// Names in a job's rows that tell which program wrote them; each is the first name found, empty if none was.
struct JobWords {
  std::map<const dialects::Words*, std::string> engines;  ///< of those found in dialects::words_in_traces()
  std::string backward, optimizer, serving;
  std::string layout_copy, quantized;
  std::string embeddings;     ///< tables of a recommendation model, split over ranks
  std::string amd;            ///< what told that the device is AMD's
  std::string limiter;        ///< around a wait of an all-gather limit
  bool runtime_rows = false;  ///< calls of the runtime are in the trace, so waits of the host would be
};

/// Looks at all ranks.
JobWords find_job_words(const JobTrace& job);

/// Kind of job that a trace is of.
enum class JobKind : std::uint8_t {
  sharded,            ///< parameters are gathered for forward, gradients reduced into shards: FSDP, ZeRO-3
  sharded_optimizer,  ///< gradients reduced, updated parameters gathered after the optimizer: ZeRO-1 and 2
  data_parallel,      ///< gradients are all-reduced: DDP, no_shard
  experts,            ///< tokens are exchanged in forward: mixture of experts
  model_parallel,     ///< activations are reduced within layers, or sent from stage to stage
  inference,          ///< no backward, no gradients
  single,             ///< no collectives
  unknown,
};
std::string_view to_string(JobKind kind);

/// Numbers of collectives of a step by purpose and time.
struct PurposeCounts {
  std::map<std::pair<Purpose, schedule::Phase>, int> n;
  int of(Purpose purpose) const {
    int sum = 0;
    for (const auto& [key, count] : n) sum += key.first == purpose ? count : 0;
    return sum;
  }
  int of(Purpose purpose, schedule::Phase phase) const {
    const auto found = n.find({purpose, phase});
    return found == n.end() ? 0 : found->second;
  }
};

/// "of a step's collectives 33 gather parameters in forward, 32 in backward, 33 reduce gradients"
std::string what_they_do(const PurposeCounts& counts);
/// Whether parameters are gathered before the optimizer, and gradients reduced: FSDP or ZeRO-3, perhaps with more.
bool shards_parameters(const PurposeCounts& counts);
/// `all_equal`: all reductions of gradients are of one size. `collectives`: of a step, without scalars. `several`:
/// ranks.
JobKind kind_of(const PurposeCounts& counts, const JobWords& words, bool all_equal, int collectives, bool several);
/// The program, as its names tell: "PyTorch FSDP2 (fully_shard)", and the engine that it is of; null: no name says.
struct Program {
  std::string name;
  const dialects::Words* engine = nullptr;
  bool shards = false;  ///< it does, by its name alone: no gather of parameters is in the trace
};
Program program_of(const JobWords& words, JobKind kind, const UnitTable& table);
/// Presets that may be meant, the likeliest first. `engine`: null: not known.
std::vector<std::string> likely_presets(const dialects::Words* engine, const JobWords& words, bool experts);

}  // namespace fsdpbench::foreign
