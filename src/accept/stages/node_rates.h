#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accept/blame_devices.h"
#include "accept/verdict.h"
#include "config/acceptance.h"

namespace fsdpbench::app {

/// What nodes carry beside the fabric, all ranks at once. Rounds are [round][rank].
struct NodeRates {
  std::string unknown_because;      ///< why none of it was asked for, without a full stop; empty: it was
  bool has_gpus = false;            ///< else there are neither copies to and from devices nor launches
  accept::DeviceRounds host_copy;   ///< bytes read and written a second by the processors
  accept::DeviceRounds to_device;   ///< bytes a second, from page-locked memory of the host
  accept::DeviceRounds from_device;  ///< likewise, to it
  accept::DeviceRounds launch_us;    ///< from the launch of a kernel with next to no work until the host knows its end
};

/// Each rank is compared with the profile's reference by itself, because one bad host of sixty is no matter for their
/// median: those that do not pass are named; if none reaches it, or all do, one judgement is of all. Without a
/// reference a figure is unrated. What could not be measured is unrated, with the reason, and inconclusive where the
/// profile has a reference for it.
std::vector<accept::Judgement> judge_node_rates(const config::Acceptance& wanted, const NodeRates& rates,
                                                const std::vector<std::string>& hosts);

}  // namespace fsdpbench::app
