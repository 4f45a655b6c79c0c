#include "launch/mpi/check.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "launch/run_ranks.h"

namespace fsdpbench::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kYields = 100;
constexpr int kLooksPerTest = 16;
constexpr auto kShortestNap = std::chrono::microseconds(20);
constexpr auto kLongestNap = std::chrono::microseconds(500);
/// Of the time waited so far. A lane may wait for another rank's computation: looking all the time would take the
/// processor away from it where there are more lanes than processors.
constexpr int kNapShare = 16;

void nap(Clock::duration waited, bool large) {
  const Clock::duration longest = large ? kShortestNap : kLongestNap;
  std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / kNapShare, kShortestNap, longest));
}

void give_up(std::vector<MPI_Request>& requests) {
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    (void)MPI_Cancel(&request);
    (void)MPI_Request_free(&request);
  }
}

}  // namespace

void check_mpi(int result, std::string_view what) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int size = 0;
  (void)MPI_Error_string(result, text, &size);
  throw BackendError(fmt::format("MPI fails {}: {}", what, text));
}

std::vector<MPI_Status> wait_all(std::vector<MPI_Request>& requests, const ControlChannel& control,
                                 const std::function<bool()>& stopped, std::string_view what, bool large) {
  std::vector<MPI_Status> statuses(requests.size());
  const Clock::time_point begin = Clock::now();
  for (int round = 0;; ++round) {
    int done = 0;
    const int result = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data());
    if (result == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& status : statuses) {
        if (status.MPI_ERROR != MPI_ERR_PENDING) check_mpi(status.MPI_ERROR, what);
      }
    }
    check_mpi(result, what);
    if (done != 0) return statuses;
    if (stopped && stopped()) {
      give_up(requests);
      throw Stopped(fmt::format("rank {} was stopped", control.rank()));
    }
    if (round % kLooksPerTest == 0) {
      if (const std::optional<JobFailure> failure = control.failure()) {
        give_up(requests);
        throw Stopped(failure->message);
      }
    }
    if (round < kYields) {
      sched_yield();
    } else {
      nap(Clock::now() - begin, large);
    }
  }
}

}  // namespace fsdpbench::launch
