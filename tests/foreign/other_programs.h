#pragma once

#include "foreign/corpus.h"
#include "foreign/kineto_text.h"

namespace fsdpbench::foreign::corpus {

/// A server of a model that is split over ranks layer by layer: forwards only, an all-reduce behind each half of a
/// layer, by a kernel of its own where messages are small. No backward, no optimizer.
KinetoText write_inference(const CaseSpec& spec, int rank);

/// A training whose experts lie on different ranks: two all-to-alls a layer and pass, and gradients of the rest reduced
/// in buckets by DDP. No parameters are gathered.
KinetoText write_experts(const CaseSpec& spec, int rank);

}  // namespace fsdpbench::foreign::corpus
