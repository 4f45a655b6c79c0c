#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/frame.h"
#include "launch/secret.h"
#include "launch/socket.h"

namespace fsdpbench::launch {

/// What a process says of itself when it joins.
struct Introduction {
  std::string job;      ///< empty: not known
  std::string version;  ///< of the program
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
struct ControlLink {
  Socket socket;
  FrameReader reader;
};

/// The outcome of joining, the same on all ranks except for the links.
struct Joined {
  std::vector<Member> members;     ///< by rank
  std::string token;               ///< made of the secret, for this start of the job alone
  std::vector<ControlLink> links;  ///< at rank 0 by rank, the first without a socket; elsewhere one, to rank 0
  std::string door;                ///< for people, at rank 0: where it listened
};

/// The process at the other end has the secret of this job and does not take this one in; trying again would not help.
class Refused : public BackendError {
 public:
  using BackendError::BackendError;
};

// [Note: who is let in]
// Whoever reaches rank 0's port is a guest. Rank 0 sends it a challenge; its hello begins with a proof (secret.h) over
// that challenge, a nonce of its own and all that follows, and nothing else of it is read before the proof is right.
// Rank 0's answer carries a proof over the same two nonces. So a stranger costs no more than its own connection: it has
// kGuestSeconds and kMostGuestBytes, of kMostGuests guests the one that has said nothing for longest makes room, and
// only a process that has the secret can make a job fail. What follows the handshake is neither encrypted nor signed: a
// network on which others can change packets under way is not safe for this (docs/launch.md).
constexpr double kGuestSeconds = 5;
constexpr std::size_t kMostGuests = 128;

/// Rank 0: takes in all others that prove `secret`. Throws BackendError that names the missing ranks when `deadline`
/// has passed, and at once if two processes of the job contradict each other; whoever has joined by then is told the
/// same.
Joined take_in_all(Socket listener, const Introduction& self, const Secret& secret, Deadline deadline);

/// Another rank: connects to rank 0 and waits to be taken in. Nothing, with the reason, if there is no rank 0 that has
/// `secret` at `host`:`port` so far. Throws Refused if there is one, and the job cannot come to be.
std::optional<Joined> ask_to_join(const std::string& host, int port, const Introduction& self, const Secret& secret,
                                  Deadline deadline, std::string& reason);

}  // namespace fsdpbench::launch
