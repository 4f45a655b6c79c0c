#include "foreign/xla_module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "base/error.h"
#include "foreign/wire_format.h"

namespace fsdpbench::foreign {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr int kMostTuples = 32;  // one in another

// By PrimitiveType of xla_data.proto.
constexpr std::string_view kTypes[] = {"",           "pred",       "s8",       "s16",      "s32",    "s64",
                                       "u8",         "u16",        "u32",      "u64",      "f16",    "f32",
                                       "f64",        "",           "",         "c64",      "bf16",   "",
                                       "c128",       "f8e5m2",     "f8e4m3fn", "s4",       "u4",     "f8e4m3b11fnuz",
                                       "f8e5m2fnuz", "f8e4m3fnuz", "s2",       "u2",       "f8e4m3", "f8e3m4",
                                       "s1",         "u1",         "f4e2m1fn", "f8e8m0fnu"};

HloArray array_of(std::string_view dtype, std::vector<std::int64_t> dims) {
  HloArray array{std::string(dtype), std::move(dims), 1, 0};
  for (const std::int64_t dim : array.dims) {
    if (dim < 0 || (dim > 0 && array.elements > kMostBytes / dim))
      throw ConfigError("has an array of more than 1 PiB.");
    array.elements *= dim;
  }
  array.bytes = array.elements * hlo_bytes(dtype);
  return array;
}

/// Collector of what either form of a module tells, one instruction after another. Names, and the numbers that protos
/// have instead, stand for what came before: XLA writes operands before what uses them, computations before their
/// callers. What is told of nothing that came before was trimmed away.
class ModuleBuilder {
 public:
  HloModule module;

  void computation(const std::string& name, bool entry) {
    const auto number = static_cast<std::int32_t>(module.computations.size());
    if (entry) module.entry = number;
    module.computations.emplace_back();
    computations_.emplace(name, number);
    rows_.clear();
  }

  /// `one` and what it is called; `config`, `groups`: as the text has them.
  void instruction(HloInstruction one, std::string_view name, const std::vector<std::string>& operands,
                   const std::vector<std::string>& called, std::string_view config, const std::string& groups) {
    constexpr std::size_t kMost = std::size_t{4} << 20;
    if (++instructions_ > kMost)
      throw ConfigError(fmt::format("has more than {} instructions, which is what is read.", kMost));
    const auto add = [](const auto& names, const std::vector<std::string>& of, std::vector<std::int32_t>& to) {
      for (const std::string& each : of) {
        if (const auto known = names.find(each); known != names.end()) to.push_back(known->second);
      }
    };
    add(rows_, operands, one.operands);
    add(computations_, called, one.called);
    one.sync = mentions(config, "\"is_sync\":true");
    one.pipelined = mentions(config, "\"is_pipelined\":true");
    module.since_0_11_1 = module.since_0_11_1 || mentions(config, "\"communication_domain\"");
    one.trips = number_behind("\"known_trip_count\":{\"n\":", config);
    if (!groups.empty()) {
      const auto [known, fresh] = groups_.try_emplace(groups, static_cast<std::int32_t>(module.groups.size()));
      if (fresh) module.groups.push_back(parse_groups(groups));
      one.groups = known->second;
    }
    std::vector<HloInstruction>& own = module.computations.back().instructions;
    rows_.emplace(name, static_cast<std::int32_t>(own.size()));
    own.push_back(std::move(one));
  }

  HloModule take() {
    if (module.entry < 0) throw ConfigError("has no entry computation: it is cut off, or no module of XLA's.");
    return std::move(module);
  }

 private:
  std::unordered_map<std::string, std::int32_t> computations_, rows_, groups_;  // rows: of the last computation
  std::size_t instructions_ = 0;
};

// ---- text

/// Where `text`, from `at` on, has `until` outside of brackets and quotes, or closes a bracket that it did not open;
/// its end if nowhere.
std::size_t end_of(std::string_view text, std::size_t at, char until) {
  for (int depth = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == until && depth == 0) break;
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    } else if (c == '(' || c == '{' || c == '[') {
      ++depth;
    } else if ((c == ')' || c == '}' || c == ']') && --depth < 0) {
      break;
    }
  }
  return std::min(at, text.size());
}

/// Calls `part` with each part of a list: "a, (b, c), /*index=2*/d}" has three.
void for_each_part(std::string_view list, const auto& part) {
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = end_of(list, begin, ',');
    std::string_view one = list.substr(begin, end - begin);
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    if (one.starts_with("/*")) one.remove_prefix(std::min(one.size(), one.find("*/") + 2));
    if (!one.empty()) part(one);
    if (end < list.size() && list[end] != ',') break;
    begin = end + 1;
  }
}

/// The last word: "name" of "%name", "name (" and "bf16[8]{0} %name".
std::string name_of(std::string_view text) {
  text = text.substr(text.rfind(' ') + 1);
  if (text.starts_with('%')) text.remove_prefix(1);
  return std::string(text.substr(0, text.find_first_of(",)}{(")));
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
  if (depth > kMostTuples) throw ConfigError("has a tuple in too many others.");
  if (shape.starts_with('(')) {
    for_each_part(shape.substr(1), [&](std::string_view part) { add_arrays(part, depth + 1, arrays); });
    return;
  }
  const std::size_t open = shape.find('[');
  if (open == shape.npos || hlo_bytes(shape.substr(0, open)) == 0) return;
  arrays.push_back(array_of(shape.substr(0, open), numbers_in(shape.substr(open + 1, shape.find(']') - open - 1))));
}

/// A line of a computation.
void text_instruction(std::string_view text, ModuleBuilder& to) {
  HloComputation& owner = to.module.computations.back();
  const bool root = text.starts_with("ROOT ");
  if (root) text.remove_prefix(5);
  const std::size_t equals = text.find(" = ");
  if (equals == text.npos) return;
  HloInstruction one;
  one.name = name_of(text.substr(0, equals));
  text.remove_prefix(equals + 3);
  const std::size_t behind_type = end_of(text, 0, ' ');
  add_arrays(text.substr(0, behind_type), 0, one.arrays);
  text.remove_prefix(std::min(text.size(), behind_type + 1));
  const std::size_t open = std::min(text.find('('), text.size()), close = end_of(text, open + 1, '\0');
  if (close == text.size()) return;
  one.opcode = text.substr(0, open);
  const std::string_view arguments = text.substr(open + 1, close - open - 1);
  std::vector<std::string> operands, called;
  if (one.opcode == "parameter") {
    one.index = number_behind("", arguments);
  } else if (one.opcode != "constant") {
    for_each_part(arguments, [&](std::string_view part) { operands.push_back(name_of(part)); });
  }
  std::string groups;
  std::string_view config;
  for_each_part(text.substr(close + 1), [&](std::string_view part) {
    const std::size_t at = std::min(part.find('='), part.size() - 1);
    const std::string_view key = part.substr(0, at), value = part.substr(at + 1);
    if (key == "metadata") one.op_name = quoted(value, "op_name=\"");
    if (key == "backend_config") config = value;
    if (key == "index") one.index = number_behind("", value);
    if (key == "lhs_contracting_dims") one.contracts = numbers_in(value);
    if (key == "replica_groups") groups = value;
    if (key == "device_ids") groups += fmt::format(", {}", part);
    if (key == "calls" || key == "body" || key == "condition" || key == "to_apply" ||
        key.find("_computation") != key.npos) {
      for_each_part(value.substr(value.starts_with('{')), [&](std::string_view name) {
        called.insert(key == "body" ? called.begin() : called.end(), name_of(name));
      });
    }
  });
  if (root) owner.root = static_cast<std::int32_t>(owner.instructions.size());
  const std::string name = one.name;
  to.instruction(std::move(one), name, operands, called, config, groups);
}

// ---- protobuf; numbers of fields are those of XLA's hlo.proto and xla_data.proto

void add_arrays_of_proto(std::string_view shape, int depth, std::vector<HloArray>& arrays) {
  if (depth > kMostTuples) throw ConfigError("has a tuple in too many others.");
  for (const std::string_view part : all_in(shape, 4)) add_arrays_of_proto(part, depth + 1, arrays);
  const auto type = static_cast<std::size_t>(integer_in(shape, 2));
  if (type < std::size(kTypes) && !kTypes[type].empty())
    arrays.push_back(array_of(kTypes[type], integers_in(shape, 3)));
}

/// "[4,2]T(1,0)" of a message with dimensions and their order in two fields.
std::string iota_text(std::string_view message, std::uint32_t dims, std::uint32_t order) {
  const std::vector<std::int64_t> turned = integers_in(message, order);
  return fmt::format("[{}]{}", fmt::join(integers_in(message, dims), ","),
                     turned.empty() ? "" : fmt::format("T({})", fmt::join(turned, ",")));
}

/// As the text has it, from a Mesh 1 with axes 1 and device ids 2 as a list or 3 as an iota, and AxisRefs 2.
std::string mesh_text(std::string_view bytes) {
  const std::string_view mesh = bytes_in(bytes, 1);
  std::string text = "mesh[";
  int number = 0;
  for (const std::string_view axis : all_in(mesh, 1)) text += fmt::format("'{}'={} ", number++, integer_in(axis, 2));
  text += "]";
  if (const auto ids = integers_in(mesh, 2); !ids.empty())
    text += fmt::format(", device_ids=({})", fmt::join(ids, ","));
  for (const std::string_view ids : all_in(mesh, 3)) text += fmt::format(", device_ids=({})", iota_text(ids, 1, 2));
  text += " {";
  for (const std::string_view axis : all_in(bytes, 2))
    text += fmt::format("'{}'{} ", integer_in(axis, 1), bytes_in(axis, 2).empty() ? "" : ":");
  return text + "}";
}

std::string groups_text(std::string_view instruction) {
  std::string text;
  for (const std::string_view list : all_in(instruction, 49))
    text += fmt::format("{}{{{}}}", text.empty() ? "{" : ",", fmt::join(integers_in(list, 1), ","));
  for (const std::string_view iota : all_in(instruction, 92))
    text = fmt::format("[{},{}]<={}", integer_in(iota, 1), integer_in(iota, 2), iota_text(iota, 3, 4));
  for (const std::string_view mesh : all_in(instruction, 93)) text = mesh_text(mesh);
  return text;
}

void proto_instruction(std::string_view bytes, ModuleBuilder& to) {
  const auto names = [&](std::uint32_t field) {
    std::vector<std::string> made;
    for (const std::int64_t number : integers_in(bytes, field)) made.push_back(std::to_string(number));
    return made;
  };
  HloInstruction one;
  one.name = bytes_in(bytes, 1);
  one.opcode = bytes_in(bytes, 2);
  one.op_name = bytes_in(bytes_in(bytes, 7), 2);
  one.contracts = integers_in(bytes_in(bytes, 30), 1);
  if (one.opcode == "parameter" || one.opcode == "get-tuple-element")
    one.index = integer_in(bytes, one.opcode == "parameter" ? 9 : 13);
  add_arrays_of_proto(bytes_in(bytes, 3), 0, one.arrays);
  const std::string id = std::to_string(integer_in(bytes, 35));
  to.instruction(std::move(one), id, names(36), names(38), bytes_in(bytes, 43), groups_text(bytes));
}

using Places = std::unordered_map<std::int64_t, std::size_t>;  // of instructions in the order of launches

void proto_computation(std::string_view bytes, std::int64_t entry, const Places& places, ModuleBuilder& to) {
  std::vector<std::pair<std::int64_t, std::string_view>> own;
  for (const std::string_view one : all_in(bytes, 2)) own.emplace_back(integer_in(one, 35), one);
  std::ranges::stable_sort(own, {}, [&](const auto& one) {
    const auto known = places.find(one.first);
    return known == places.end() ? places.size() : known->second;
  });
  const std::int64_t id = integer_in(bytes, 5), root = integer_in(bytes, 6);
  to.computation(std::to_string(id), id == entry);
  for (const auto& [number, instruction] : own) proto_instruction(instruction, to);
  const auto last = std::ranges::find(own, root, [](const auto& one) { return one.first; });
  if (last != own.end()) to.module.computations.back().root = static_cast<std::int32_t>(last - own.begin());
}

}  // namespace

HloModule parse_hlo_text(std::string_view text) {
  ModuleBuilder made;
  bool inside = false;
  for (std::size_t end = 0; !text.empty(); text.remove_prefix(std::min(text.size(), end + 1))) {
    end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.starts_with("HloModule ")) {
      made.module.name = line.substr(10, line.find_first_of(", ", 10) - 10);
      made.module.scheduled = line.find("is_scheduled=true") != line.npos;
      for (const std::string_view count : {"num_partitions=", "replica_count="})
        made.module.devices *= std::clamp<std::int64_t>(number_behind(count, line), 1, 1 << 20);
    } else if (line.starts_with('}')) {
      inside = false;
    } else if (!line.starts_with(' ') && line.ends_with('{') && line.find(" -> ") != line.npos) {
      const bool entry = line.starts_with("ENTRY ");
      if (entry) line.remove_prefix(6);
      made.computation(name_of(line.substr(0, line.find(' '))), entry);
      inside = true;
    } else if (inside && line.starts_with("  ")) {
      text_instruction(line.substr(2), made);
    }
  }
  if (made.module.name.empty()) throw ConfigError("is no text of XLA: it does not begin with HloModule.");
  return made.take();
}

HloModule parse_hlo_proto(std::string_view bytes) {
  if (!is_whole(bytes)) throw ConfigError("is no HloModuleProto, or is cut off.");
  std::unordered_map<std::int64_t, Places> places;  // by computation
  for (const std::string_view sequence : all_in(bytes_in(bytes, 7), 1)) {
    Places& own = places[integer_in(sequence, 1)];
    for (const std::int64_t one : integers_in(bytes_in(sequence, 2), 1)) own.emplace(one, own.size());
  }
  ModuleBuilder made;
  made.module.name = bytes_in(bytes, 1);
  made.module.scheduled = !places.empty();
  for (const std::string_view one : all_in(bytes, 3))
    proto_computation(one, integer_in(bytes, 6), places[integer_in(one, 5)], made);
  HloModule module = made.take();
  // The configuration is not read: all devices are in the groups of some collective.
  for (const ReplicaGroups& groups : module.groups) {
    std::int64_t devices = 0;
    for (const std::vector<int>& list : groups.lists) devices += std::ssize(list);
    module.devices = std::max(module.devices, devices);
  }
  return module;
}

std::vector<std::string_view> modules_in_xspace(std::string_view bytes) {
  std::vector<std::string_view> found{bytes};
  // XSpace planes 1, XPlane event_metadata 4, its value 2, XEventMetadata stats 5, XStat bytes 6, HloProto hlo_module 1
  for (const std::uint32_t field : {1, 4, 2, 5, 6, 1}) {
    std::vector<std::string_view> inner;
    for (const std::string_view message : found) std::ranges::copy(all_in(message, field), std::back_inserter(inner));
    std::erase(inner, "");
    found = std::move(inner);
  }
  return found;
}

int hlo_bytes(std::string_view dtype) {
  if (dtype.empty() || std::ranges::find(kTypes, dtype) == std::end(kTypes)) return 0;
  const auto bits = numbers_in(dtype);
  return bits.empty() ? 1 : std::max(1, static_cast<int>(bits[0] / 8));
}

const HloKind* kind_of_hlo(std::string_view opcode) {
  using C = Communication;
  using K = clock::Collective;
  static constexpr HloKind kKinds[] = {{"all-gather", "AG", C::all_gather, K::all_gather},
                                       {"reduce-scatter", "RS", C::reduce_scatter, K::reduce_scatter},
                                       {"all-reduce", "AR", C::all_reduce, K::all_reduce},
                                       {"all-to-all", "A2A", C::all_to_all, K::all_to_all},
                                       {"ragged-all-to-all", "A2A", C::all_to_all, K::all_to_all},
                                       {"collective-broadcast", "C", C::broadcast, K::broadcast},
                                       {"collective-permute", "CP", C::send, K::send_recv}};
  if (opcode.ends_with("-start")) opcode.remove_suffix(6);
  const auto* const found = std::ranges::find(kKinds, opcode, &HloKind::opcode);
  return found == std::end(kKinds) ? nullptr : found;
}

std::optional<schedule::Phase> phase_of_path(std::string_view op_name) {
  if (mentions(op_name, "transpose(") || mentions(op_name, "rematted_computation")) return schedule::Phase::backward;
  return mentions(op_name, "jvp(") ? std::optional(schedule::Phase::forward) : std::nullopt;
}

std::optional<HloCollective> collective_of(const HloModule& module, std::int32_t computation, std::int32_t row) {
  const HloComputation& own = module.computations[computation];
  const HloInstruction& one = module.row(computation, row);
  const HloComputation* around = &own;  // where the collective's operands are
  const HloInstruction* inner = &one;
  if (one.opcode == "async-start" && !one.called.empty()) {
    around = &module.computations[one.called.front()];
    if (around->root < 0) return std::nullopt;
    inner = &around->instructions[around->root];
  }
  const HloKind* const kind = kind_of_hlo(inner->opcode);
  if (kind == nullptr) return std::nullopt;
  HloCollective found{*kind};
  found.computation = computation;
  found.row = row;
  found.groups = inner->groups;
  std::size_t operands = 0;
  std::int64_t most = -1;
  for (const std::int32_t operand : inner->operands) {
    for (const HloArray& array : around->instructions[operand].arrays) {
      ++operands;
      if (array.bytes > most) found.dtype = array.dtype;
      most = std::max(most, array.bytes);
      found.bytes_in += array.bytes;
    }
  }
  // A start of some kinds has its operands before its results, and a context behind them.
  const std::size_t first = one.arrays.size() >= 2 * operands ? operands : 0;
  for (std::size_t i = first; i < std::min(one.arrays.size(), first + operands); ++i)
    found.bytes_out += one.arrays[i].bytes;
  found.operands = static_cast<int>(operands);
  const bool starts = one.opcode.ends_with("-start");
  found.asynchronous = starts && !one.sync;
  found.pipelined = one.pipelined || inner->pipelined;
  for (std::int32_t i = row + 1; starts && found.done < 0 && i < std::ssize(own.instructions); ++i) {
    const HloInstruction& later = module.row(computation, i);
    if (later.opcode.ends_with("-done") && !later.operands.empty() && later.operands.front() == row) found.done = i;
  }
  return found;
}

}  // namespace fsdpbench::foreign
