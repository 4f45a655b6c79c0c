#include "foreign/xla_module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "foreign/wire_format.h"

namespace fsdpbench::foreign {
namespace {

constexpr std::size_t kMostInstructions = std::size_t{4} << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

struct HloType {
  std::string_view name;
  int number;  ///< PrimitiveType of xla_data.proto
  int bytes;
  std::string_view c10;
};
constexpr auto kTypes = std::to_array<HloType>({{"pred", 1, 1, "Bool"},
                                                {"s8", 2, 1, "Char"},
                                                {"s16", 3, 2, "Short"},
                                                {"s32", 4, 4, "Int"},
                                                {"s64", 5, 8, "Long"},
                                                {"u8", 6, 1, "Byte"},
                                                {"u16", 7, 2, "Short"},
                                                {"u32", 8, 4, "Int"},
                                                {"u64", 9, 8, "Long"},
                                                {"f16", 10, 2, "Half"},
                                                {"f32", 11, 4, "Float"},
                                                {"f64", 12, 8, "Double"},
                                                {"c64", 15, 8, "ComplexFloat"},
                                                {"bf16", 16, 2, "BFloat16"},
                                                {"c128", 18, 16, "ComplexDouble"},
                                                {"f8e5m2", 19, 1, "Float8_e5m2"},
                                                {"f8e4m3fn", 20, 1, "Float8_e4m3fn"}});

/// "8e4m3fn" in "f8e4m3fn"; of other types of one byte the name alone tells the size.
const HloType* type_of(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &HloType::name);
  return found == kTypes.end() ? nullptr : &*found;
}

HloArray array_of(std::string_view dtype, std::vector<std::int64_t> dims) {
  HloArray array{std::string(dtype), std::move(dims), 1, 0};
  const auto bytes = hlo_type(dtype).first;
  for (const std::int64_t dim : array.dims) {
    if (dim < 0 || (dim > 0 && array.elements > kMostBytes / dim))
      throw ConfigError("has an array of more than 1 PiB.");
    array.elements *= dim;
  }
  array.bytes = array.elements * bytes;
  return array;
}

void read_config(std::string_view config, HloInstruction& one) {
  one.sync = config.find("\"is_sync\":true") != config.npos;
  one.pipelined = config.find("\"is_pipelined\":true") != config.npos;
  constexpr std::string_view kTrips = "\"known_trip_count\":{\"n\":\"";
  if (const std::size_t at = config.find(kTrips); at != config.npos) {
    const char* const begin = config.data() + at + kTrips.size();
    std::from_chars(begin, config.data() + config.size(), one.trips);
  }
}

/// What both forms of a module build up.
class ModuleBuilder {
 public:
  HloModule module;

  std::int32_t groups(std::string_view key, const auto& read) {
    const auto [known, fresh] = groups_.try_emplace(std::string(key), static_cast<std::int32_t>(module.groups.size()));
    if (fresh) module.groups.push_back(read());
    return known->second;
  }

  void count() {
    if (++instructions_ > kMostInstructions) {
      throw ConfigError(fmt::format("has more than {} instructions, which is what is read.", kMostInstructions));
    }
  }

 private:
  std::map<std::string, std::int32_t> groups_;
  std::size_t instructions_ = 0;
};

// ---- text

/// Where the bracket that `text` has at `open` is closed, quotes passed over; npos: nowhere.
std::size_t closing(std::string_view text, std::size_t open) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t at = open; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '(' || c == '{' || c == '[') {
      ++depth;
    } else if ((c == ')' || c == '}' || c == ']') && --depth == 0) {
      return at;
    }
  }
  return std::string_view::npos;
}

/// Calls `part` with each part of a list that commas outside of brackets and quotes separate.
void for_each_part(std::string_view list, const auto& part) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    if (at < list.size() && (list[at] == '(' || list[at] == '{' || list[at] == '[')) {
      at = closing(list, at);
      if (at == list.npos) break;
      continue;
    }
    if (at < list.size() && list[at] == '"') {
      for (++at; at < list.size() && list[at] != '"'; ++at) at += list[at] == '\\' ? 1 : 0;
      continue;
    }
    if (at < list.size() && list[at] != ',') continue;
    std::string_view one = list.substr(begin, at - begin);
    begin = at + 1;
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (one.starts_with("/*")) one.remove_prefix(std::min(one.size(), one.find("*/") + 2));  // /*index=5*/
    if (!one.empty()) part(one);
  }
}

std::string_view without_percent(std::string_view name) {
  while (name.starts_with(' ') || name.starts_with('%')) name.remove_prefix(1);
  return name.substr(0, name.find_first_of(" ,)}{"));
}

/// The text behind `key`, to its closing quote.
std::string quoted(std::string_view text, std::string_view key) {
  std::string found;
  std::size_t at = text.find(key);
  if (at == text.npos) return found;
  for (at += key.size(); at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) ++at;
    found += text[at];
  }
  return found;
}

/// "(bf16[512,4096]{1,0}, bf16[4096,4096]{1,0})", "f32[]".
void add_arrays(std::string_view shape, int depth, std::vector<HloArray>& arrays) {
  constexpr int kDeepest = 32;
  if (depth > kDeepest) throw ConfigError("has a tuple in too many others.");
  if (shape.starts_with('(')) {
    const std::size_t end = closing(shape, 0);
    for_each_part(shape.substr(1, end == shape.npos ? end : end - 1),
                  [&](std::string_view part) { add_arrays(part, depth + 1, arrays); });
    return;
  }
  const std::size_t open = shape.find('[');
  if (open == shape.npos || hlo_type(shape.substr(0, open)).first == 0) return;
  arrays.push_back(array_of(shape.substr(0, open), numbers_in(shape.substr(open + 1, shape.find(']') - open - 1))));
}

class TextReader {
 public:
  HloModule read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      line(text.substr(0, end));
      text.remove_prefix(std::min(text.size(), end + 1));
    }
    if (built_.module.name.empty()) throw ConfigError("is no text of XLA: it does not begin with HloModule.");
    if (built_.module.entry < 0) throw ConfigError("has no ENTRY computation: it is cut off, or no module of XLA's.");
    for (const auto& [where, name] : calls_) {
      const auto known = names_.find(name);
      if (known == names_.end()) continue;  // trimmed away
      auto& [computation, row] = where;
      built_.module.computations[computation].instructions[row].called.push_back(known->second);
    }
    return std::move(built_.module);
  }

 private:
  void line(std::string_view text) {
    if (text.starts_with("HloModule ")) {
      built_.module.name = without_percent(text.substr(10));
      built_.module.scheduled = text.find("is_scheduled=true") != text.npos;
      built_.module.partitions = attribute(text, "num_partitions=");
      built_.module.replicas = attribute(text, "replica_count=");
    } else if (text.starts_with('}')) {
      inside_ = false;
    } else if (!text.starts_with(' ') && text.ends_with('{') && text.find(" -> ") != text.npos) {
      const bool entry = text.starts_with("ENTRY ");
      if (entry) text.remove_prefix(6);
      if (entry) built_.module.entry = static_cast<std::int32_t>(built_.module.computations.size());
      HloComputation& made = built_.module.computations.emplace_back();
      made.name = without_percent(text);
      names_.emplace(made.name, static_cast<std::int32_t>(built_.module.computations.size()) - 1);
      rows_.clear();
      inside_ = true;
    } else if (inside_ && text.starts_with("  ")) {
      instruction(text.substr(2));
    }
  }

  static std::int64_t attribute(std::string_view text, std::string_view key) {
    const std::size_t at = text.find(key);
    std::int64_t number = 1;
    if (at != text.npos) std::from_chars(text.data() + at + key.size(), text.data() + text.size(), number);
    return number;
  }

  void instruction(std::string_view text) {
    const bool root = text.starts_with("ROOT ");
    if (root) text.remove_prefix(5);
    const std::size_t equals = text.find(" = ");
    if (equals == text.npos) return;
    HloInstruction one;
    one.name = without_percent(text.substr(0, equals));
    text.remove_prefix(equals + 3);
    // The type ends at the first space outside of brackets.
    std::size_t end = text.starts_with('(') ? closing(text, 0) : 0;
    if (end == text.npos) return;
    while (end < text.size() && text[end] != ' ') {
      if (text[end] == '{' || text[end] == '[') end = std::min(closing(text, end), text.size() - 1);
      ++end;
    }
    add_arrays(text.substr(0, end), 0, one.arrays);
    text.remove_prefix(std::min(text.size(), end + 1));
    const std::size_t open = text.find('(');
    if (open == text.npos) return;
    one.opcode = text.substr(0, open);
    const std::size_t close = closing(text, open);
    if (close == text.npos) return;
    built_.count();
    const std::string_view operands = text.substr(open + 1, close - open - 1);
    if (one.opcode == "parameter") {
      std::from_chars(operands.data(), operands.data() + operands.size(), one.index);
    } else if (one.opcode != "constant") {
      for_each_part(operands, [&](std::string_view part) {
        const auto known = rows_.find(without_percent(part.substr(part.rfind(' ') == part.npos ? 0 : part.rfind(' '))));
        if (known != rows_.end()) one.operands.push_back(known->second);
      });
    }
    HloComputation& owner = built_.module.computations.back();
    const std::pair where(built_.module.computations.size() - 1, owner.instructions.size());
    std::string_view mesh, order;
    for_each_part(text.substr(close + 1), [&](std::string_view part) {
      const std::size_t at = part.find('=');
      if (at == part.npos) return;
      const std::string_view key = part.substr(0, at), value = part.substr(at + 1);
      if (key == "metadata") {
        one.op_name = quoted(value, "op_name=\"");
      } else if (key == "backend_config") {
        read_config(value, one);
      } else if (key == "index") {
        std::from_chars(value.data(), value.data() + value.size(), one.index);
      } else if (key == "lhs_contracting_dims") {
        one.contracts = numbers_in(value);
      } else if (key == "replica_groups") {
        mesh = value;
      } else if (key == "device_ids") {
        order = part;
      } else if (key == "calls" || key == "body" || key == "condition" || key == "to_apply" ||
                 key == "branch_computations" || key.ends_with("_computation")) {
        const std::string_view list = value.starts_with('{') ? value.substr(1, value.size() - 2) : value;
        for_each_part(list, [&](std::string_view name) { calls_.emplace_back(where, without_percent(name)); });
      }
    });
    if (!mesh.empty()) {
      const std::string whole = order.empty() ? std::string(mesh) : fmt::format("{}, {}", mesh, order);
      one.groups = built_.groups(whole, [&] { return parse_groups(whole); });
    }
    if (root) owner.root = static_cast<std::int32_t>(owner.instructions.size());
    owner.instructions.push_back(std::move(one));
    const auto row = static_cast<std::int32_t>(owner.instructions.size()) - 1;
    rows_.emplace(owner.instructions.back().name, row);
  }

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  template <typename Value>
  using Names = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  ModuleBuilder built_;
  Names<std::int32_t> names_;  // computations
  Names<std::int32_t> rows_;   // instructions of the last one
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, std::string>> calls_;
  bool inside_ = false;
};

// ---- protobuf; numbers of fields are those of XLA's hlo.proto and xla_data.proto

void check(const WireMessage& message) {
  if (message.broken()) throw ConfigError("is no HloModuleProto, or is cut off.");
}

void add_arrays_of_proto(std::string_view shape, int depth, std::vector<HloArray>& arrays) {
  constexpr int kDeepest = 32;
  if (depth > kDeepest) throw ConfigError("has a tuple in too many others.");
  constexpr std::uint32_t kType = 2, kDims = 3, kTuple = 4;
  int type = 0;
  bool tuple = false;
  std::vector<std::int64_t> dims;
  WireMessage in(shape);
  while (in.next()) {
    if (in.field() == kType) type = static_cast<int>(in.integer());
    if (in.field() == kDims) in.add_to(dims);
    if (in.field() == kTuple) {
      tuple = true;
      add_arrays_of_proto(in.bytes(), depth + 1, arrays);
    }
  }
  check(in);
  const auto known = std::ranges::find(kTypes, type, &HloType::number);
  if (!tuple && known != kTypes.end()) arrays.push_back(array_of(known->name, std::move(dims)));
}

/// One of the numbers 1 to 4 of a message, each a repeated number.
std::array<std::vector<std::int64_t>, 5> lists_of(std::string_view bytes) {
  std::array<std::vector<std::int64_t>, 5> lists;
  WireMessage in(bytes);
  while (in.next()) {
    if (in.field() < lists.size()) in.add_to(lists.at(in.field()));
  }
  return lists;
}

ReplicaGroups mesh_of(std::string_view bytes) {
  std::vector<std::int64_t> axes, named;
  std::vector<int> devices;
  bool whole = true;
  WireMessage in(bytes);
  while (in.next()) {
    WireMessage part(in.bytes());
    if (in.field() == 1) {  // Mesh: axes 1, device ids 2 as a list or 3 as an iota
      while (part.next()) {
        if (part.field() == 1) axes.push_back(lists_of(part.bytes())[2].empty() ? 0 : lists_of(part.bytes())[2].back());
        if (part.field() == 2) {
          std::vector<std::int64_t> list;
          part.add_to(list);
          for (const std::int64_t id : list) devices.push_back(static_cast<int>(id));
        }
        if (part.field() == 3) devices = iota_numbers({lists_of(part.bytes())[1], lists_of(part.bytes())[2]});
      }
    } else if (in.field() == 2) {  // AxisRef: an axis, and which part of it
      std::int64_t axis = 0;
      while (part.next()) {
        if (part.field() == 1) axis = part.integer();
        whole = whole && part.field() == 1;
      }
      named.push_back(axis);
    }
  }
  return whole ? mesh_groups(axes, named, devices) : ReplicaGroups();
}

class ProtoReader {
 public:
  HloModule read(std::string_view bytes) {
    constexpr std::uint32_t kName = 1, kComputations = 3, kEntry = 6, kSchedule = 7;
    std::int64_t entry = -1;
    std::string_view schedule;
    WireMessage in(bytes);
    std::vector<std::string_view> computations;
    while (in.next()) {
      if (in.field() == kName) built_.module.name = in.bytes();
      if (in.field() == kComputations) computations.push_back(in.bytes());
      if (in.field() == kEntry) entry = in.integer();
      if (in.field() == kSchedule) schedule = in.bytes();
    }
    check(in);
    read_schedule(schedule);
    for (const std::string_view one : computations) computation(one);
    if (const auto known = numbers_.find(entry); known != numbers_.end()) built_.module.entry = known->second;
    if (built_.module.entry < 0) throw ConfigError("has no entry computation: it is no module of XLA's, or cut off.");
    for (const auto& [where, number] : calls_) {
      const auto known = numbers_.find(number);
      if (known == numbers_.end()) continue;
      built_.module.computations[where.first].instructions[where.second].called.push_back(known->second);
    }
    // The configuration is not read: all devices are in the groups of some collective.
    for (const ReplicaGroups& groups : built_.module.groups) {
      std::int64_t devices = 0;
      for (const std::vector<int>& list : groups.lists) devices += static_cast<std::int64_t>(list.size());
      built_.module.partitions = std::max(built_.module.partitions, devices);
    }
    return std::move(built_.module);
  }

 private:
  void read_schedule(std::string_view bytes) {
    WireMessage in(bytes);
    while (in.next()) {
      if (in.field() != 1) continue;  // sequences: computation 1, InstructionSequence 2
      std::int64_t computation = 0;
      std::vector<std::int64_t> ids;
      WireMessage entry(in.bytes());
      while (entry.next()) {
        if (entry.field() == 1) computation = entry.integer();
        if (entry.field() == 2) ids = lists_of(entry.bytes())[1];
      }
      order_[computation] = std::move(ids);
      built_.module.scheduled = true;
    }
    check(in);
  }

  void computation(std::string_view bytes) {
    constexpr std::uint32_t kName = 1, kInstructions = 2, kId = 5, kRoot = 6;
    std::vector<std::pair<std::int64_t, std::string_view>> own;
    std::int64_t id = 0, root = -1;
    std::string name;
    WireMessage in(bytes);
    while (in.next()) {
      if (in.field() == kName) name = in.bytes();
      if (in.field() == kId) id = in.integer();
      if (in.field() == kRoot) root = in.integer();
      if (in.field() != kInstructions) continue;
      constexpr std::uint32_t kInstructionId = 35;
      std::int64_t number = 0;
      WireMessage one(in.bytes());
      while (one.next()) {
        if (one.field() == kInstructionId) number = one.integer();
      }
      own.emplace_back(number, in.bytes());
    }
    check(in);
    if (const auto order = order_.find(id); order != order_.end()) {
      std::unordered_map<std::int64_t, std::size_t> place;
      for (std::size_t i = 0; i < order->second.size(); ++i) place.emplace(order->second[i], i);
      std::ranges::stable_sort(own, {}, [&](const auto& one) {
        const auto known = place.find(one.first);
        return known == place.end() ? place.size() : known->second;
      });
    }
    numbers_.emplace(id, static_cast<std::int32_t>(built_.module.computations.size()));
    HloComputation& made = built_.module.computations.emplace_back();
    made.name = std::move(name);
    std::unordered_map<std::int64_t, std::int32_t> rows;
    for (std::size_t i = 0; i < own.size(); ++i) rows.emplace(own[i].first, static_cast<std::int32_t>(i));
    for (const auto& [number, text] : own) instruction(text, rows, made);
    if (const auto row = rows.find(root); row != rows.end()) made.root = row->second;
  }

  void instruction(std::string_view bytes, const std::unordered_map<std::int64_t, std::int32_t>& rows,
                   HloComputation& owner) {
    enum : std::uint32_t {
      name = 1,
      opcode = 2,
      shape = 3,
      metadata = 7,
      parameter = 9,
      tuple_index = 13,
      dot = 30,
      operands = 36,
      called = 38,
      config = 43,
      lists = 49,
      iota = 92,
      mesh = 93
    };
    built_.count();
    HloInstruction one;
    std::string listed;
    std::vector<std::int64_t> ids, callees;
    WireMessage in(bytes);
    while (in.next()) {
      switch (in.field()) {
        case name: one.name = in.bytes(); break;
        case opcode: one.opcode = in.bytes(); break;
        case shape: add_arrays_of_proto(in.bytes(), 0, one.arrays); break;
        case metadata: {
          WireMessage part(in.bytes());
          while (part.next()) {
            if (part.field() == 2) one.op_name = part.bytes();
          }
          break;
        }
        case parameter:
        case tuple_index: one.index = std::max(one.index, in.integer()); break;
        case dot: one.contracts = lists_of(in.bytes())[1]; break;
        case operands: in.add_to(ids); break;
        case called: in.add_to(callees); break;
        case config: read_config(in.bytes(), one); break;
        case lists:
          listed += fmt::format("{}{{{}}}", listed.empty() ? "{" : ",", fmt::join(lists_of(in.bytes())[1], ","));
          break;
        case iota: {
          const auto parts = lists_of(in.bytes());
          if (parts[1].empty() || parts[2].empty()) break;
          one.groups = built_.groups(fmt::format("iota {}", in.bytes()), [&] {
            return iota_groups(parts[1].back(), parts[2].back(), {parts[3], parts[4]});
          });
          break;
        }
        case mesh:
          one.groups = built_.groups(fmt::format("mesh {}", in.bytes()), [&] { return mesh_of(in.bytes()); });
          break;
        default: break;
      }
    }
    check(in);
    if (!listed.empty()) {
      listed += '}';
      one.groups = built_.groups(listed, [&] { return parse_groups(listed); });
    }
    if (one.index < 0 && (one.opcode == "parameter" || one.opcode == "get-tuple-element")) one.index = 0;
    for (const std::int64_t id : ids) {
      const auto row = rows.find(id);
      if (row != rows.end()) one.operands.push_back(row->second);
    }
    const std::pair where(built_.module.computations.size() - 1, owner.instructions.size());
    for (const std::int64_t id : callees) calls_.emplace_back(where, id);
    owner.instructions.push_back(std::move(one));
  }

  ModuleBuilder built_;
  std::unordered_map<std::int64_t, std::int32_t> numbers_;  // computations by id
  std::unordered_map<std::int64_t, std::vector<std::int64_t>> order_;
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, std::int64_t>> calls_;
};

}  // namespace

HloModule parse_hlo_text(std::string_view text) { return TextReader().read(text); }
HloModule parse_hlo_proto(std::string_view bytes) { return ProtoReader().read(bytes); }

std::pair<int, std::string_view> hlo_type(std::string_view dtype) {
  if (const HloType* known = type_of(dtype)) return {known->bytes, known->c10};
  return {dtype.starts_with("f8") || dtype.starts_with("f4") || dtype == "s4" || dtype == "u4" ? 1 : 0, ""};
}

std::optional<Communication> communication_of_hlo(std::string_view opcode) {
  constexpr auto kKinds =
      std::to_array<std::pair<std::string_view, Communication>>({{"all-gather", Communication::all_gather},
                                                                 {"reduce-scatter", Communication::reduce_scatter},
                                                                 {"all-reduce", Communication::all_reduce},
                                                                 {"all-to-all", Communication::all_to_all},
                                                                 {"ragged-all-to-all", Communication::all_to_all},
                                                                 {"collective-broadcast", Communication::broadcast},
                                                                 {"collective-permute", Communication::send}});
  if (opcode.ends_with("-start")) opcode.remove_suffix(6);
  const auto found = std::ranges::find(kKinds, opcode, &std::pair<std::string_view, Communication>::first);
  return found == kKinds.end() ? std::nullopt : std::optional(found->second);
}

std::optional<schedule::Phase> phase_of_path(std::string_view op_name) {
  for (const std::string_view word : {"transpose(", "rematted_computation"}) {
    if (op_name.find(word) != op_name.npos) return schedule::Phase::backward;
  }
  if (op_name.find("jvp(") != op_name.npos) return schedule::Phase::forward;
  return std::nullopt;
}

std::optional<HloCollective> collective_of(const HloModule& module, std::int32_t computation, std::int32_t row) {
  const HloComputation& own = module.computations[static_cast<std::size_t>(computation)];
  const HloInstruction& one = own.instructions[static_cast<std::size_t>(row)];
  const HloComputation* around = &own;  // where the collective's operands are
  const HloInstruction* inner = &one;
  if (one.opcode == "async-start" && !one.called.empty()) {
    around = &module.computations[static_cast<std::size_t>(one.called.front())];
    if (around->root < 0) return std::nullopt;
    inner = &around->instructions[static_cast<std::size_t>(around->root)];
  }
  const auto kind = communication_of_hlo(inner->opcode);
  if (!kind || inner->opcode.ends_with("-done")) return std::nullopt;
  HloCollective found;
  found.computation = computation;
  found.row = row;
  found.kind = *kind;
  found.groups = inner->groups;
  std::size_t operands = 0;
  for (const std::int32_t operand : inner->operands) {
    for (const HloArray& array : around->instructions[static_cast<std::size_t>(operand)].arrays) {
      if (operands++ == 0) found.dtype = array.dtype;
      found.elements_in += array.elements;
      found.bytes_in += array.bytes;
    }
  }
  // A start of some kinds has its operands before its results, and a context behind them.
  const std::size_t first = one.arrays.size() >= 2 * operands ? operands : 0;
  for (std::size_t i = first; i < std::min(one.arrays.size(), first + operands); ++i) {
    found.elements_out += one.arrays[i].elements;
    found.bytes_out += one.arrays[i].bytes;
  }
  found.operands = static_cast<int>(operands);
  const bool starts = one.opcode.ends_with("-start");
  found.asynchronous = starts && !one.sync;
  found.pipelined = one.pipelined || inner->pipelined;
  for (std::size_t i = static_cast<std::size_t>(row) + 1; starts && i < own.instructions.size(); ++i) {
    const HloInstruction& later = own.instructions[i];
    if (!later.opcode.ends_with("-done") || later.operands.empty() || later.operands.front() != row) continue;
    found.done = static_cast<std::int32_t>(i);
    break;
  }
  return found;
}

}  // namespace fsdpbench::foreign
