#include "config/words/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "config/words/system_file.h"

namespace fsdpbench::dialects {
namespace {

class Reader {
 public:
  explicit Reader(const SystemFile& file) : file_(file) {}

  Words read() {
    Words words;
    words.name = file_.name;
    read_table(file_, file_.table,
               {{"place", into(words.place)},
                {"presets", [&](const auto& node) { read_presets(node, words.presets); }},
                {"meanings", [&](const auto& node) { read_meanings(node, words.meanings); }},
                {"answers", [&](const auto& node) { read_answers(node, words.answers); }},
                {"keys", [&](const auto& node) { read_keys(node, words.keys); }},
                {"trace", [&](const auto& node) { read_trace(node, words.traces); }},
                {"remedies", [&](const auto& node) { read_remedies(node, words.remedies.emplace()); }},
                {"host", {}},  // host_times()
                // Exports, written in the system's words: dialects/systems.cpp.
                {"export", {}},
                {"let", {}},
                {"rules", {}},
                {"parts", {}},
                {"files", {}}});
    return words;
  }

 private:
  using Into = std::function<void(const toml::node&)>;
  Into into(std::string& out) {
    return [this, &out](const toml::node& node) { out = text_of(file_, node); };
  }
  Into into(std::int64_t& out) {
    return [this, &out](const toml::node& node) {
      if (!node.is_integer()) refuse(file_, node, "expected a whole number");
      out = node.as_integer()->get();
    };
  }
  Into into(bool& out) {
    return [this, &out](const toml::node& node) {
      if (!node.is_boolean()) refuse(file_, node, "expected true or false");
      out = node.as_boolean()->get();
    };
  }
  Into into(std::vector<std::string_view>& out) {
    return [this, &out](const toml::node& node) {
      if (!node.is_array()) refuse(file_, node, "expected a list");
      for (const toml::node& element : *node.as_array()) out.emplace_back(text_of(file_, element));
    };
  }

  void read_presets(const toml::node& node, std::vector<Preset>& presets) {
    for (const auto& [name, preset] : in_order(table_of(file_, node))) {
      presets.emplace_back().name = name;
      for (const auto& [key, value] : in_order(table_of(file_, *preset))) {
        if (key == "like") {
          presets.back().like = text_of(file_, *value);
          continue;
        }
        for (const auto& [within, setting] : in_order(table_of(file_, *value))) {
          presets.back().settings.emplace_back(fmt::format("{}.{}", key, within), setting_of(*setting));
        }
      }
    }
  }

  decltype(Setting::second) setting_of(const toml::node& node) {
    if (node.is_boolean()) return node.as_boolean()->get();
    if (node.is_integer()) return node.as_integer()->get();
    if (node.is_floating_point()) return node.as_floating_point()->get();
    return text_of(file_, node);
  }

  void read_meanings(const toml::node& node, std::vector<Meaning>& meanings) {
    for (const auto& [key, values] : in_order(table_of(file_, node))) {
      for (const auto& [value, words] : in_order(table_of(file_, *values))) {
        std::vector<std::string_view> all;
        into(all)(*words);
        for (const std::string_view word : all)
          meanings.push_back({std::string(key), std::string(word), std::string(value)});
      }
    }
  }

  /// The name of an answer is the words that it is given to, with blanks between.
  void read_answers(const toml::node& node, std::vector<Answer>& answers) {
    for (const auto& [key, sentences] : in_order(table_of(file_, node))) {
      for (const auto& [words, sentence] : in_order(table_of(file_, *sentences))) {
        for (std::size_t begin = 0; begin <= words.size();) {
          const std::size_t end = std::min(words.find(' ', begin), words.size());
          const std::string_view word = words.substr(begin, end - begin);
          answers.push_back({std::string(key), std::string(word), text_of(file_, *sentence)});
          begin = end + 1;
        }
      }
    }
  }

  void read_keys(const toml::node& node, std::vector<KeyWord>& keys) {
    for (const auto& [key, words] : in_order(table_of(file_, node))) {
      std::vector<std::string_view> all;
      into(all)(*words);
      for (const std::string_view word : all) keys.push_back({std::string(word), std::string(key)});
    }
  }

  void read_trace(const toml::node& node, TraceNames& trace) {
    // clang-format off
    read_table(file_, node,
        {{"place", into(trace.place)},
         {"parts", into(trace.parts)},
         {"of_one_program", into(trace.of_one_program)},
         {"program", [&](const auto& names) {
            ProgramNames& program = trace.program;
            read_table(file_, names, {{"sharded", into(program.sharded)},
                                      {"quantized", into(program.quantized)},
                                      {"sharded_optimizer", into(program.sharded_optimizer)},
                                      {"data_parallel", into(program.data_parallel)}});
          }},
         {"presets", into(trace.presets)},
         {"expert_presets", into(trace.expert_presets)},
         {"quantization", into(trace.quantization)},
         {"layout_copies", into(trace.layout_copies)},
         {"copies", into(trace.copies)},
         {"prefetch", into(trace.prefetch)},
         {"forward_prefetch", into(trace.forward_prefetch)},
         {"backward_prefetch", into(trace.backward_prefetch)},
         {"post_backward_prefetch", into(trace.post_backward_prefetch)},
         {"limiter", into(trace.limiter)},
         {"copy_out", into(trace.copy_out)},
         {"after_forward", into(trace.after_forward)},
         {"after_backward", into(trace.after_backward)},
         {"drops_gathers", into(trace.drops_gathers)},
         {"likely", into(trace.likely)},
         {"likely_with_copies", into(trace.likely_with_copies)},
         {"units", [&](const auto& units) {
            read_table(file_, units, {{"begin", into(trace.units_begin)},
                                      {"verbs", into(trace.units_verbs)},
                                      {"prefetch", into(trace.units_prefetch)}});
          }}});
    // clang-format on
  }

  void read_remedies(const toml::node& node, Remedies& remedies) {
    read_table(file_, node,
               {{"prefetch_forward", into(remedies.prefetch_forward)},
                {"prefetch_backward", into(remedies.prefetch_backward)},
                {"no_limit", into(remedies.no_limit)},
                {"more_buffers", into(remedies.more_buffers)},
                {"separate_reductions", into(remedies.separate_reductions)},
                {"one_communicator", into(remedies.one_communicator)},
                {"accumulate", into(remedies.accumulate)},
                {"keep_after_forward", into(remedies.keep_after_forward)},
                {"keep_after_backward", into(remedies.keep_after_backward)},
                {"prefetch_less", into(remedies.prefetch_less)},
                {"no_reentrant", into(remedies.no_reentrant)}});
  }

  const SystemFile& file_;
};

constexpr std::pair<std::string_view, double HostTimes::*> kHostTimes[] = {
    {"step", &HostTimes::step},
    {"forward", &HostTimes::forward},
    {"backward", &HostTimes::backward},
    {"rotation", &HostTimes::rotation},
    {"compiled", &HostTimes::compiled},
    {"checkpoint", &HostTimes::checkpoint},
    {"reentrant_checkpoint", &HostTimes::reentrant_checkpoint},
    {"launch", &HostTimes::launch},
    {"gather", &HostTimes::gather},
    {"free", &HostTimes::free},
    {"reduce", &HostTimes::reduce},
    {"gather_tensor", &HostTimes::gather_tensor},
    {"alone", &HostTimes::alone},
    {"tensor", &HostTimes::tensor},
    {"exchange", &HostTimes::exchange},
    {"part", &HostTimes::part},
    {"visit", &HostTimes::visit},
    {"second_step", &HostTimes::second_step},
    {"update", &HostTimes::update},
    {"update_unit", &HostTimes::update_unit},
    {"update_tensor", &HostTimes::update_tensor},
    {"fused_update", &HostTimes::fused_update},
    {"update_sharded", &HostTimes::update_sharded},
    {"spread", &HostTimes::spread},
};

/// Those that have such a place, in that order.
template <class Place>
std::vector<const Words*> by_place(const std::vector<Words>& all, Place place) {
  std::map<std::int64_t, const Words*> placed;
  for (const Words& words : all) placed[place(words)] = &words;
  placed.erase(0);
  std::vector<const Words*> ordered;
  for (const auto& [number, words] : placed) ordered.push_back(words);
  return ordered;
}

const std::vector<Words>& words_of_files() {
  static const std::vector<Words> kWords = [] {
    std::vector<Words> all;
    for (const SystemFile& file : system_files()) all.push_back(read_words(file));
    return all;
  }();
  return kWords;
}

}  // namespace

Words read_words(const SystemFile& file) { return Reader(file).read(); }

std::optional<std::string> TraceNames::unit(std::string_view name) const {
  if (units_begin.empty() || !name.starts_with(units_begin)) return std::nullopt;
  if (const auto mark = name.find(units_prefetch); mark != std::string_view::npos) {
    return std::string(name.substr(mark + units_prefetch.size()));
  }
  const auto begin = units_begin.size(), open = name.find(" (");
  const std::string_view verb = name.substr(begin, open == std::string_view::npos ? open : open - begin);
  if (std::ranges::find(units_verbs, verb) == units_verbs.end()) return std::nullopt;
  if (open == std::string_view::npos) return std::string();
  const auto close = name.rfind(')');
  return std::string(name.substr(open + 2, close == std::string_view::npos ? close : close - open - 2));
}

std::span<const Words* const> all_words() {
  static const std::vector<const Words*> kAll = by_place(words_of_files(), [](const Words& w) { return w.place; });
  return kAll;
}

std::span<const Words* const> words_in_traces() {
  static const std::vector<const Words*> kTraced =
      by_place(words_of_files(), [](const Words& w) { return w.traces.place; });
  return kTraced;
}

HostTimes host_times(std::span<const std::string_view> engines) {
  HostTimes times;
  for (const std::string_view engine : engines) {
    for (const SystemFile& file : system_files()) {
      const toml::table* table = file.table["host"][engine].as_table();
      if (table == nullptr) continue;
      for (const auto& [key, node] : *table) {
        const auto field = std::ranges::find(kHostTimes, key.str(), [](const auto& named) { return named.first; });
        if (field == std::end(kHostTimes)) refuse(file, node, "there is no such time of a host");
        const std::optional<double> value = node.value<double>();
        if (!value || *value < 0) refuse(file, node, "expected a number of at least 0");
        times.*field->second = *value;
      }
    }
  }
  return times;
}

const Preset* find_preset(std::string_view name) {
  for (const Words* words : all_words()) {
    const auto found = std::ranges::find(words->presets, name, &Preset::name);
    if (found != words->presets.end()) return &*found;
  }
  return nullptr;
}

const Words* words_of_preset(std::string_view preset) {
  const auto has = [&](const Words* words) { return std::ranges::count(words->presets, preset, &Preset::name) > 0; };
  const auto found = std::ranges::find_if(all_words(), has);
  return found == all_words().end() ? nullptr : *found;
}

const Words& words_of(std::string_view system) { return **std::ranges::find(all_words(), system, &Words::name); }

std::span<const std::string_view> likely_presets(bool layout_copies) {
  const TraceNames& any = words_of("common").traces;
  return layout_copies ? any.likely_with_copies : any.likely;
}

}  // namespace fsdpbench::dialects
