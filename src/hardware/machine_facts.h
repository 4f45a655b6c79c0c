#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hardware/other_work.h"

namespace fsdpbench::app {

/// Facts of this machine that need no measuring. What is absent says so in a sentence.
struct MachineFacts {
  std::string cpu;  ///< model name
  int cores = 0;    ///< physical
  int threads = 0;  ///< hardware threads this process may use
  int sockets = 0;
  int numa_nodes = 0;
  std::int64_t l3_bytes = 0;  ///< one L3 cache; 0 if there is none
  std::int64_t memory_bytes = 0;
  AvailableMemory available;
  std::int64_t disk_free_bytes = 0;  ///< where the command was started
  std::string kernel;
  std::vector<std::string> gpus;
  std::string cuda_driver;
  std::string realtime;  ///< whether SCHED_FIFO is allowed
  std::vector<std::pair<std::string, std::string>> libraries;
};

MachineFacts machine_facts();

}  // namespace fsdpbench::app
