#include "accept/collectives/rank_meeting.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace fsdpbench::app {
namespace {

constexpr std::string_view kMeetingTopic = "collectives.meeting";

std::string bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

std::vector<double> values_of(const std::string& bytes) {
  if (bytes.size() % sizeof(double) != 0) throw BackendError("a rank sent something else than measured values");
  std::vector<double> values(bytes.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

RankMeeting::RankMeeting(int ranks, launch::Session* session)
    : session_(session), slots_(session == nullptr ? static_cast<std::size_t>(ranks) : 0) {}

std::vector<std::string> RankMeeting::gather(backend::RankContext& context, std::string mine) {
  if (session_ != nullptr) return launch::gather(session_->control(), kMeetingTopic, std::move(mine));
  slots_[static_cast<std::size_t>(context.rank)] = std::move(mine);
  context.world.barrier();
  std::vector<std::string> all;
  if (context.rank == 0) all = slots_;
  context.world.barrier();  // only now may the slots be written again
  return all;
}

std::vector<std::vector<double>> RankMeeting::gather(backend::RankContext& context, std::vector<double> mine) {
  std::vector<std::vector<double>> all;
  for (const std::string& bytes : gather(context, bytes_of(mine))) all.push_back(values_of(bytes));
  return all;
}

std::vector<double> RankMeeting::broadcast(backend::RankContext& context, std::vector<double> from_root) {
  if (session_ != nullptr) {
    return values_of(launch::broadcast(session_->control(), kMeetingTopic, bytes_of(from_root)));
  }
  if (context.rank == 0) slots_.front() = bytes_of(from_root);
  context.world.barrier();
  std::vector<double> values = values_of(slots_.front());
  context.world.barrier();
  return values;
}

}  // namespace fsdpbench::app
