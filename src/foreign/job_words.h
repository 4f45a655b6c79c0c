#pragma once

#include <map>
#include <string>

#include "config/words/words.h"
#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

/// What names in a job's rows say about the program that wrote them; each is the first name found, empty if none was.
struct JobWords {
  std::map<const dialects::Words*, std::string> engines;  ///< of those found in dialects::words_in_traces()
  std::string backward, optimizer, serving;
  std::string layout_copy, quantized;
  std::string embeddings;     ///< tables of a recommendation model, split over ranks
  std::string amd;            ///< what told that the device is AMD's
  std::string limiter;        ///< around a wait of an all-gather limit
  bool runtime_rows = false;  ///< calls of the runtime are in the trace, so waits of the host would be
};

/// Looks at all ranks.
JobWords find_job_words(const JobTrace& job);

}  // namespace fsdpbench::foreign
