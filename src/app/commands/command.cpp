#include "app/commands/command.h"

namespace fsdpbench::app {

Option& Command::argument(std::string name_of_it, Target target, std::string meaning) {
  Option& added = option(std::move(name_of_it), std::move(target), "", std::move(meaning));
  return added.required();
}

Option& Command::option(std::string names, Target target, std::string type, std::string meaning) {
  Option& added = options.emplace_back();
  added.names = std::move(names);
  added.type = std::move(type);
  added.meaning = std::move(meaning);
  added.target = std::move(target);
  return added;
}

Option& Command::flag(std::string names, bool& target, std::string meaning) {
  return option(std::move(names), &target, "", std::move(meaning));
}

Option& Command::profile(std::string& profile, std::vector<std::string>& overrides) {
  Option& added =
      argument("PROFILE", &profile, "A run profile (TOML), a result folder, or the name of a profile or model");
  set("-s,--set", overrides, "Set one key, as in --set mesh.ranks=8; may be repeated");
  return added;
}

Option& Command::set(std::string names, std::vector<std::string>& overrides, std::string meaning) {
  return option(std::move(names), &overrides, "KEY=VALUE", std::move(meaning)).repeated();
}

Option& Command::ranks(std::vector<std::string>& overrides, std::string meaning) {
  const ReadWord append = [&overrides](const std::string& count) { overrides.push_back("mesh.ranks=" + count); };
  return option("-r,--ranks", append, "N", std::move(meaning)).within(1, 1 << 20);
}

Option& Command::cluster(std::vector<std::string>& overrides) {
  const ReadWord append = [&overrides](const std::string& cluster) {
    overrides.push_back("simulate.cluster=" + cluster);
  };
  return option("-c,--cluster", append, "NAME", "The same as --set simulate.cluster=NAME");
}

Option& Command::out(std::string& out, bool& overwrite_it, std::string meaning) {
  Option& added = option("-o,--out", &out, "DIR", std::move(meaning));
  overwrite(overwrite_it);
  return added;
}

void Command::overwrite(bool& overwrite, std::string meaning) { flag("--overwrite", overwrite, std::move(meaning)); }

}  // namespace fsdpbench::app
