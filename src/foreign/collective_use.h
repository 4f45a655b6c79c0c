#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/host_words.h"
#include "foreign/job_steps.h"
#include "foreign/job_trace.h"
#include "schedule/op.h"

namespace fsdpbench::foreign {

/// Purpose of a collective.
enum class Purpose : std::uint8_t {
  parameters,   ///< gathers a unit's parameters
  gradients,    ///< reduces a unit's gradients
  replicas,     ///< reduces shards of gradients across replicas (hybrid sharding)
  activations,  ///< tensor or sequence parallel: within forward and backward of layers
  experts,      ///< tokens to experts and back
  scalars,      ///< a norm, a loss, a flag: a few elements
  pipeline,     ///< activations from stage to stage
  unknown,
};
std::string_view to_string(Purpose purpose);

/// One collective of a step.
struct CollectiveUse {
  std::int32_t row = -1;  ///< into RankRows::device
  Communication kind = Communication::other;
  std::int64_t elements = -1;  ///< of the whole message: what is gathered, or what is reduced; -1: not told
  std::int64_t bytes = -1;     ///< the same
  std::int32_t group = -1;     ///< into RankRows::groups
  Purpose purpose = Purpose::unknown;
  schedule::Phase phase = schedule::Phase::forward;
  int micro = 0;          ///< microbatch
  int unit = -1;          ///< into UnitTable::units; -1: none
  bool prefetch = false;  ///< an annotation, or this program's own name, says so
};

/// Parameters that are gathered and reduced together, in the order of forward.
struct FoundUnit {
  std::string label;           ///< the annotation's, or its place: "3"; "root"
  std::int64_t elements = -1;  ///< with padding
  std::int64_t bytes = -1;     ///< as gathered
  std::int64_t ranks = 0;      ///< that gather it in forward; 0: not told
  int experts_of = -1;  ///< into UnitTable::units: whose experts these are, on a group of their own; -1: no one's
};

/// Source of the units of collectives.
enum class UnitSource : std::uint8_t { own_names, annotations, order };

struct UnitTable {
  std::vector<FoundUnit> units;
  UnitSource source = UnitSource::order;
  bool of_gathers = true;  ///< else nothing is gathered in forward, and reductions name them, in their own order
  int root = -1;           ///< into units: what other units do not hold; -1: there is none, or nothing tells
  /// A unit was gathered twice in one forward, and nothing tells its parts apart: sizes and groups are not known.
  bool mixes_parts = false;

  bool is_experts(int unit) const { return unit >= 0 && units[unit].experts_of >= 0; }
  /// Units that are experts of others.
  int experts() const;
};

/// The part of a step that row `row` of the device belongs to, by annotations and threads of the host, else by its own
/// name; nothing where neither tells.
std::optional<schedule::Phase> phase_of_row(const RankRows& rank, const HostWords& words, std::int32_t row);

/// Ranks of the group of a collective, else how many times what a rank gives is gathered; 0: not told.
std::int64_t gathering_ranks(const RankRows& rank, const CollectiveUse& use);

/// The collectives of one step of one rank in the order of their launches, with phase and purpose; no units yet.
std::vector<CollectiveUse> find_collectives(const RankRows& rank, const JobStep& step, const HostWords& words);

/// Times that forward computed after backward, in a step, as far as threads of autograd tell: one less than its
/// microbatches, without what no backward follows. `before`: gets how often that was before each of `uses`, which are
/// in the order of their launches.
int count_passes(const RankRows& rank, const JobStep& step, const HostWords& words,
                 const std::vector<CollectiveUse>& uses, std::vector<int>* before = nullptr);

/// Gives each collective for parameters, gradients and replicas its unit. The first call fills an empty `table`; later
/// ones, of other steps and ranks, use it.
///
/// [Note: units without names]
/// Gathers of forward name the units: each is another one. Backward goes the other way round, so what is gathered again
/// is the nearest unit before the last one that has as many elements; what is reduced likewise, or so many neighbours
/// as add up to it (a bucket).
///
/// [Note: experts under the name of their block]
/// FSDP2 names a parameter group by its module, so that a block's experts, which are split over fewer ranks, have the
/// block's name. Where two groups of ranks gather under one name in forward, the smaller has the experts. What is
/// gathered again, or reduced, belongs to the part that has as many elements, else to that on as many ranks.
void assign_units(const RankRows& rank, const HostWords& words, std::vector<CollectiveUse>& uses, UnitTable& table);

/// Bytes of an element of `dtype` as c10 names it; 0: not known.
int bytes_of_dtype(std::string_view dtype);

}  // namespace fsdpbench::foreign
