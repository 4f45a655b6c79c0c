#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clock/collective_kinds.h"
#include "foreign/job_trace.h"
#include "schedule/op.h"

namespace fsdpbench::foreign {

inline bool mentions(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }
/// The numbers in a text, whatever stands between them.
std::vector<std::int64_t> numbers_in(std::string_view text);
/// The first number behind `key`; -1 if there is none.
std::int64_t number_behind(std::string_view key, std::string_view text);

/// Members of a collective: sets of devices, by their place in the program's mesh.
struct ReplicaGroups {
  std::int64_t size = -1;               ///< of each
  std::vector<std::vector<int>> lists;  ///< empty: more devices than are listed here, or not told
};

/// Any of XLA's forms: "{{0,1},{2,3}}"; "[2,4]<=[4,2]T(1,0)", 2 groups of 4 of the numbers from 0 on, laid out in rows
/// of (4,2) and read with the axes in that order; "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}", devices that
/// differ in the named axes only, of a mesh whose devices have another order.
ReplicaGroups parse_groups(std::string_view text);

// A program as XLA compiled it: computations, each a sequence of instructions in the order in which they are launched,
// as far as collectives, loops and what lies between them ask. Indices are into the vectors of the module; -1 is none.

/// One array of an instruction's result; a tuple has several.
struct HloArray {
  std::string dtype;  ///< as XLA names it: "bf16"
  std::vector<std::int64_t> dims;
  std::int64_t elements = 0, bytes = 0;
};

struct HloInstruction {
  std::string name;     ///< "all-gather-start.4"
  std::string opcode;   ///< "all-gather-start"
  std::string op_name;  ///< of its metadata: "jit(train)/jvp()/while/body/dot_general"; "" if it has none
  std::vector<HloArray> arrays;
  std::vector<std::int32_t> operands;    ///< into its computation's instructions
  std::vector<std::int32_t> called;      ///< into HloModule::computations; of a while: body, condition
  std::int32_t groups = -1;              ///< into HloModule::groups
  std::int64_t index = -1;               ///< of a parameter: its number; of get-tuple-element: which
  std::int64_t trips = -1;               ///< of a while: known_trip_count
  std::vector<std::int64_t> contracts;   ///< of a dot: the dimensions of its first operand that it sums over
  bool sync = false, pipelined = false;  ///< of its backend_config
};

struct HloComputation {
  std::vector<HloInstruction> instructions;
  std::int32_t root = -1;
};

struct HloModule {
  std::string name;  ///< "jit_train"
  bool scheduled = false;
  bool since_0_11_1 = false;  ///< made by a JAX from there on, as far as its collectives tell
  std::int64_t devices = 1;
  std::vector<HloComputation> computations;
  std::vector<ReplicaGroups> groups;
  std::int32_t entry = -1;

  const HloInstruction& row(std::int32_t computation, std::int32_t row) const {
    return computations[computation].instructions[row];
  }
};

/// Reads the text of a module: what `compiled.as_text()` gives, or XLA's dump after optimizations. Throws ConfigError:
/// no module, or longer than a reader takes.
HloModule parse_hlo_text(std::string_view text);
/// Reads an HloModuleProto; likewise.
HloModule parse_hlo_proto(std::string_view bytes);

/// The HloModuleProtos that an xplane.pb brings along, those of all that ran.
std::vector<std::string_view> modules_in_xspace(std::string_view bytes);

struct HloKind {
  std::string_view opcode, label;  ///< "all-gather", and "AG" in the order
  Communication kind = Communication::other;
  clock::Collective cost = clock::Collective::all_gather;  ///< what it costs as
};
/// That of "all-gather-start"; none of what is no collective, or the end of one.
const HloKind* kind_of_hlo(std::string_view opcode);
/// The part of a training step that a source path is of: what is transposed or computed again is backward.
std::optional<schedule::Phase> phase_of_path(std::string_view op_name);
/// Bytes of an element of XLA's type; 0 of one that moves nothing (token).
int hlo_bytes(std::string_view dtype);

/// One collective as it stands in a computation.
struct HloCollective : HloKind {
  std::int32_t computation = -1, row = -1;
  std::int32_t done = -1;  ///< the instruction that waits for it; -1: it is itself where it ends
  std::int64_t bytes_in = 0, bytes_out = 0;
  std::string dtype{};  ///< of its largest operand
  int operands = 0;     ///< how many are combined in it
  std::int32_t groups = -1;
  bool asynchronous = false, pipelined = false;
};

/// The collective of an instruction, if it is one or starts one.
std::optional<HloCollective> collective_of(const HloModule& module, std::int32_t computation, std::int32_t row);

}  // namespace fsdpbench::foreign
