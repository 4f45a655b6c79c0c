// torch.nn.parallel.DistributedDataParallel.
#include <array>

#include "config/words/words.h"

namespace fsdpbench::dialects {

const Words& pytorch_ddp_words() {
  static constexpr auto kMeanings = std::to_array<Meaning>({{"fsdp.strategy", "ddp", "no_shard"}});
  static constexpr auto kParts = std::to_array<std::string_view>({"DistributedDataParallel"});
  static const Words kWords{
      .name = "pytorch-ddp",
      .meanings = kMeanings,
      .traces = {
          .parts = kParts, .of_one_program = true, .program = {.data_parallel = "PyTorch DistributedDataParallel"}}};
  return kWords;
}

}  // namespace fsdpbench::dialects
