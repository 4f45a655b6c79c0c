#include "foreign/kineto_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/read_input.h"
#include "foreign/collective_use.h"
#include "foreign/kineto_names.h"
#include "foreign/xla_module.h"
#include "trace/fields.h"

namespace fsdpbench::foreign {
namespace {

class HostWorkRows {
 public:
  explicit HostWorkRows(RankRows& rows) : rows_(rows) {
    for (const std::string& name : rows.names) {
      range_.push_back(is_range_of_collective(name));
      work_.push_back(work_of_op(name));
      call_.push_back(communication_of_op(name));
    }
  }

  void add() {
    std::vector<bool> covered(rows_.host.size());         // an op around it is a row already
    std::vector<std::int32_t> within(rows_.host.size());  // the innermost call around it, or it; -1: none
    for (std::size_t i = 0; i < rows_.host.size(); ++i) {
      const HostRow& row = rows_.host[i];
      const auto name = static_cast<std::size_t>(row.name);
      covered[i] = row.parent >= 0 && covered[row.parent];
      within[i] = row.parent >= 0 ? within[row.parent] : -1;
      if (range_[name]) {
        collective(row);
      } else if (row.kind == HostWork::op && call_[name]) {
        // "_c10d_functional::all_reduce" calls "c10d::allreduce_": that is one call.
        if (within[i] >= 0 && !calls_.empty() && calls_.back().row == within[i]) calls_.pop_back();
        within[i] = static_cast<std::int32_t>(i);
        calls_.push_back({static_cast<std::int32_t>(i), *call_[name]});
      } else if (row.kind == HostWork::op && work_[name] && !covered[i]) {
        covered[i] = true;
        device_row(row, *work_[name], stream(row.thread)).launch = static_cast<std::int32_t>(i);
      }
    }
  }

 private:
  struct Call {
    std::int32_t row = -1;
    Communication kind = Communication::other;
  };

  /// A range of the communicator's threads, which take calls in the order of issue. What was called is what is meant:
  /// gloo scatters reductions by all-reduces.
  void collective(const HostRow& row) {
    CollectiveFacts facts;
    facts.kind = communication_of_call(rows_.names[row.name]).value_or(Communication::other);
    const auto call = std::ranges::find_if(calls_, [&](const Call& c) {
      return c.kind == facts.kind ||
             (c.kind == Communication::reduce_scatter && facts.kind == Communication::all_reduce);
    });
    DeviceRow& made = device_row(row, Activity::collective, communicator());
    if (row.collective >= 0) facts = rows_.collectives[row.collective];
    if (call != calls_.end()) {
      made.launch = call->row;
      if (const std::int32_t told = rows_.host[call->row].collective; told >= 0) {
        const std::string dtype = std::move(facts.dtype);  // a call with lists of tensors does not tell it
        facts = rows_.collectives[told];
        if (bytes_of_dtype(facts.dtype) == 0) facts.dtype = dtype;
      }
      facts.kind = call->kind;
      calls_.erase(call);
    }
    // Where the job has one group, it is that one's.
    if (facts.group < 0 && rows_.groups.size() == 1 && rows_.groups.front().size > 1) facts.group = 0;
    if (facts.elements_out < 0 && facts.elements_in > 0 && facts.group >= 0 &&
        facts.kind == Communication::all_gather) {
      facts.elements_out = facts.elements_in * rows_.groups.front().size;
    }
    made.collective = static_cast<std::int32_t>(rows_.collectives.size());
    rows_.collectives.push_back(facts);
  }

  DeviceRow& device_row(const HostRow& row, Activity kind, std::int32_t stream) {
    return rows_.device.emplace_back(
        DeviceRow{.begin_ns = row.begin_ns, .end_ns = row.end_ns, .stream = stream, .name = row.name, .kind = kind});
  }

  std::int32_t stream(std::int32_t thread) {
    if (streams_.size() <= static_cast<std::size_t>(thread)) streams_.resize(static_cast<std::size_t>(thread) + 1, -1);
    std::int32_t& known = streams_[thread];
    if (known < 0) {
      known = static_cast<std::int32_t>(rows_.streams.size());
      rows_.streams.push_back({RankRows::kHostDevice, rows_.threads[thread]});
    }
    return known;
  }

  std::int32_t communicator() {
    if (communicator_ < 0) {
      communicator_ = static_cast<std::int32_t>(rows_.streams.size());
      rows_.streams.push_back({RankRows::kHostDevice, 0});
    }
    return communicator_;
  }

  RankRows& rows_;
  std::vector<bool> range_;  // by name, as are the next two
  std::vector<std::optional<Activity>> work_;
  std::vector<std::optional<Communication>> call_;  // "c10d::allgather_"
  std::deque<Call> calls_;                          // in order of issue, those without a range yet
  std::vector<std::int32_t> streams_;               // by thread
  std::int32_t communicator_ = -1;
};

}  // namespace

void add_host_work(RankRows& rows) { HostWorkRows(rows).add(); }
namespace {

namespace field = trace::field;
using trace::ParsedEvent;
using trace::Value;

// Fields of kineto's that our own files do not have.
constexpr std::string_view kWaitOnStream = "wait_on_stream";
constexpr std::string_view kRankStart = "Global rank start";
constexpr std::string_view kRankStride = "Global rank stride";
constexpr std::string_view kStepPrefix = "ProfilerStep#";
constexpr std::string_view kInputDims = "Input Dims";
constexpr std::string_view kInputType = "Input type";

constexpr std::int64_t kMostTime_ns = 2'200'000'000'000'000'000;  // sums of four such fit; it is the year 2039
constexpr std::int64_t kFar_ns = 3'600'000'000'000;
constexpr int kMostRanks = 1 << 20;

std::int64_t integer_or(const Value* value, std::int64_t otherwise) {
  return value != nullptr && value->is_integer() ? value->integer : otherwise;
}

/// A time whose sums fit.
std::optional<std::int64_t> time_of(std::optional<std::int64_t> time) {
  return time && *time <= kMostTime_ns && *time >= -kMostTime_ns ? time : std::nullopt;
}

std::string_view text_of(const Value* value) {
  return value != nullptr && value->is_text() ? value->text : std::string_view();
}

/// Goes through "Input Dims", lists of lists: `bracket` gets each '[' and ']' with its depth from 1 on, `number` each
/// number with the depth of its list. False: a number is negative or above `most`.
template <typename Bracket, typename Number>
bool walk_dims(std::string_view dims, std::int64_t most, const Bracket& bracket, const Number& number) {
  int depth = 0;
  for (std::size_t at = 0; at < dims.size();) {
    if (dims[at] == '[') bracket('[', ++depth);
    if (dims[at] == ']') bracket(']', depth--);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(dims.data() + at, dims.data() + dims.size(), value);
    if (error != std::errc{}) {
      ++at;
      continue;
    }
    if (value < 0 || value > most) return false;
    number(value, depth);
    at = static_cast<std::size_t>(end - dims.data());
  }
  return true;
}

/// How many elements each argument of a call has, by its "Input Dims": "[[2, 3], [], [[4], [4]]]" has 6, 0 and 8. A
/// list of tensors has those of all of them.
std::vector<std::int64_t> elements_of(std::string_view dims) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  std::vector<std::int64_t> elements;
  std::int64_t product = 0;  // of the innermost list; 0: it has no number yet
  const auto bracket = [&](char c, int depth) {
    if (c == '[' && depth == 2) elements.push_back(0);
    if (c == ']' && depth >= 2 && product > 0) elements.back() = std::min(kMost, elements.back() + product);
    product = 0;
  };
  const auto number = [&](std::int64_t value, int) {
    product = product == 0 ? value : product > kMost / std::max<std::int64_t>(value, 1) ? kMost : product * value;
  };
  return walk_dims(dims, kMost, bracket, number) ? elements : std::vector<std::int64_t>();
}

/// The shapes of the tensors among the arguments: "[[2, 3], [], 4]" has {2, 3} and {}.
std::vector<std::vector<std::int64_t>> shapes_of(std::string_view dims) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::vector<std::vector<std::int64_t>> shapes;
  const auto bracket = [&](char c, int depth) {
    if (c == '[' && depth == 2) shapes.emplace_back();
  };
  const auto number = [&](std::int64_t value, int depth) {
    if (depth == 2) shapes.back().push_back(value);
  };
  return walk_dims(dims, kMost, bracket, number) ? shapes : std::vector<std::vector<std::int64_t>>();
}

/// Which argument of an op is the first of the two matrices that it multiplies; -1: it multiplies none itself.
int first_matrix_of(std::string_view name) {
  for (const std::string_view op : {"aten::mm", "aten::bmm", "aten::_scaled_mm"}) {
    if (name == op) return 0;
  }
  for (const std::string_view op : {"aten::addmm", "aten::baddbmm", "aten::_addmm_activation"}) {
    if (name == op) return 1;
  }
  return -1;
}

/// 2 m n k, times the batch; -1: these are no matrices that can be multiplied.
std::int64_t flops_of(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  constexpr double kMost = 9e18;
  if (a.size() != b.size() || a.size() < 2 || a.size() > 3 || a.back() != b[b.size() - 2]) return -1;
  if (a.size() == 3 && a[0] != b[0]) return -1;
  double flops = 2.0 * static_cast<double>(b.back());
  for (const std::int64_t one : a) flops *= static_cast<double>(one);
  return flops > 0 && flops < kMost ? static_cast<std::int64_t>(flops) : -1;
}

/// The first word of a list of texts: ["float", "float", "Scalar"].
std::string first_text(std::string_view list) {
  const std::size_t begin = list.find('"');
  const std::size_t end = begin == std::string_view::npos ? begin : list.find('"', begin + 1);
  return end == std::string_view::npos ? std::string() : std::string(list.substr(begin + 1, end - begin - 1));
}

/// Nothing if one of them cannot be a rank.
std::vector<int> ranks_of(const std::vector<std::int64_t>& numbers) {
  std::vector<int> ranks;
  for (const std::int64_t number : numbers) {
    if (number < 0 || number >= kMostRanks) return {};
    ranks.push_back(static_cast<int>(number));
  }
  return ranks;
}

}  // namespace

std::int32_t NameTable::number(std::string_view text) {
  if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
  if (full()) text = "(one name of too many)";
  if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
  const auto number = static_cast<std::int32_t>(texts_.size());
  const auto& shown = texts_.emplace_back(std::make_unique<std::string>(clean_text(text, kMostOfAName)));
  const std::string* key = shown.get();
  if (*key != text) key = raw_.emplace_back(std::make_unique<std::string>(text)).get();
  numbers_.emplace(*key, number);
  bytes_ += text.size() + shown->size();
  return number;
}

std::vector<std::string> NameTable::take() {
  std::vector<std::string> texts;
  for (const auto& text : texts_) texts.push_back(std::move(*text));
  return texts;
}

void KinetoRows::event(const ParsedEvent& event) {
  const std::string_view ph = event.ph;
  if (ph.size() != 1) return;
  switch (ph[0]) {
    case 'X': break;
    case 's':
    case 'f':
      if (!calls_correlate_ && event.category == "ac2g") arrow(event, ph[0] == 's');
      return;
    case 'i': return memory(event);
    case 'B':
    case 'E': ++begins_and_ends_; return;
    default: return;
  }
  const RowKind kind = row_kind(event.category);
  const std::string_view name = event.name;
  switch (kind) {
    case RowKind::function:
      if (!functions_ && name != kGarbage) return;
      [[fallthrough]];
    case RowKind::op:
    case RowKind::annotation:
    case RowKind::call: return host_row(event, kind, name);
    case RowKind::kernel:
    case RowKind::copy:
    case RowKind::fill: return device_row(event, kind, name);
    case RowKind::wait:
      if (name == "Stream Wait Event") stream_wait(event);
      return;
    default: return;
  }
}

std::optional<KinetoRows::Times> KinetoRows::times(const ParsedEvent& event) {
  const auto begin = time_of(event.begin_ns);
  const auto length = time_of(event.length_ns);
  if (begin && length && *length >= 0) return Times{*begin, *begin + *length};
  ++without_times_;
  return std::nullopt;
}

void KinetoRows::host_row(const ParsedEvent& event, RowKind kind, std::string_view name) {
  const auto time = times(event);
  if (!time) return;
  LinkedHost host;
  host.row = {.begin_ns = time->begin_ns, .end_ns = time->end_ns, .thread = thread(event), .name = names_.number(name)};
  host.external = integer_or(event.arg(field::kExternalId.name), -1);
  switch (kind) {
    case RowKind::call:
      host.row.kind = work_of_call(name);
      host.correlation = integer_or(event.arg(field::kCorrelation.name), -1);
      if (host.row.kind == HostWork::launch && host.correlation >= 0) calls_correlate_ = true;
      break;
    case RowKind::function: host.row.kind = HostWork::function; break;
    case RowKind::annotation: {
      host.row.kind = HostWork::annotation;
      host.row.collective = collective(event);
      in_bytes_ = in_bytes_ || host.row.collective >= 0;
      if (is_range_of_collective(name)) host.row.collective = collective_by_dims(event, communication_of_call(name));
      if (!name.starts_with(kStepPrefix)) break;
      std::int64_t number = 0;
      const std::string_view digits = name.substr(kStepPrefix.size());
      if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec == std::errc{}) {
        rows_.steps.push_back({number, time->begin_ns, time->end_ns});
      }
      break;
    }
    default:
      host.row.kind = HostWork::op;
      host.row.collective = collective(event);
      host.row.product = product(event, name);
      if (host.row.collective < 0) host.row.collective = collective_by_dims(event, communication_of_op(name));
  }
  host_.push_back(host);
}

void KinetoRows::device_row(const ParsedEvent& event, RowKind kind, std::string_view name) {
  const auto time = times(event);
  if (!time) return;
  LinkedDevice device;
  device.row.begin_ns = time->begin_ns;
  device.row.end_ns = time->end_ns;
  const Value* const own = event.arg(field::kStream.name);
  device.row.stream = stream(integer_or(event.arg(field::kDevice.name), 0),
                             integer_or(own != nullptr ? own : event.member(field::kTid.name), 0));
  device.row.name = names_.number(name);
  device.correlation = integer_or(event.arg(field::kCorrelation.name), -1);
  device.external = integer_or(event.arg(field::kExternalId.name), -1);
  device.row.collective = collective(event);
  const auto by_name = kind == RowKind::kernel ? communication_of_kernel(name) : std::nullopt;
  device.row.kind = device.row.collective >= 0 || by_name ? Activity::collective
                    : kind == RowKind::copy               ? Activity::copy
                    : kind == RowKind::fill               ? Activity::fill
                                                          : Activity::computation;
  if (const Value* const path = event.arg(kSourcePath); path != nullptr && path->is_text()) {
    if (const auto phase = phase_of_path(path->text)) device.row.phase = static_cast<std::int8_t>(*phase);
  }
  if (kind != RowKind::kernel) device.row.bytes = integer_or(event.arg(field::kBytes.name), -1);
  device_.push_back(device);
}

void KinetoRows::stream_wait(const ParsedEvent& event) {
  const auto asked = time_of(event.begin_ns);
  const std::int64_t waiting = integer_or(event.arg(field::kStream.name), -1);
  if (!asked || waiting < 0) return;
  const std::int64_t device = integer_or(event.arg(field::kDevice.name), 0);
  const std::int64_t on = integer_or(event.arg(kWaitOnStream), -1);
  rows_.waits.push_back({*asked, stream(device, waiting), on < 0 ? -1 : stream(device, on)});
}

void KinetoRows::arrow(const ParsedEvent& event, bool begins) {
  const auto time = time_of(event.begin_ns);
  const Value* id = event.member(field::kId.name);
  if (!time || id == nullptr || !id->is_integer()) return;
  if (begins) {
    arrows_.begins.push_back({id->integer, *time, thread(event)});
  } else {
    arrows_.ends.push_back({id->integer, *time, stream(0, integer_or(event.member(field::kTid.name), 0))});
  }
}

void KinetoRows::memory(const ParsedEvent& event) {
  if (row_kind(event.category) != RowKind::instant) return;
  const auto time = time_of(event.begin_ns);
  const Value* allocated = event.arg(field::kTotalAllocated.name);
  constexpr std::int64_t kHost = 0;
  if (!time || allocated == nullptr || integer_or(event.arg(field::kDeviceType.name), 1) == kHost) return;
  rows_.memory.push_back({*time, integer_or(allocated, -1), integer_or(event.arg(field::kTotalReserved.name), -1)});
}

std::int32_t KinetoRows::collective(const ParsedEvent& event) {
  const Value* const name = event.arg(field::kCollectiveName.name);
  if (name == nullptr || !name->is_text()) return -1;
  const auto kind = communication_of_call(name->text);
  if (!kind) return -1;
  rows_.collectives.push_back({.kind = *kind,
                               .elements_in = integer_or(event.arg(field::kInElements.name), -1),
                               .elements_out = integer_or(event.arg(field::kOutElements.name), -1),
                               .dtype = clean_text(text_of(event.arg(field::kDtype.name)), 40),
                               .group = group(event),
                               .sequence = integer_or(event.arg(field::kSequence.name), -1)});
  return static_cast<std::int32_t>(rows_.collectives.size()) - 1;
}

/// By the sizes of a call's arguments, which record_shapes has of rows that have no fields of a collective's. Calls
/// have their output first; a range of a communicator's has the input alone.
std::int32_t KinetoRows::collective_by_dims(const ParsedEvent& event, std::optional<Communication> kind) {
  const Value* const dims = kind ? event.arg(kInputDims) : nullptr;
  if (dims == nullptr || !dims->is_list()) return -1;
  const std::vector<std::int64_t> elements = elements_of(dims->text);
  if (elements.empty() || elements.front() <= 0) return -1;
  CollectiveFacts facts;
  facts.kind = *kind;
  const bool has_both = elements.size() > 1 && elements[1] > 0;
  const bool keeps_size = *kind == Communication::all_reduce || *kind == Communication::broadcast;
  facts.elements_in = has_both && !keeps_size ? elements[1] : elements.front();
  if (has_both || keeps_size) facts.elements_out = elements.front();
  if (const Value* const type = event.arg(kInputType); type != nullptr && type->is_list()) {
    facts.dtype = clean_text(first_text(type->text), 40);
  }
  rows_.collectives.push_back(std::move(facts));
  return static_cast<std::int32_t>(rows_.collectives.size()) - 1;
}

std::int32_t KinetoRows::product(const ParsedEvent& event, std::string_view name) {
  const int first = first_matrix_of(name);
  const Value* const dims = first >= 0 ? event.arg(kInputDims) : nullptr;
  if (dims == nullptr || !dims->is_list()) return -1;
  const auto shapes = shapes_of(dims->text);
  const auto place = static_cast<std::size_t>(first);
  if (shapes.size() < place + 2) return -1;
  Product found{flops_of(shapes[place], shapes[place + 1]), {}};
  if (found.flops <= 0) return -1;
  if (const Value* const type = event.arg(kInputType); type != nullptr && type->is_list()) {
    found.dtype = clean_text(first_text(type->text), 40);
  }
  rows_.products.push_back(std::move(found));
  return static_cast<std::int32_t>(rows_.products.size()) - 1;
}

std::int32_t KinetoRows::group(const ParsedEvent& event) {
  const std::string_view name = text_of(event.arg(field::kGroupName.name));
  const std::int64_t size = integer_or(event.arg(field::kGroupSize.name), -1);
  if (name.empty() && size < 0) return -1;
  const auto known = groups_.find(name.empty() ? fmt::format("{}", size) : std::string(name));
  if (known != groups_.end() && !rows_.groups[known->second].ranks.empty()) return known->second;
  std::vector<int> ranks = ranks_of(trace::listed_integers(text_of(event.arg(field::kGroupRanks.name))));
  const std::int64_t start = integer_or(event.arg(kRankStart), -1);
  const std::int64_t stride = integer_or(event.arg(kRankStride), -1);
  if (ranks.empty() && start >= 0 && stride > 0 && size > 0 && size < kMostRanks && start < kMostRanks &&
      stride < kMostRanks / size) {
    for (std::int64_t i = 0; i < size; ++i) ranks.push_back(static_cast<int>(start + i * stride));
  }
  if (known != groups_.end()) {
    rows_.groups[known->second].ranks = std::move(ranks);
    return known->second;
  }
  if (rows_.groups.size() >= trace::FileFacts::kMostGroups) return -1;
  const auto number = static_cast<std::int32_t>(rows_.groups.size());
  groups_.emplace(name.empty() ? fmt::format("{}", size) : std::string(name), number);
  rows_.groups.push_back({clean_text(name, 200), clean_text(text_of(event.arg(field::kGroupDescription.name)), 200),
                          size, std::move(ranks)});
  return number;
}

std::int32_t KinetoRows::thread(const ParsedEvent& event) {
  const std::pair key(integer_or(event.member(field::kPid.name), 0), integer_or(event.member(field::kTid.name), 0));
  const auto [known, fresh] = threads_.try_emplace(key, static_cast<std::int32_t>(rows_.threads.size()));
  if (fresh) rows_.threads.push_back(key.second);
  return known->second;
}

std::int32_t KinetoRows::stream(std::int64_t device, std::int64_t id) {
  const auto [known, fresh] = streams_.try_emplace({device, id}, static_cast<std::int32_t>(rows_.streams.size()));
  if (fresh) rows_.streams.push_back({device, id});
  return known->second;
}

void KinetoRows::add_groups(const trace::FileFacts& facts) {
  for (const trace::GroupFacts& told : facts.groups) {
    auto group = std::ranges::find(rows_.groups, told.name, &Group::name);
    if (group == rows_.groups.end()) {
      if (rows_.groups.size() >= trace::FileFacts::kMostGroups) return;
      rows_.groups.push_back({clean_text(told.name, 200), "", -1, {}});
      group = rows_.groups.end() - 1;
    }
    if (group->description.empty()) group->description = clean_text(told.description, 200);
    if (group->size < 0) group->size = told.size;
    if (group->ranks.empty()) group->ranks = ranks_of(told.ranks);
  }
}

/// A profiler's first kernels may have times of another clock, and those that it lost have none.
void KinetoRows::leave_out_far_rows() {
  if (host_.empty()) return;
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = std::numeric_limits<std::int64_t>::min();
  for (const LinkedHost& h : host_) {
    first = std::min(first, h.row.begin_ns);
    last = std::max(last, h.row.end_ns);
  }
  far_rows_ = static_cast<std::int64_t>(std::erase_if(device_, [&](const LinkedDevice& d) {
    return d.row.begin_ns < first - kFar_ns || d.row.end_ns > last + kFar_ns;
  }));
}

void KinetoRows::add_notes() {
  const auto note = [&](std::int64_t count, std::string_view what) {
    if (count > 0) rows_.notes.push_back(fmt::format("{} {}.", count, what));
  };
  note(without_times_, "rows have no begin or no length, or negative ones, and were left out");
  note(begins_and_ends_, "events mark begins and ends (ph B, E), which profilers of PyTorch do not write: left out");
  note(far_rows_, "rows of the device lie more than an hour from all that the host did, and were left out");
  note(std::ranges::count_if(
           rows_.device,
           [&](const DeviceRow& row) { return row.launch >= 0 && row.begin_ns < rows_.host[row.launch].begin_ns; }),
       "rows of the device begin before their launch, by the file's clocks");
  if (names_.full()) rows_.notes.emplace_back("The file has more names than are kept; some rows have lost theirs.");
}

/// Says what a kernel without fields communicates: by its own name, else by the op around its launch, else by the
/// range of a communicator in which it was launched. NCCL sends and receives for an all-to-all, and its kernel says no
/// more.
void KinetoRows::add_collectives_by_name(const std::vector<std::string>& names) {
  std::vector<std::optional<Communication>> ops;
  for (const std::string& name : names) ops.push_back(communication_of_op(name));
  const auto by_op = [&](std::int32_t at) -> std::optional<Communication> {
    for (; at >= 0; at = host_[at].row.parent) {
      const HostRow& around = host_[at].row;
      if (const auto kind = ops[around.name]) return kind;
    }
    return std::nullopt;
  };
  std::vector<std::vector<std::int32_t>> ranges;  // by thread, in the order of their begins
  for (std::size_t i = 0; i < host_.size(); ++i) {
    if (!is_range_of_collective(names[host_[i].row.name])) continue;
    const auto thread = static_cast<std::size_t>(host_[i].row.thread);
    if (ranges.size() <= thread) ranges.resize(thread + 1);
    ranges[thread].push_back(static_cast<std::int32_t>(i));
  }
  const auto by_range = [&](std::int32_t at) -> std::optional<Communication> {
    if (at < 0) return std::nullopt;
    const HostRow& launch = host_[at].row;
    if (static_cast<std::size_t>(launch.thread) >= ranges.size()) return std::nullopt;
    const auto& own = ranges[launch.thread];
    const auto row = [&](std::int32_t index) -> const HostRow& { return host_[index].row; };
    const auto after =
        std::ranges::upper_bound(own, launch.begin_ns, {}, [&](std::int32_t i) { return row(i).begin_ns; });
    if (after == own.begin() || row(after[-1]).end_ns < launch.end_ns) return std::nullopt;
    const std::string& name = names[row(after[-1]).name];
    // In a coalesced call all kernels but those that send and receive say what they do.
    return name.ends_with(":coalesced") ? Communication::send : communication_of_call(name);
  };
  for (LinkedDevice& d : device_) {
    if (d.row.kind != Activity::collective || d.row.collective >= 0) continue;
    CollectiveFacts own;
    own.kind = communication_of_kernel(names[d.row.name]).value_or(Communication::other);
    if (own.kind == Communication::other) {
      const auto op = by_op(d.row.launch);
      own.kind = (op ? op : by_range(d.row.launch)).value_or(Communication::other);
    }
    d.row.collective = static_cast<std::int32_t>(rows_.collectives.size());
    rows_.collectives.push_back(own);
  }
}

/// Ranges of NCCL tell bytes. What reduces has its type in its kernel's name; what is gathered is of a type in which it
/// has as many elements as something that is reduced. Where nothing tells the type, the size is not known.
void KinetoRows::find_types(const std::vector<std::string>& names) {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {"_bf16_", "BFloat16"}, {"_f16_", "Half"}, {"_f32_", "Float"}, {"_f64_", "Double"}};
  const auto take = [](CollectiveFacts& facts, std::string_view type) {
    facts.dtype = type;
    for (std::int64_t* n : {&facts.elements_in, &facts.elements_out}) *n = *n > 0 ? *n / bytes_of_dtype(type) : *n;
  };
  std::set<std::int64_t> reduced;
  std::set<std::int32_t> untold;
  for (const LinkedDevice& d : device_) {
    if (d.row.collective < 0) continue;
    CollectiveFacts& facts = rows_.collectives[d.row.collective];
    if (facts.dtype != "Byte") continue;
    const std::string& name = names[d.row.name];
    const auto type = std::ranges::find_if(kTypes, [&](const auto& one) { return name.find(one.first) != name.npos; });
    if (type == std::end(kTypes)) {
      untold.insert(d.row.collective);
    } else {
      take(facts, type->second);
      reduced.insert(std::max(facts.elements_in, facts.elements_out));
    }
  }
  const auto fits = [&](std::string_view type) {
    return std::ranges::all_of(untold, [&](std::int32_t one) {
      const std::int64_t bytes = rows_.collectives[one].elements_out;
      return bytes % bytes_of_dtype(type) == 0 && reduced.contains(bytes / bytes_of_dtype(type));
    });
  };
  const std::string_view type = fits("BFloat16") ? "BFloat16" : fits("Float") ? "Float" : fits("Byte") ? "Byte" : "";
  for (const std::int32_t one : untold) {
    CollectiveFacts& facts = rows_.collectives[one];
    if (type.empty()) facts.elements_in = facts.elements_out = -1;
    if (!type.empty()) take(facts, type);
  }
}

/// DeepEP's host polls memory until a kernel has written how many tokens come, which no row tells. Right after such a
/// launch nothing else is on its thread until about the kernel's end: that was a wait for the device. Whether there was
/// one.
bool KinetoRows::add_waits_for_counts(const std::vector<std::string>& names, std::int32_t wait_name) {
  constexpr std::int64_t kShortest_ns = 100'000, kAfter_ns = 1'000'000;
  std::vector<LinkedHost> waits;
  for (const LinkedDevice& d : device_) {
    if (d.row.launch < 0 || d.row.kind != Activity::collective) continue;
    if (names[d.row.name].find("notify_dispatch") == std::string::npos) continue;
    const HostRow launch = host_[d.row.launch].row;
    auto next = host_.begin() + d.row.launch + 1;
    while (next != host_.end() && (next->row.thread != launch.thread || next->row.begin_ns < launch.end_ns)) ++next;
    if (next == host_.end()) continue;
    const std::int64_t until = next->row.begin_ns;
    const bool of_it =
        until >= d.row.begin_ns && until <= d.row.end_ns + kAfter_ns && until - launch.end_ns >= kShortest_ns;
    if (!of_it) continue;
    waits.emplace_back().row = {launch.end_ns, until, launch.thread, wait_name, -1, -1, -1, HostWork::synchronise};
  }
  host_.insert(host_.end(), waits.begin(), waits.end());
  return !waits.empty();
}

RankRows KinetoRows::take(const trace::FileFacts& facts) {
  if (facts.rank && *facts.rank >= 0 && *facts.rank < kMostRanks) {
    rows_.rank = static_cast<int>(*facts.rank);
    rows_.rank_told = true;
  }
  if (facts.world_size && *facts.world_size > 0 && *facts.world_size <= kMostRanks) {
    rows_.world_size = static_cast<int>(*facts.world_size);
  }
  rows_.backend = clean_text(facts.backend, 200);
  rows_.device_model = clean_text(facts.device, 200);
  rows_.schema = facts.schema.value_or(-1);
  add_groups(facts);
  leave_out_far_rows();
  std::vector<bool> apart;
  std::vector<std::string> names = names_.take();
  for (const std::string& name : names) apart.push_back(is_range_of_collective(name));
  nest(host_, apart);
  link_launches(host_, arrows_, device_);
  if (add_waits_for_counts(names, static_cast<std::int32_t>(names.size()))) {
    names.emplace_back("wait for the counts of a dispatch");
    apart.push_back(false);
    nest(host_, apart);
    for (LinkedDevice& d : device_) d.row.launch = -1;
    link_launches(host_, arrows_, device_);
  }
  link_collectives(host_, device_);
  add_collectives_by_name(names);
  if (in_bytes_) find_types(names);
  rows_.names = names;
  rows_.device.reserve(device_.size());
  for (const LinkedDevice& d : device_) rows_.device.push_back(d.row);
  device_ = {};
  rows_.host.reserve(host_.size());
  for (const LinkedHost& h : host_) rows_.host.push_back(h.row);
  host_ = {};
  std::ranges::stable_sort(rows_.waits, {}, &StreamWait::asked_ns);
  std::ranges::stable_sort(rows_.memory, {}, &MemoryRow::time_ns);
  const auto step = [](const StepMark& s) { return std::tuple(s.begin_ns, s.number, s.end_ns); };
  std::ranges::sort(rows_.steps, {}, step);
  const auto twice = std::ranges::unique(rows_.steps, {}, &StepMark::number);
  rows_.steps.erase(twice.begin(), twice.end());
  if (rows_.device.empty()) add_host_work(rows_);
  add_notes();
  return std::move(rows_);
}

}  // namespace fsdpbench::foreign
