#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/enum_table.h"

namespace fsdpbench::account {

/// Reason for which computation was not running, in a run of ours or another program's trace. kCauses explains each.
enum class Cause : std::uint8_t {
  step_boundary,
  link_bound,
  inefficient_collective,
  late_prefetch,
  all_gather_limit,
  reduce_scatter_buffers,
  communicator_serialisation,
  contention,
  straggler,
  host_sync,
  host_bound,
  copy,
  pcie,
  host_update,
  slow_link,
  tensor_group,
  expert_exchange,
  expert_imbalance,
  cores_busy,
  slow_transfer,
  serialised,
  data_loading,
  unknown,
};
inline constexpr std::size_t kCauseCount = kEnumCount<Cause>;

/// All that is said about a cause, whoever asks.
struct CauseFacts {
  std::string_view name;      ///< in files, tables and timelines
  std::string_view meaning;   ///< "computation did not run because …"
  std::string_view without;   ///< "without … the step would take less"
  std::string_view advice;    ///< what can be done, beside turning one knob; {} is where a program's own settings go
  std::string_view settings;  ///< those of this program: "train.accumulate, train.batch_per_rank"; may be empty
  bool liftable = false;      ///< one setting, or mending one rank, takes all of it away
};

/// The one table of causes: docs/causes.md prints it, which a test compares.
inline constexpr EnumTable<Cause, CauseFacts> kCauses{
    CauseFacts{"step_boundary", "the first gathers and last reductions of a step have nothing beside them",
               "transfers at the start and end of the step, which no computation can hide,",
               "more work a step{} makes them a smaller share", "train.accumulate, train.batch_per_rank"},
    CauseFacts{"link_bound",
               "transfers take longer than the computation beside them, and started as early as they could",
               "the time that bytes take on the link",
               "longer computation{}, smaller messages or a faster link hide it", "train.batch_per_rank"},
    CauseFacts{"inefficient_collective", "the same, but most of the transfer is latency: messages are too small",
               "the latency of the link", "fewer, larger messages{} pay it less often", "fsdp.wrap"},
    CauseFacts{"late_prefetch", "the gather was issued later than it could have been", "gathers issued late",
               "let them be prefetched{}", "", true},
    CauseFacts{"all_gather_limit", "the gather waited for memory that the all-gather limit rations",
               "the all-gather limit", "a higher limit{} costs memory", "fsdp.all_gather_limit", true},
    CauseFacts{"reduce_scatter_buffers", "computation waited for a reduction to give its input buffer back",
               "waits for reduce-scatter inputs", "more buffers{} cost memory", "", true},
    CauseFacts{"communicator_serialisation", "the collective stood behind one of another kind on its communicator",
               "waits for collectives of another kind", "a communicator of their own{} lets them run together", "",
               true},
    CauseFacts{"contention", "the transfer shared its link with another one", "transfers sharing their link",
               "one communicator{} lets the more urgent go first", ""},
    CauseFacts{"straggler", "the collective waited for a late rank, which is named", "the lateness of its late rank",
               "look at that rank", "", true},
    CauseFacts{"host_sync", "the host had waited for the device", "the host's waits for the device", "find the sync{}",
               "", true},
    CauseFacts{"host_bound", "the host issued the op late without having been blocked, or took long to issue it",
               "the host's time to issue ops", "fewer, larger ops{} or a faster host", "fsdp.wrap"},
    CauseFacts{"copy", "a copy-in, a copy-out or a cast stood in the way", "copies in and out of communication buffers",
               "the flat layout{} needs none", "fsdp.layout=flat"},
    CauseFacts{"pcie", "a copy between the memories of device and host stood in the way",
               "copies between device and host memory",
               "longer computation{}, microbatches without sync or state on the device hide or spare them",
               "train.batch_per_rank"},
    CauseFacts{"host_update", "the host updated what is in its memory, and the device had nothing else to do",
               "the host's update of what lies in its memory",
               "more work a step{} makes it a smaller share; on the device it is faster", "train.accumulate"},
    CauseFacts{"slow_link", "the transfer went on over one rank's link, which is named, when all others' were done",
               "the slowness of one rank's link", "look at that link", ""},
    CauseFacts{"tensor_group",
               "ranks that split a layer exchanged what they have of its result, or those that split sequences keys "
               "and values",
               "the exchanges of ranks that split layers or sequences",
               "fewer of them{}, or all of them on one node, exchange less or faster", "mesh.tensor, mesh.context"},
    CauseFacts{
        "expert_exchange", "rows went to the ranks that have their experts, or came back",
        "the exchanges of rows between ranks that split experts",
        "fewer of these ranks{}, all of them on one node, or rows that are spread evenly exchange less or faster",
        "mesh.expert"},
    CauseFacts{"expert_imbalance",
               "the same rows took longer to go because more of them went to one rank than to the others",
               "the rows that the busiest ranks of experts have beyond the mean,",
               "a router that spreads rows evenly{}, by a larger auxiliary loss or a bias per expert, takes it away",
               "", true},
    CauseFacts{"cores_busy", "a lane had all it needed but a core: more threads wanted to run than there are cores",
               "waits for a core", "fewer ranks or threads on a machine, or more cores, let lanes begin at once", ""},
    CauseFacts{"slow_transfer", "the transfer took a quarter longer than others of its kind and size",
               "transfers that take longer than others of their kind and size",
               "look at the links, and at what else uses them", ""},
    CauseFacts{
        "serialised",
        "computation had been launched and needed nothing of the reduction, yet began only when it was over, as "
        "always in this job",
        "computation that waits for reductions it does not need",
        "more hardware queues (CUDA_DEVICE_MAX_CONNECTIONS unset, or 8 to 32 where it is 1) or a stream of their "
        "own for reductions{} lets them run together",
        "", true},
    CauseFacts{"data_loading", "a data loader was running, and nothing else", "waits for a batch",
               "let the loader work ahead{}", ""},
    CauseFacts{"unknown", "none of these could be shown", "the late starts of lanes",
               "waking up threads on busy cores is the usual suspect", ""},
};

constexpr std::string_view to_string(Cause cause) { return kCauses[cause].name; }
/// The cause of that name in a file, however old; nothing if there is none.
std::optional<Cause> cause_named(std::string_view name);

/// Advice about a cause, with `settings` ("train.accumulate") where they are given, without its full stop.
std::string advice_with(Cause cause, std::string_view settings);

}  // namespace fsdpbench::account
