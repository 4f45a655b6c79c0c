#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench::watch {

/// In the order of what is said first.
enum class Verdict : std::uint8_t { mismatch, hang, silent, late_rank, slow_communicator, gpu, unknown, clean };
/// "mismatch", "hang", "silent", "late rank", "slow communicator", "GPU trouble", "unknown", "clean"
std::string_view to_string(Verdict verdict);

/// One thing that is wrong, with what it rests on.
struct Accusation {
  Verdict verdict = Verdict::unknown;
  std::vector<int> ranks{};    ///< who did it; empty: nobody is named
  std::string communicator{};  ///< empty: it is about no single one
  std::int64_t sequence = -1;  ///< of the collective; -1: of none
  std::int64_t since_ns = -1;  ///< Unix time; -1: not known
  double share = 0;            ///< late rank: of the time, that the others wait for it
  double share_low = 0, share_high = 0;
  std::string host{}, gpu{};  ///< GPU trouble: "node-2", "GPU 3"
  std::string trouble{};      ///< "throttled", "Xid 79", "idle", "NVLink errors"
  std::string sentence{};
};

struct JudgeOptions {
  std::int64_t hang_ns = 12'000'000'000;  ///< so long nobody waits in a healthy job
  bool stopped = false;                   ///< whoever asks knows that the job goes on no more
};

}  // namespace fsdpbench::watch
