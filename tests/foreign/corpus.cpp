#include "foreign/corpus.h"

#include <utility>

#include "support/cause_cases.h"
#include "support/presets.h"

namespace fsdpbench::foreign::corpus {
namespace {

/// A decoder whose communication mostly hides, on a host that takes 20 us an op.
config::RunConfig base(unsigned seed, const std::string& preset, int ranks, int layers) {
  testing::CauseCases cases(seed, testing::CauseCases::Sizes::many);
  config::RunConfig c = cases.healthy();
  c.model.layers = layers;
  c.mesh.ranks = ranks;
  c.mesh.shard = c.mesh.replicate = 0;
  c.train.steps = 3;
  c.train.warmup = 2;
  const std::int64_t unit = 4 * 256 * 256 + 3 * 256 * 512;
  c = testing::with_scaled_preset(c, preset, unit);
  testing::CauseCases::set_rates(c, 3.0, 2.0, 0);
  c.simulate.host_issue_us = 20;
  c.simulate.launch_us = 5;
  c.simulate.jitter_pct = 2;
  c.simulate.seed = seed;
  return c;
}

CaseSpec spec(std::string name, std::string system, Framework framework, config::RunConfig config) {
  CaseSpec s;
  s.name = std::move(name);
  s.system = std::move(system);
  s.config = std::move(config);
  s.dialect.framework = framework;
  return s;
}

}  // namespace

Case make_case(const CaseSpec& spec) {
  Case made{spec, std::make_shared<const testing::SimulatedRun>(spec.config), {}};
  for (std::size_t place = 0; place < made.run->measurement.traces.size(); ++place) {
    const int rank = made.run->measurement.traces[place].rank;
    if (std::ranges::find(spec.faults.missing_ranks, rank) != spec.faults.missing_ranks.end()) continue;
    WrittenRank written = write_rank(*made.run, place, spec.dialect, spec.seed + place);
    if (spec.faults.shuffled) written.text.shuffle(spec.seed);
    CaseFile file{rank, written.text.text(), std::move(written.collectives)};
    file.json.resize(static_cast<std::size_t>(static_cast<double>(file.json.size()) * (1 - spec.faults.cut_off)));
    made.files.push_back(std::move(file));
  }
  return made;
}

std::vector<CaseSpec> all_cases() {
  std::vector<CaseSpec> cases;
  cases.push_back(spec("fsdp2", "fsdp2", Framework::fsdp2, base(1, "fsdp2", 4, 6)));
  cases.push_back(spec("fsdp1", "fsdp1", Framework::fsdp1, base(2, "fsdp1", 4, 6)));
  config::RunConfig ddp = base(3, "fsdp1", 4, 6);
  ddp.fsdp.strategy = config::Strategy::no_shard;
  cases.push_back(spec("ddp", "ddp", Framework::plain, ddp));
  return cases;
}

}  // namespace fsdpbench::foreign::corpus
