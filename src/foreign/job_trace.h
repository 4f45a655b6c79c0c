#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench::foreign {

// Traces of other people's programs, as their profilers wrote them: what ran, where and when, with nothing yet said
// about what it was for. One JobTrace holds all ranks; a reader (kineto_reader.h) makes it, recognition and explanation
// read it. Times are nanoseconds on the file's own clock, moved so that all ranks of a job share one where the files
// tell how. Indices are into the vectors of the same RankRows; -1 is none.

/// Kind of work that a row of the device shows.
enum class Activity : std::uint8_t { computation, collective, copy, fill };
std::string_view to_string(Activity kind);

/// Operation of a collective. `other`: a kernel of a collectives' library that does not tell.
enum class Communication : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  send,
  receive,
  barrier,
  other,
};
/// "all_gather"
std::string_view to_string(Communication kind);

/// Facts that a profiler knows of a collective, from the device's row or the host's call. Unknown ones are -1, "".
struct CollectiveFacts {
  Communication kind = Communication::other;
  std::int64_t elements_in = -1, elements_out = -1;  ///< of this rank
  std::string dtype;                                 ///< as c10 names them: "BFloat16"
  std::int32_t group = -1;                           ///< into RankRows::groups
  std::int64_t sequence = -1;                        ///< number of it on its communicator
};

/// One kernel, copy or fill on the device. In a program without a device (gloo): the host's ops that compute, and the
/// collectives of the communicator's threads.
struct DeviceRow {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int32_t stream = 0;       ///< into RankRows::streams
  std::int32_t name = 0;         ///< into RankRows::names
  std::int32_t launch = -1;      ///< into RankRows::host: the call that launched it
  std::int32_t collective = -1;  ///< into RankRows::collectives
  Activity kind = Activity::computation;
  std::int8_t phase = -1;   ///< a schedule::Phase that the row itself tells; -1: it tells none
  std::int64_t bytes = -1;  ///< of copies and fills
};

/// Kind of work that a row of the host shows.
enum class HostWork : std::uint8_t {
  op,           ///< cpu_op: "aten::mm"
  annotation,   ///< user_annotation: "ProfilerStep#5", "FSDP::pre_forward (layers.0)"
  function,     ///< python_function
  launch,       ///< a call of the runtime or the driver that starts work
  synchronise,  ///< one that waits for the device
  runtime,      ///< another one: an allocation, an event
};

struct HostRow {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int32_t thread = 0;       ///< into RankRows::threads
  std::int32_t name = 0;         ///< into RankRows::names
  std::int32_t parent = -1;      ///< into RankRows::host: the row of the same thread that encloses it most closely
  std::int32_t collective = -1;  ///< into RankRows::collectives: record_param_comms
  std::int32_t product = -1;     ///< into RankRows::products
  HostWork kind = HostWork::op;
};

/// A matrix product that the host asked for, where its row has the shapes (record_shapes).
struct Product {
  std::int64_t flops = 0;  ///< 2 m n k, and so for each of a batch
  std::string dtype;       ///< of its first matrix, as the file has it: "c10::BFloat16", "float"
};

/// A stream waits for another (cuda_sync's "Stream Wait Event"), from the moment that the host asked for it.
struct StreamWait {
  std::int64_t asked_ns = 0;
  std::int32_t stream = -1, on_stream = -1;  ///< into RankRows::streams
};

struct Stream {
  std::int64_t device = 0, id = 0;
};

struct Group {
  std::string name, description;
  std::int64_t size = -1;
  std::vector<int> ranks;  ///< empty: not told
};

struct MemoryRow {
  std::int64_t time_ns = 0;
  std::int64_t allocated = -1, reserved = -1;
};

/// A step as the profiler was told ("ProfilerStep#N"), on the host.
struct StepMark {
  std::int64_t number = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// Facts of a program that XLA compiled, as its trace tells them.
struct XlaFacts {
  std::string steps_told_by{};         ///< "": the profiler's annotations
  std::optional<bool> since_0_11_1{};  ///< of jaxlib's version, which it tells from 0.9.2 on
};

/// One rank's file. Rows are in order of their begin.
struct RankRows {
  std::string file;
  int rank = 0;
  bool rank_told = false;  ///< else it is the file's place among the files
  std::optional<int> world_size;
  std::string backend;       ///< "nccl"; "" if not told
  std::string device_model;  ///< "NVIDIA H100 80GB HBM3"; "" if not told
  std::int64_t schema = -1;  ///< kineto's schemaVersion
  std::vector<std::string> names;
  std::vector<Stream> streams;
  std::vector<std::int64_t> threads;  ///< their ids
  std::vector<Group> groups;
  std::vector<CollectiveFacts> collectives;
  std::vector<Product> products;
  std::vector<DeviceRow> device;
  std::vector<HostRow> host;
  std::vector<StreamWait> waits;
  std::vector<MemoryRow> memory;
  std::vector<StepMark> steps;
  std::optional<XlaFacts> xla;     ///< of a compiled program
  std::vector<std::string> notes;  ///< what was missing, cut off or mended, a sentence each

  /// There is no device: rows of one are what the host did itself (kineto_rows.h), and it waited for collectives.
  bool computes_on_host() const { return !streams.empty() && streams.front().device == kHostDevice; }
  static constexpr std::int64_t kHostDevice = -1;
  /// A compiler puts instructions of forward among those of backward, where memory and overlap want it: their order
  /// says nothing of microbatches.
  bool is_compiled() const { return xla.has_value(); }
};

/// Role of a stream of a rank's device, from what runs on it.
struct StreamRole {
  std::string role;  ///< "compute", "all_gather", "reduce_scatter", "all_reduce", "communication", "copy"
  std::int64_t busy_ns = 0;
  std::size_t rows = 0;
};

/// The role of each of RankRows::streams; `compute` becomes the index of the stream that computes most, or -1.
std::vector<StreamRole> stream_roles(const RankRows& rank, int& compute);

struct JobTrace {
  std::vector<RankRows> ranks;     ///< by rank
  bool shared_clock = false;       ///< the files told how their clocks relate (baseTimeNanoseconds, one machine)
  std::vector<std::string> notes;  ///< about the files together: a rank is missing
};

}  // namespace fsdpbench::foreign
