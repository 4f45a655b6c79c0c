#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "foreign/job_trace.h"
#include "foreign/kineto_names.h"
#include "foreign/link_rows.h"
#include "trace/event_reader.h"

namespace fsdpbench::foreign {

/// The argument of a device's row that tells where in the program's source it comes from: XLA's op_name.
inline constexpr std::string_view kSourcePath = "op_name";

/// For a program without a device: adds rows of a device, made of what the host did. The innermost ops that compute or
/// copy become rows of a stream of their thread, and each range of a collective ("gloo:all_reduce") one of the
/// communicator's stream, with the facts of the record_param_comms around its issue. `rows.host` is nested, and there
/// are no rows of a device.
void add_host_work(RankRows& rows);

/// Texts under small numbers, each kept once. From hostile files with ever new ones only so many bytes are kept.
class NameTable {
 public:
  /// The number of `text`, made fit to be shown (base/read_input.h). Once kMostBytes are full, that of "(one name of
  /// too many)" for what is new.
  std::int32_t number(std::string_view text);
  std::string_view operator[](std::int32_t number) const { return *texts_[number]; }
  bool full() const { return bytes_ >= kMostBytes; }
  std::vector<std::string> take();

 private:
  static constexpr std::size_t kMostBytes = std::size_t{128} << 20;
  static constexpr std::size_t kMostOfAName = 2048;

  std::vector<std::unique_ptr<std::string>> texts_;
  std::unordered_map<std::string_view, std::int32_t> numbers_;  // of the texts as they came
  std::vector<std::unique_ptr<std::string>> raw_;               // where that differs from what is kept
  std::size_t bytes_ = 0;
};

/// Rows from the events of one rank's file, one after another in whatever order; then linked and sorted.
class KinetoRows {
 public:
  /// `functions`: python_function rows are kept.
  explicit KinetoRows(bool functions) : functions_(functions) {}

  void event(const trace::ParsedEvent& event);
  /// After the last event; nothing may be added then.
  RankRows take(const trace::FileFacts& facts);
  bool empty() const { return host_.empty() && device_.empty(); }

 private:
  struct Times {
    std::int64_t begin_ns, end_ns;
  };
  std::optional<Times> times(const trace::ParsedEvent& event);
  void host_row(const trace::ParsedEvent& event, RowKind kind, std::string_view name);
  void device_row(const trace::ParsedEvent& event, RowKind kind, std::string_view name);
  void stream_wait(const trace::ParsedEvent& event);
  void arrow(const trace::ParsedEvent& event, bool begins);
  void memory(const trace::ParsedEvent& event);
  std::int32_t collective(const trace::ParsedEvent& event);
  std::int32_t collective_by_dims(const trace::ParsedEvent& event, std::optional<Communication> kind);
  std::int32_t product(const trace::ParsedEvent& event, std::string_view name);
  std::int32_t group(const trace::ParsedEvent& event);
  std::int32_t thread(const trace::ParsedEvent& event);
  std::int32_t stream(std::int64_t device, std::int64_t id);
  void add_groups(const trace::FileFacts& facts);
  void leave_out_far_rows();
  void add_collectives_by_name(const std::vector<std::string>& names);
  bool add_waits_for_counts(const std::vector<std::string>& names, std::int32_t wait_name);
  void find_types(const std::vector<std::string>& names);
  void add_notes();

  bool functions_;
  RankRows rows_;
  NameTable names_;
  std::vector<LinkedHost> host_;
  std::vector<LinkedDevice> device_;
  Arrows arrows_;  // while no call has a correlation
  std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t> streams_, threads_;
  std::unordered_map<std::string, std::int32_t> groups_;
  bool calls_correlate_ = false, in_bytes_ = false;
  std::int64_t without_times_ = 0, begins_and_ends_ = 0, far_rows_ = 0;
};

}  // namespace fsdpbench::foreign
