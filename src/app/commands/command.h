#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Commands. Each is one file of this folder, which has all of it: name, options, help, examples and body.
/// all_commands.cpp lists them; app/command_line.cpp reads a command line by them, and help.cpp writes their help.
namespace fsdpbench::app {

class Job;
class JsonPart;
struct ObjectFacts;

using ReadWord = std::function<void(const std::string&)>;
using ReadWords = std::function<void(const std::vector<std::string>&)>;
/// Destination of an option's value, whose type says what it may be. A bool is a flag. A vector takes several words.
/// Readers throw ConfigError.
using Target = std::variant<bool*, std::string*, std::optional<std::string>*, std::vector<std::string>*, int*,
                            std::optional<int>*, std::int64_t*, std::optional<std::int64_t>*, std::uint64_t*, double*,
                            std::optional<double>*, ReadWord, ReadWords>;

/// One option or argument of a command.
struct Option {
  std::string names;    ///< "-o,--out"; of an argument: "PROFILE"
  std::string type;     ///< what its value is called in the help: "DIR"; empty: a flag or an argument
  std::string meaning;  ///< empty: the help leaves it out
  Target target;
  bool is_required = false;
  std::optional<std::pair<std::int64_t, std::int64_t>> range;  ///< the least and the most that a number may be
  std::vector<std::string> words;                              ///< all that it may be
  std::optional<std::pair<int, int>> counts;  ///< how many words an argument takes, at least and at most
  bool has_list = false;                      ///< its words stand in one, with commas between
  bool may_repeat = false;                    ///< with one word each time; else one time takes all words
  bool may_stand_alone = false;               ///< "" is then its value
  std::vector<std::string> excluded;          ///< names of options that it does not go with
  bool goes_alone = false;                    ///< it does not go with any other: it shows a result as it was measured
  bool last_counts = false;                   ///< it may be given again

  bool is_argument() const { return !names.starts_with('-'); }
  Option& required() { return is_required = true, *this; }
  Option& within(std::int64_t least, std::int64_t most) { return range.emplace(least, most), *this; }
  Option& one_of(std::vector<std::string> all) { return words = std::move(all), *this; }
  Option& repeated() { return may_repeat = true, *this; }
  Option& list() { return has_list = true, *this; }
  Option& without(std::vector<std::string> others) { return excluded = std::move(others), *this; }
};

/// The headings of `fsdpbench --help`.
enum class CommandGroup : std::uint8_t { measure, predict, understand, operate, exchange };

/// Call of a command.
struct Call {
  Job* job = nullptr;                     ///< null, or the job whose rank 0 this is, for commands that run ranks
  std::vector<std::string> command_line;  ///< as typed
};

struct Command {
  Command(std::string its_name, CommandGroup its_group, std::string its_purpose, std::string its_help = "")
      : name(std::move(its_name)), group(its_group), purpose(std::move(its_purpose)), help(std::move(its_help)) {}

  std::string name;  ///< "run", "trace diff"
  CommandGroup group;
  std::string purpose;          ///< one line of `fsdpbench --help`
  std::string help;             ///< below the options; prose() of help.cpp sets it for the terminal's width
  std::deque<Option> options;   ///< in the order of the help; arguments in the order in which they are given
  bool runs_ranks = false;      ///< on all processes of a job; the others have one process do them
  std::function<void()> check;  ///< what only all options together tell, before anything begins; throws ConfigError
  /// Returns the process exit code; throws base/error.h errors.
  std::function<int(const Call&)> body;
  /// The part of every other rank of a job in what body orders by order_service() with the command's name; may be
  /// empty.
  std::function<void(Job&, const JsonPart& order)> serve;

  Option& argument(std::string name_of_it, Target target, std::string meaning);
  Option& option(std::string names, Target target, std::string type, std::string meaning);
  Option& flag(std::string names, bool& target, std::string meaning);

  // Options that several commands share. The arguments of a command live as long as its body.
  /// PROFILE and --set.
  Option& profile(std::string& profile, std::vector<std::string>& overrides);
  /// An option of the kind of --set, which may be given many times with one value each.
  Option& set(std::string names, std::vector<std::string>& overrides, std::string meaning);
  /// --ranks N and --cluster NAME, which append to the overrides of profile(), as they are declared after it.
  Option& ranks(std::vector<std::string>& overrides, std::string meaning = "The same as --set mesh.ranks=N");
  Option& cluster(std::vector<std::string>& overrides);
  /// --out DIR and --overwrite.
  Option& out(std::string& out, bool& overwrite, std::string meaning);
  void overwrite(bool& overwrite, std::string meaning = "Replace the result that DIR holds; otherwise it is refused");
};

/// All of them, in the order of the help.
std::vector<Command> all_commands();

/// The fields of what `trace diff` and `doctor --json` write.
const ObjectFacts& trace_diff_file_facts();
const ObjectFacts& doctor_file_facts();

}  // namespace fsdpbench::app
