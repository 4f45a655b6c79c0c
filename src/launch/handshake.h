#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/frame.h"
#include "launch/socket.h"

namespace fsdpbench::launch {

/// What a process says of itself when it joins.
struct Introduction {
  std::string job;      ///< empty: not known
  std::string version;  ///< of the program
  std::string token;    ///< of this very start of rank 0; empty: not known
  int rank = 0;
  int ranks = 1;
  std::string host;
  long pid = 0;
};

/// One process of the job.
struct Member {
  std::string host;
  long pid = 0;
  std::string address;  ///< numeric, as rank 0 sees it; empty: it is on rank 0's host
};
/// "rank 2 (host node7, pid 4711)".
std::string describe(int rank, const Member& member);

/// A control connection. Bytes may have been read beyond the handshake.
struct Link {
  Socket socket;
  FrameReader reader;
};

/// The outcome of joining, the same on all ranks except for the links.
struct Joined {
  std::vector<Member> members;  ///< by rank
  std::string token;            ///< random, the same for all processes of this start
  std::vector<Link> links;      ///< at rank 0 by rank, the first without a socket; elsewhere one, to rank 0
};

/// The process at the other end does not take this one in, and trying again would not help.
class Refused : public BackendError {
 public:
  using BackendError::BackendError;
};

/// Rank 0: takes in all others. `self.token` is made up if it is empty. Throws BackendError that names the missing
/// ranks when `deadline` has passed, and at once if two processes contradict each other; whoever has joined by then is
/// told the same.
Joined take_in_all(Socket listener, Introduction self, Deadline deadline);

/// Another rank: connects to rank 0 and waits to be taken in. Nothing, with the reason, if there is no rank 0 of this
/// job's at `host`:`port` so far. Throws Refused if there is one, and the job cannot come to be, and, where there is no
/// token to look for, if it is another job's.
std::optional<Joined> ask_to_join(const std::string& host, int port, const Introduction& self, Deadline deadline,
                                  std::string& reason);

}  // namespace fsdpbench::launch
