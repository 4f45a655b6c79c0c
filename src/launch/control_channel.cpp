#include "launch/control_channel.h"

namespace fsdpbench::launch {

ExitCode job_code(const std::exception_ptr& failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const ConfigError& error) {
    return error.code();
  } catch (...) {  // whatever it is, a rank has failed
  }
  return ExitCode::rank_failed;
}

std::vector<std::string> gather(ControlChannel& channel, std::string_view topic, std::string mine) {
  if (channel.rank() != 0) {
    channel.send(0, topic, std::move(mine));
    return {};
  }
  std::vector<std::string> all{std::move(mine)};
  for (int rank = 1; rank < channel.size(); ++rank) all.push_back(channel.receive(rank, topic));
  return all;
}

std::string broadcast(ControlChannel& channel, std::string_view topic, std::string from_root) {
  if (channel.rank() != 0) return channel.receive(0, topic);
  for (int rank = 1; rank < channel.size(); ++rank) channel.send(rank, topic, from_root);
  return from_root;
}

void barrier(ControlChannel& channel) {
  (void)gather(channel, "barrier", {});
  (void)broadcast(channel, "barrier", {});
}

}  // namespace fsdpbench::launch
