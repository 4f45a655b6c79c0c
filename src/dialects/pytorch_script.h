#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"

/// The parts of a Python script that both of PyTorch's FSDPs need.
namespace fsdpbench::dialects {

/// The head of the file: its notes as a docstring, with an example of use, then the imports.
std::string python_head(const std::vector<std::string>& notes, std::string_view imports);

/// BLOCKS_OF_UNITS and MICROBATCHES, which the functions below read.
std::string python_constants(const ExportSource& source);

/// make_mesh(): one axis of shards, or replicas of shard groups.
std::string python_mesh(const ExportSource& source);

/// blocks_of(model): the repeated blocks, and the check that they are as many as the settings were chosen for.
std::string python_blocks();

/// Imports of checkpoint_blocks(): from torch.distributed.algorithms, and from torch.utils; empty if it needs none.
std::string python_checkpoint_imports(const ExportSource& source);
std::string python_policy_imports(const ExportSource& source);

/// checkpoint_blocks(model), which wraps blocks so that backward recomputes them; empty if none is.
std::string python_checkpointing(const ExportSource& source);

/// make_optimizer(model), of these `parameters` of it.
std::string python_optimizer(const ExportSource& source, std::string_view parameters = "model.parameters()");

/// The end of train_step(): `clip`, lines that clip, if that is asked; the update, and gradients forgotten.
std::string python_update(const ExportSource& source, std::string_view clip);

/// Rules of the keys that the script above holds whichever FSDP it is.
Said in_the_script(const ExportSource& source);
Said checkpoint_keeps(const ExportSource& source);
Said checkpoint_every(const ExportSource& source);
Said activation_checkpointing(const ExportSource& source);

}  // namespace fsdpbench::dialects
