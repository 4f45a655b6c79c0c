#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "plan/model_shapes.h"

namespace fsdpbench::plan {

/// Parameters gathered, freed and reduced together (FSDP1 FlatParameter, FSDP2 parameter group).
struct UnitMembers {
  std::string label;            ///< "R" for the root, "0", "1" … for the others in forward order; "T": the head's
  std::vector<int> modules;     ///< in forward order
  std::vector<int> parameters;  ///< owned by those modules, in canonical order
  int experts_of = -1;  ///< mesh.expert: no modules, but the experts of that unit's blocks; label "E0", "E1" …
};

/// Units of a model. The root comes first, whether it has parameters or not; it owns the modules that no other
/// unit owns (embedding, head, loss). `head_unit`: those after the last block are the last unit, labelled "T", if they
/// own parameters. `apart`: the experts of a unit's blocks are a unit of their own, behind all those that have modules;
/// FSDP2 has them as a second parameter group of the block's module, with a mesh of its own (torchtitan,
/// distributed/fsdp.py).
std::vector<UnitMembers> wrap_units(const ModelShapes& shapes, const config::Wrap& wrap, bool head_unit = false,
                                    bool apart = false);

}  // namespace fsdpbench::plan
