#include "account/needed_by.h"

#include <algorithm>

#include "account/step_breakdown.h"

namespace fsdpbench::account {

std::vector<int> needed_by(const schedule::Schedule& schedule) {
  std::vector<int> readers(schedule.ops.size(), -1);
  std::vector<std::vector<int>> from(schedule.buffers.size());  // collectives whose data a buffer holds, as yet unread
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const schedule::Op& op = schedule.ops[i];
    const OpClass op_class = classify(op);
    const schedule::Operands operands = op.operands();
    std::vector<int> read;
    for (const schedule::BufferId id : operands.reads) {
      std::vector<int>& waiting = from[static_cast<std::size_t>(id)];
      std::erase_if(waiting, [&](int collective) { return readers[static_cast<std::size_t>(collective)] >= 0; });
      read.insert(read.end(), waiting.begin(), waiting.end());
    }
    if (op_class == OpClass::copy) {  // passes on what it read
      for (const schedule::BufferId id : operands.writes) {
        std::vector<int>& written = from[static_cast<std::size_t>(id)];
        for (const int collective : read) {
          if (std::ranges::find(written, collective) == written.end()) written.push_back(collective);
        }
      }
      continue;
    }
    for (const int collective : read) readers[static_cast<std::size_t>(collective)] = static_cast<int>(i);
    if (!op.is_collective()) continue;
    for (const schedule::BufferId id : operands.writes) from[static_cast<std::size_t>(id)] = {static_cast<int>(i)};
  }
  return readers;
}

}  // namespace fsdpbench::account
