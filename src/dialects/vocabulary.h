#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields.h"
#include "config/run_config.h"
#include "dialects/template.h"
#include "plan/plan.h"

namespace fsdpbench::dialects {

/// Values that rules and templates see.
struct ExportSource {
  const config::RunConfig& config;     ///< valid, its mesh filled in
  const config::RunConfig& reference;  ///< its [fsdp] is what the system does unless told otherwise
  const plan::Plan* plan;              ///< null where the reference is still to be chosen
  std::span<const std::string> notes;  ///< lines for the head of each file
  bool traced = false;                 ///< traces of a job are all that is known: its batch is made up
};

/// The keys that another system could have a word for: of the mesh, the training, the sharding and NCCL. Not among them
/// is what only a measurement needs (train.steps, train.warmup …).
std::span<const config::Field* const> exported_fields();

/// Names for every system's file: a key ("fsdp.wrap"); its mode, which is its value up to a colon ("blocks"; a
/// number's is "number"), or its count, the number behind that; the same of the reference ("theirs.fsdp.wrap"); and
/// what has to be computed, as the list in vocabulary.cpp has it. Nothing: no such name.
Expression find_word(std::string_view name);

/// 1, 1, 1, 2, 0 as Python: "[1] * 3 + [2, 0]".
std::string python_runs(const std::vector<int>& counts);

}  // namespace fsdpbench::dialects
