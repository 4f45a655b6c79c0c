#pragma once

#include <cstdint>
#include <string_view>

namespace fsdpbench::trace {

/// Version of FORMAT.md; in every file as the top-level key `fsdpbench_schema`. Grows when a field changes its
/// meaning or goes away, not when one is added.
inline constexpr int kSchemaVersion = 1;

/// Place of a field in a file.
enum class Place : std::uint8_t { top, distributed, group, event, args };
enum class FieldType : std::uint8_t { text, integer, number, list, object };
/// Which of the two kinds of file has the field.
enum class Files : std::uint8_t { rank, merged, both };
struct Field {
  std::string_view name;
  Place place;
  FieldType type;
  std::string_view unit;  ///< "": none
  Files files;
};

/// Every field that our files have. Writers, validator and tests take the names from here; a test compares these lines
/// with FORMAT.md.
namespace field {

inline constexpr Field kSchemaVersionKey{"schemaVersion", Place::top, FieldType::integer, "", Files::both};
inline constexpr Field kFsdpbenchSchema{"fsdpbench_schema", Place::top, FieldType::integer, "", Files::both};
inline constexpr Field kDeviceProperties{"deviceProperties", Place::top, FieldType::list, "", Files::rank};
inline constexpr Field kDistributedInfo{"distributedInfo", Place::top, FieldType::object, "", Files::rank};
inline constexpr Field kDisplayTimeUnit{"displayTimeUnit", Place::top, FieldType::text, "", Files::both};
inline constexpr Field kBaseTime{"baseTimeNanoseconds", Place::top, FieldType::integer, "ns", Files::both};
inline constexpr Field kRanksOfRun{"ranks_of_run", Place::top, FieldType::integer, "", Files::merged};
inline constexpr Field kRanksShown{"ranks_shown", Place::top, FieldType::list, "", Files::merged};
inline constexpr Field kTraceEvents{"traceEvents", Place::top, FieldType::list, "", Files::both};
inline constexpr Field kTraceName{"traceName", Place::top, FieldType::text, "", Files::both};

inline constexpr Field kBackend{"backend", Place::distributed, FieldType::text, "", Files::rank};
inline constexpr Field kRank{"rank", Place::distributed, FieldType::integer, "", Files::rank};
inline constexpr Field kWorldSize{"world_size", Place::distributed, FieldType::integer, "", Files::rank};
inline constexpr Field kGroupCount{"pg_count", Place::distributed, FieldType::integer, "", Files::rank};
inline constexpr Field kGroupConfig{"pg_config", Place::distributed, FieldType::list, "", Files::rank};
inline constexpr Field kConfigName{"pg_name", Place::group, FieldType::text, "", Files::rank};
inline constexpr Field kConfigDescription{"pg_desc", Place::group, FieldType::text, "", Files::rank};
inline constexpr Field kConfigBackend{"backend_config", Place::group, FieldType::text, "", Files::rank};
inline constexpr Field kConfigSize{"pg_size", Place::group, FieldType::integer, "", Files::rank};
inline constexpr Field kConfigRanks{"ranks", Place::group, FieldType::text, "", Files::rank};

inline constexpr Field kPh{"ph", Place::event, FieldType::text, "", Files::both};
inline constexpr Field kCat{"cat", Place::event, FieldType::text, "", Files::both};
inline constexpr Field kName{"name", Place::event, FieldType::text, "", Files::both};
inline constexpr Field kPid{"pid", Place::event, FieldType::integer, "", Files::both};
inline constexpr Field kTid{"tid", Place::event, FieldType::integer, "", Files::both};
inline constexpr Field kTs{"ts", Place::event, FieldType::number, "us", Files::both};
inline constexpr Field kDur{"dur", Place::event, FieldType::number, "us", Files::both};
inline constexpr Field kId{"id", Place::event, FieldType::integer, "", Files::both};
inline constexpr Field kBp{"bp", Place::event, FieldType::text, "", Files::both};
inline constexpr Field kScope{"s", Place::event, FieldType::text, "", Files::both};
inline constexpr Field kColour{"cname", Place::event, FieldType::text, "", Files::merged};
inline constexpr Field kArgs{"args", Place::event, FieldType::object, "", Files::both};

inline constexpr Field kTrackName{"name", Place::args, FieldType::text, "", Files::both};
inline constexpr Field kSortIndex{"sort_index", Place::args, FieldType::integer, "", Files::both};
inline constexpr Field kStep{"step", Place::args, FieldType::integer, "", Files::both};
inline constexpr Field kOp{"op", Place::args, FieldType::integer, "", Files::both};
inline constexpr Field kOpName{"op name", Place::args, FieldType::text, "", Files::both};
inline constexpr Field kLateRank{"late_rank", Place::args, FieldType::integer, "", Files::merged};
inline constexpr Field kAdvice{"advice", Place::args, FieldType::text, "", Files::merged};
inline constexpr Field kStepLength{"step_us", Place::args, FieldType::number, "us", Files::merged};
inline constexpr Field kKept{"kept_bytes", Place::args, FieldType::integer, "bytes", Files::merged};
inline constexpr Field kBound{"bound_us", Place::args, FieldType::number, "us", Files::merged};
inline constexpr Field kBoundLane{"lane", Place::args, FieldType::text, "", Files::merged};
inline constexpr Field kBoundLaneTime{"lane_us", Place::args, FieldType::number, "us", Files::merged};
inline constexpr Field kUnit{"unit", Place::args, FieldType::text, "", Files::both};
inline constexpr Field kPhase{"phase", Place::args, FieldType::text, "", Files::both};
inline constexpr Field kIssued{"issued_us", Place::args, FieldType::number, "us", Files::merged};
inline constexpr Field kWaitedForPeers{"waited_for_peers_us", Place::args, FieldType::number, "us", Files::both};
inline constexpr Field kOwnLink{"link_us", Place::args, FieldType::number, "us", Files::both};
inline constexpr Field kWaitedForCore{"waited_for_core_us", Place::args, FieldType::number, "us", Files::both};
inline constexpr Field kExposed{"exposed_us", Place::args, FieldType::number, "us", Files::merged};
inline constexpr Field kBytes{"bytes", Place::args, FieldType::integer, "bytes", Files::both};
inline constexpr Field kDevice{"device", Place::args, FieldType::integer, "", Files::rank};
inline constexpr Field kContext{"context", Place::args, FieldType::integer, "", Files::rank};
inline constexpr Field kStream{"stream", Place::args, FieldType::integer, "", Files::both};
inline constexpr Field kCorrelation{"correlation", Place::args, FieldType::integer, "", Files::rank};
inline constexpr Field kExternalId{"External id", Place::args, FieldType::integer, "", Files::rank};
inline constexpr Field kDeviceName{"device name", Place::args, FieldType::text, "", Files::both};
inline constexpr Field kBandwidth{"memory bandwidth (GB/s)", Place::args, FieldType::number, "GB/s", Files::rank};
inline constexpr Field kCollectiveName{"Collective name", Place::args, FieldType::text, "", Files::rank};
inline constexpr Field kInElements{"In msg nelems", Place::args, FieldType::integer, "elements", Files::rank};
inline constexpr Field kOutElements{"Out msg nelems", Place::args, FieldType::integer, "elements", Files::rank};
inline constexpr Field kGroupSize{"Group size", Place::args, FieldType::integer, "ranks", Files::rank};
inline constexpr Field kDtype{"dtype", Place::args, FieldType::text, "", Files::rank};
inline constexpr Field kGroupName{"Process Group Name", Place::args, FieldType::text, "", Files::rank};
inline constexpr Field kGroupDescription{"Process Group Description", Place::args, FieldType::text, "", Files::rank};
inline constexpr Field kGroupRanks{"Process Group Ranks", Place::args, FieldType::text, "", Files::rank};
inline constexpr Field kSequence{"Seq", Place::args, FieldType::integer, "", Files::rank};
inline constexpr Field kAllocated{"allocated", Place::args, FieldType::integer, "bytes", Files::both};
inline constexpr Field kReserved{"reserved", Place::args, FieldType::integer, "bytes", Files::both};
inline constexpr Field kTotalAllocated{"Total Allocated", Place::args, FieldType::integer, "bytes", Files::rank};
inline constexpr Field kTotalReserved{"Total Reserved", Place::args, FieldType::integer, "bytes", Files::rank};
inline constexpr Field kAllocatedBytes{"Bytes", Place::args, FieldType::integer, "bytes", Files::rank};
inline constexpr Field kDeviceId{"Device Id", Place::args, FieldType::integer, "", Files::rank};
inline constexpr Field kDeviceType{"Device Type", Place::args, FieldType::integer, "", Files::rank};
inline constexpr Field kGathers{"gathers", Place::args, FieldType::integer, "", Files::merged};
inline constexpr Field kSmClock{"sm_mhz", Place::args, FieldType::integer, "MHz", Files::merged};
inline constexpr Field kPower{"power_w", Place::args, FieldType::number, "W", Files::merged};
inline constexpr Field kTemperature{"temperature_c", Place::args, FieldType::integer, "degrees C", Files::merged};
// Live bytes by base/memory_space.h, one field a category.
inline constexpr Field kParameterShards{"parameter_shards", Place::args, FieldType::integer, "bytes", Files::merged};
inline constexpr Field kUnsharded{"unsharded_parameters", Place::args, FieldType::integer, "bytes", Files::merged};
inline constexpr Field kGradients{"gradients", Place::args, FieldType::integer, "bytes", Files::merged};
inline constexpr Field kOptimizer{"optimizer", Place::args, FieldType::integer, "bytes", Files::merged};
inline constexpr Field kActivations{"activations", Place::args, FieldType::integer, "bytes", Files::merged};
inline constexpr Field kCommunication{"communication_buffers", Place::args, FieldType::integer, "bytes", Files::merged};

}  // namespace field

}  // namespace fsdpbench::trace
