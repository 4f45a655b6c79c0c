#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/watch/job_view.h"

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

/// "rank 3", "ranks 0 to 2, 5"; `ranks` ascend.
std::string ranks_text(const std::vector<int>& ranks);
/// With a capital letter at its beginning.
std::string capital(std::string text);

/// What the counts of NCCL's RAS say. They are of collectives that hosts have handed over. So equal counts do not say
/// that a job is well, and never lead to `clean`.
///
/// *Silent*: RAS considers the process of a rank dead, or has not reached it for hang_ns. *Hang*: no count of the job
/// has moved for hang_ns, and some ranks of a communicator have handed over fewer collectives than others of it.
/// *Late*: at each look for hang_ns a rank had handed over fewer than half of the others had at the look before; so it
/// does not matter in which order RAS asks its processes. A rank that is ahead in another such communicator waits
/// there, and is not named. Nobody is accused in a communicator that a rank has begun to end.
struct CountFindings {
  std::vector<Accusation> all;
  std::vector<std::string> unknown;  ///< sentences: what the counts leave open
  std::vector<std::string> notes;
};
CountFindings judge_counts(const JobView& job, const JudgeOptions& options);

}  // namespace fsdpbench::watch
