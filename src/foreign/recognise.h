#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/words/words.h"
#include "foreign/checkpointing.h"
#include "foreign/collective_use.h"
#include "foreign/job_kind.h"
#include "foreign/job_steps.h"
#include "foreign/job_trace.h"
#include "foreign/match_schedule.h"

namespace fsdpbench::foreign {

struct RecognisedRank {
  JobSteps cut;
  std::vector<std::vector<CollectiveUse>> uses;  ///< by step
  std::vector<StreamRole> streams;               ///< as RankRows::streams
  int compute_stream = -1;
  std::set<std::int32_t> serialised;  ///< find_serialised()
};

/// A host that waits for the whole device, or a stream of it, within forward or backward.
struct HostSync {
  int rank = 0;  ///< place
  std::size_t step = 0;
  std::int32_t row = -1;  ///< into RankRows::host
  std::string where;      ///< "forward, after AG3"
};

struct Recognition {
  JobKind kind = JobKind::unknown;
  std::string name;                         ///< "PyTorch FSDP2 (fully_shard)"
  const dialects::Words* engine = nullptr;  ///< whose words the program is set in; null: nothing tells
  std::vector<Finding> findings;
  std::vector<std::string> unknown;  ///< what nothing tells, a sentence each
  UnitTable table;
  TrainingFacts facts;
  bool mesh_told = false;                 ///< else facts has the job's ranks as shards
  bool backward_mesh_told = false;        ///< the sizes of groups in which backward gathers
  std::vector<RecognisedRank> ranks;      ///< as JobTrace::ranks
  std::size_t reference_step = 0;         ///< of the first rank: the one that recognition looked at
  std::optional<ScheduleMatch> schedule;  ///< of sharded jobs
  std::vector<HostSync> syncs;            ///< of the reference step of the first rank; of sharded jobs and experts

  const Finding* find(std::string_view what) const;
  bool shards = false;  ///< parameters are gathered for forward and gradients reduced, whatever else the job does
  bool is_fsdp() const { return kind == JobKind::sharded; }
};

/// Pure function of the rows; nothing is known beforehand.
Recognition recognise(const JobTrace& job);

}  // namespace fsdpbench::foreign
