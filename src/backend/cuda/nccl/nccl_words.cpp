#include "backend/cuda/nccl/nccl_words.h"

namespace fsdpbench::backend::cuda {

std::string nccl_words(ncclResult_t result, ncclComm_t comm) {
  std::string words = ncclGetErrorString(result);
  const char* const last = ncclGetLastError(comm);
  if (last == nullptr || *last == '\0') return words;
  words += ": ";
  words += last;
  while (!words.empty() && (words.back() == '\n' || words.back() == ' ')) words.pop_back();
  return words;
}

}  // namespace fsdpbench::backend::cuda
