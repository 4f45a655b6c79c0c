// Published measurements against the simulation's models. Predicts each row of profiles/published from the
// cluster files and prints the errors as they are. docs/published.md explains the tables.
//
//   bench_published [--collectives FILE] [--training FILE] [--csv FILE] [--training-csv FILE] [--accuracy FILE]
#include <fmt/format.h>
#include <fmt/os.h>

#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "config/find_file.h"
#include "published/prediction.h"

using namespace fsdpbench;

namespace {

struct Arguments {
  std::string collectives = (config::home_folder() / "profiles/published/collectives.csv").string();
  std::string training = (config::home_folder() / "profiles/published/training.csv").string();
  std::string csv, training_csv, accuracy;
};

Arguments arguments(int argc, char** argv) {
  Arguments result;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    std::string* value = name == "--collectives"    ? &result.collectives
                         : name == "--training"     ? &result.training
                         : name == "--csv"          ? &result.csv
                         : name == "--training-csv" ? &result.training_csv
                         : name == "--accuracy"     ? &result.accuracy
                                                    : nullptr;
    if (value == nullptr || i + 1 == argc) {
      throw ConfigError(fmt::format(
          "{}: expected --collectives FILE, --training FILE, --csv FILE, --training-csv FILE or --accuracy FILE.",
          name));
    }
    *value = argv[i + 1];
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments given = arguments(argc, argv);
    const bench::Predictions collectives = bench::predict_collectives(given.collectives);
    bench::print(collectives, "Single collectives: bus bandwidth", "GB/s");
    if (!given.csv.empty()) bench::write_csv(collectives, given.csv);
    const bench::Trainings training = bench::predict_training(given.training);
    bench::print(training.rows, "\nTraining: tokens a second and GPU", "tokens/s");
    if (!given.training_csv.empty()) bench::write_csv(training.rows, given.training_csv);
    bench::print_summary(collectives, training);
    const config::Accuracy accuracy = bench::accuracy_of(collectives, training);
    bench::print_coverage(accuracy);
    if (!given.accuracy.empty()) fmt::output_file(given.accuracy).print("{}", config::to_toml(accuracy));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "bench_published: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
