// One rank of a job started by mpirun; ctest calls it.
//   mpi_session_main good   exchanges bytes in several groups, ends cleanly, and prints "all ranks are content"
//   mpi_session_main fail   rank 2 fails; rank 0 prints what it hears of that, from inside an exchange
//   mpi_session_main stopped   rank 2 is stopped before it comes; the others say so after 2 s
//   mpi_session_main join   joins, and prints why that was not possible
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "launch/control_channel.h"
#include "launch/run_ranks.h"
#include "launch/join.h"

namespace {

using namespace fsdpbench;
using launch::PeerGroup;

const std::function<bool()> kNeverStopped = [] { return false; };

void expect(bool holds, const char* what) {
  if (!holds) throw Error(fmt::format("not so: {}", what));
}

/// Everybody sends everybody else `count` numbers that say who sends to whom.
void exchange_all(PeerGroup& group, std::size_t count, int salt) {
  const int size = group.size();
  std::vector<std::vector<int>> out(static_cast<std::size_t>(size));
  std::vector<std::vector<int>> in(static_cast<std::size_t>(size));
  std::vector<PeerGroup::Send> sends;
  std::vector<PeerGroup::Receive> receives;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == group.rank()) continue;
    const auto p = static_cast<std::size_t>(peer);
    out[p].assign(count, salt + 100 * group.rank() + peer);
    in[p].assign(count, -1);
    sends.push_back({peer, std::as_bytes(std::span(out[p]))});
    receives.push_back({peer, std::as_writable_bytes(std::span(in[p]))});
  }
  group.exchange(sends, receives, kNeverStopped);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == group.rank()) continue;
    const std::vector<int> wanted(count, salt + 100 * peer + group.rank());
    expect(in[static_cast<std::size_t>(peer)] == wanted, "the bytes arrived");
  }
}

void good(launch::Session& session) {
  const int rank = session.placement().rank;
  const int ranks = session.placement().ranks;
  expect(session.control().rank() == rank && session.control().size() == ranks, "the control channel knows its rank");
  const auto all = launch::gather(session.control(), "numbers", std::to_string(rank));
  expect(rank != 0 || static_cast<int>(all.size()) == ranks, "rank 0 hears of everybody");
  const auto world = session.peers();
  const auto other = session.peers();
  expect(world->rank() == rank && world->size() == ranks, "the group of all knows its rank");
  for (const std::size_t count : {0, 1, 1000, 2'000'000}) exchange_all(*world, count, 0);

  const auto halves = world->split(rank % 2, -rank, kNeverStopped);
  expect(halves->size() == ranks / 2 && halves->rank() == (ranks - 1 - rank) / 2, "halves are ordered by key");
  exchange_all(*halves, 1000, 7);
  {
    std::jthread beside([&] {
      for (int i = 0; i < 20; ++i) exchange_all(*other, 5000, i);
    });
    for (int i = 0; i < 20; ++i) exchange_all(*halves, 5000, 1000 + i);
  }
  launch::barrier(session.control());
  if (rank == 0) fmt::print("all ranks are content with {}\n", session.transport());
}

void fail(launch::Session& session) {
  const int rank = session.placement().rank;
  const auto world = session.peers();
  if (rank == 2) {
    session.control().fail("rank 2 has had enough");
    return;
  }
  std::byte byte{};
  const PeerGroup::Receive receive{2, {&byte, 1}};
  try {
    world->exchange({}, {&receive, 1}, kNeverStopped);
  } catch (const launch::Stopped& e) {
    if (rank == 0) fmt::print("rank 0 heard: {}\n", e.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string_view what = argc > 1 ? argv[1] : "";
    const auto placement = launch::find_placement(launch::process_environment());
    if (!placement) throw Error("this is no job of several processes");
    if (what == "stopped" && placement->rank == 2) (void)raise(SIGSTOP);
    const auto session = launch::join(*placement, {.deadline_s = what == "stopped" ? 2.0 : 60.0, .version = "test"});
    if (what == "good") good(*session);
    if (what == "fail") fail(*session);
  } catch (const std::exception& e) {
    fmt::print("{}\n", e.what());
    return 1;
  }
  return 0;
}
