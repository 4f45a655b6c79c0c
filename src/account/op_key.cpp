#include "account/op_key.h"

#include <map>

namespace fsdpbench::account {

std::vector<OpKey> op_keys(const schedule::Schedule& schedule) {
  std::vector<OpKey> keys;
  std::map<OpKey, int> seen;
  for (const schedule::Op& op : schedule.ops) {
    OpKey key{op.kind, op.group(), op.phase, op.unit, op.module, op.micro, op.prefetch, 0};
    key.occurrence = seen[key]++;
    keys.push_back(key);
  }
  return keys;
}

}  // namespace fsdpbench::account
