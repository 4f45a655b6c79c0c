#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clock/caching_allocator.h"
#include "clock/forecast.h"
#include "clock/op_times.h"
#include "config/run_config.h"
#include "engine/byte_dataset.h"
#include "engine/checkpoint.h"
#include "engine/setup.h"
#include "launch/placement.h"

namespace fsdpbench::app {

/// Basis of a simulation's op times.
struct OpTimesBasis {
  std::string from;                               ///< "given rates", "published rates", "the calibration of …"
  std::optional<clock::Uncertainty> uncertainty;  ///< absent: rates were given, and nothing is in doubt
};

/// A GPU as its cluster file describes it.
struct SimulatedGpu {
  std::int64_t memory_bytes = 0;
  double peak_tflops = 0;  ///< dense, of products in the dtype that the training multiplies in
};

/// One configuration that can run: valid, everything about it decided, its memory there, its data open.
struct Cell {
  engine::Setup setup;
  std::vector<std::string> notes;              ///< of config::validate(): settings that have no effect or were replaced
  std::unique_ptr<engine::ByteDataset> data;   ///< null if the cell is simulated
  std::unique_ptr<engine::Checkpoint> resume;  ///< what the training goes on with; null: it begins
  clock::OpTimes times;                        ///< of a cell that is simulated, before anything is drawn
  OpTimesBasis basis;                          ///< of these
  std::optional<SimulatedGpu> gpu;             ///< of a cell that is simulated on a cluster
  /// Likewise: what PyTorch's allocator would show there of rank 0, at `times`.
  std::optional<clock::CachingAllocator::Statistics> caching_allocator;
  /// It fits, but PyTorch's allocator has no room to spare: what it then does takes time that nothing here predicts.
  bool near_memory_limit = false;
};

/// As config::load_profile, but in a job of processes (`placement`; null: none) mesh.ranks is their number. Throws
/// ConfigError if an override asks for another number; what a profile says only gives way, with a note on the console.
/// `notes`: as load_profile's.
config::RunConfig load_config(const std::string& profile, const std::vector<std::string>& overrides,
                              const launch::Placement* placement, std::vector<std::string>* notes = nullptr);

/// Makes `config` ready to run. Throws ConfigError if the configuration or its data is wrong, ResourceError if the
/// memory of this machine will not suffice for the ranks on it: `local_ranks`, 0 for all.
Cell open_cell(config::RunConfig config, int local_ranks = 0);

/// The project's own sources and docs, or where they are not installed, its profiles: what a cell trains on when
/// data.path is not set.
std::filesystem::path default_data_path();

}  // namespace fsdpbench::app
