#include "foreign/host_work_rows.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "foreign/collective_use.h"
#include "foreign/kineto_names.h"

namespace fsdpbench::foreign {
namespace {

class HostWorkRows {
 public:
  explicit HostWorkRows(RankRows& rows) : rows_(rows) {
    for (const std::string& name : rows.names) {
      range_.push_back(is_range_of_collective(name));
      work_.push_back(work_of_op(name));
      call_.push_back(communication_of_op(name));
    }
  }

  void add() {
    std::vector<bool> covered(rows_.host.size());  // an op around it is a row already
    for (std::size_t i = 0; i < rows_.host.size(); ++i) {
      const HostRow& row = rows_.host[i];
      const auto name = static_cast<std::size_t>(row.name);
      covered[i] = row.parent >= 0 && covered[static_cast<std::size_t>(row.parent)];
      if (range_[name]) {
        collective(row);
      } else if (row.kind == HostWork::op && call_[name]) {
        calls_.push_back({static_cast<std::int32_t>(i), *call_[name]});
      } else if (row.kind == HostWork::op && work_[name] && !covered[i]) {
        covered[i] = true;
        device_row(row, *work_[name], stream(row.thread)).launch = static_cast<std::int32_t>(i);
      }
    }
  }

 private:
  struct Call {
    std::int32_t row = -1;
    Communication kind = Communication::other;
  };

  /// A range of the communicator's threads, which take calls in the order of issue. What was called is what is meant:
  /// gloo scatters reductions by all-reduces.
  void collective(const HostRow& row) {
    CollectiveFacts facts;
    facts.kind = communication_of_call(rows_.names[static_cast<std::size_t>(row.name)]).value_or(Communication::other);
    const auto call = std::ranges::find_if(calls_, [&](const Call& c) {
      return c.kind == facts.kind ||
             (c.kind == Communication::reduce_scatter && facts.kind == Communication::all_reduce);
    });
    DeviceRow& made = device_row(row, Activity::collective, communicator());
    if (row.collective >= 0) facts = rows_.collectives[static_cast<std::size_t>(row.collective)];
    if (call != calls_.end()) {
      made.launch = call->row;
      if (const std::int32_t told = rows_.host[static_cast<std::size_t>(call->row)].collective; told >= 0) {
        const std::string dtype = std::move(facts.dtype);  // a call with lists of tensors does not tell it
        facts = rows_.collectives[static_cast<std::size_t>(told)];
        if (bytes_of_dtype(facts.dtype) == 0) facts.dtype = dtype;
      }
      facts.kind = call->kind;
      calls_.erase(call);
    }
    // Where the job has one group, it is that one's.
    if (facts.group < 0 && rows_.groups.size() == 1 && rows_.groups.front().size > 1) facts.group = 0;
    if (facts.elements_out < 0 && facts.elements_in > 0 && facts.group >= 0 &&
        facts.kind == Communication::all_gather) {
      facts.elements_out = facts.elements_in * rows_.groups.front().size;
    }
    made.collective = static_cast<std::int32_t>(rows_.collectives.size());
    rows_.collectives.push_back(facts);
  }

  DeviceRow& device_row(const HostRow& row, Activity kind, std::int32_t stream) {
    DeviceRow made;
    made.begin_ns = row.begin_ns;
    made.end_ns = row.end_ns;
    made.stream = stream;
    made.name = row.name;
    made.kind = kind;
    return rows_.device.emplace_back(made);
  }

  std::int32_t stream(std::int32_t thread) {
    if (streams_.size() <= static_cast<std::size_t>(thread)) streams_.resize(static_cast<std::size_t>(thread) + 1, -1);
    std::int32_t& known = streams_[static_cast<std::size_t>(thread)];
    if (known < 0) {
      known = static_cast<std::int32_t>(rows_.streams.size());
      rows_.streams.push_back({RankRows::kHostDevice, rows_.threads[static_cast<std::size_t>(thread)]});
    }
    return known;
  }

  std::int32_t communicator() {
    if (communicator_ < 0) {
      communicator_ = static_cast<std::int32_t>(rows_.streams.size());
      rows_.streams.push_back({RankRows::kHostDevice, 0});
    }
    return communicator_;
  }

  RankRows& rows_;
  std::vector<bool> range_;  // by name, as are the next two
  std::vector<std::optional<Activity>> work_;
  std::vector<std::optional<Communication>> call_;  // "c10d::allgather_"
  std::deque<Call> calls_;                          // in order of issue, those without a range yet
  std::vector<std::int32_t> streams_;               // by thread
  std::int32_t communicator_ = -1;
};

}  // namespace

void add_host_work(RankRows& rows) { HostWorkRows(rows).add(); }

}  // namespace fsdpbench::foreign
