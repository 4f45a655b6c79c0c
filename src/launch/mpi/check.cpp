#include "launch/mpi/check.h"

#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "launch/run_ranks.h"

namespace fsdpbench::launch {
namespace {

constexpr int kYields = 2000;  // then it takes longer anyway
constexpr int kLooksPerTest = 16;
constexpr auto kNap = std::chrono::microseconds(20);

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
                                 const std::function<bool()>& stopped, std::string_view what) {
  std::vector<MPI_Status> statuses(requests.size());
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
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace fsdpbench::launch
