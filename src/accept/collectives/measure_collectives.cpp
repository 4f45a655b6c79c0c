#include "accept/collectives/measure_collectives.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "accept/collectives/collective_buffers.h"
#include "accept/collectives/collective_timer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "engine/setup.h"
#include "hardware/other_work.h"
#include "launch/addresses.h"
#include "runs/select_backend.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;
using backend::RankContext;

/// One rank's part of the measurement.
class CollectivesRank {
 public:
  CollectivesRank(const CollectivesArguments& arguments, RankContext& context, RankMeeting& meeting,
                  const CollectivesListener& listener)
      : a_(arguments), context_(context), listener_(listener), timer_(arguments, context, meeting) {}

  void run() {
    for (const Collective op : a_.ops) sweep(op);
  }

 private:
  bool leads() const { return context_.rank == 0; }

  void sweep(Collective op) {
    if (leads()) listener_.table(op);
    for (const DType dtype : a_.dtypes) {
      const std::vector<Reduction> once{Reduction::sum};
      for (const Reduction reduction : Message{.op = op}.reduces() ? a_.reductions : once) {
        for (const std::int64_t size : sweep_sizes(a_)) {
          row(Message::of_size(op, dtype, size, context_.world.size()), reduction);
        }
      }
    }
    if (leads()) listener_.table_end(op);
  }

  void row(const Message& message, Reduction reduction) {
    CollectiveRow row;
    row.message = message;
    if (message.reduces()) row.reduction = reduction;
    if (message.op == Collective::broadcast) row.root = a_.root;
    row.out_of_place = timer_.timing(message, reduction, false);
    if (message.can_be_in_place()) row.in_place = timer_.timing(message, reduction, true);
    if (!leads()) return;
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    row.date = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(now));
    listener_.row(row);
  }

  const CollectivesArguments& a_;
  RankContext& context_;
  const CollectivesListener& listener_;
  CollectiveTimer timer_;
};

void check_host_memory(const CollectivesArguments& a, int local_ranks, std::int64_t rank_bytes) {
  if (a.backend == "cuda") return;  // its device checks it
  const AvailableMemory available = available_memory();
  if (checked_product(rank_bytes, local_ranks) <= available.bytes) return;
  throw ResourceError(
      fmt::format("collectives -e {}: {} ranks here need {} of memory, {} each, and {} {} available. Use a smaller "
                  "size or fewer ranks",
                  *a.most_bytes, local_ranks, format_bytes(rank_bytes * local_ranks), format_bytes(rank_bytes),
                  available.limit, format_bytes(available.bytes)));
}

/// Rank 0 hears where all run.
void announce_places(RankContext& context, RankMeeting& meeting, const CollectivesListener& listener) {
  backend::Facts mine = context.device.facts();
  mine.emplace_back("pid", std::to_string(getpid()));
  const std::vector<std::string> hosts = meeting.gather(context, launch::host_name());
  const std::vector<backend::Facts> facts = meeting.gather(context, mine);
  if (context.rank != 0) return;
  std::vector<World::RankPlace> places;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) places.push_back({hosts[rank], facts[rank]});
  listener.begin(places);
}

}  // namespace

backend::BackendOptions backend_options_for(const CollectivesArguments& a, int ranks, launch::Session* session,
                                            std::int64_t rank_bytes) {
  backend::BackendOptions options;
  options.ranks = ranks;
  options.session = session;
  options.pool_bytes = rank_bytes;
  if (a.backend == "cuda") {
    auto& cuda = options.set<backend::CudaOptions>();
    cuda.nccl.registration = static_cast<backend::NcclOptions::Register>(a.registration);
    cuda.nccl.cta_policy = static_cast<backend::NcclOptions::CtaPolicy>(a.cta_policy);
    if (a.timeout_s > 0) cuda.nccl.timeout_s = a.timeout_s;
    if (a.registration != 0) options.category_bytes[index_of(MemoryCategory::communication_buffers)] = rank_bytes;
    return options;
  }
  auto& cpu = options.set<backend::CpuOptions>();
  if (session != nullptr && a.timeout_s > 0) cpu.stall_s = a.timeout_s;
  cpu.share_memory = engine::share_memory(launch::process_environment());
  return options;
}

int ranks_asked_for(const CollectivesArguments& a, const launch::Session* session) {
  const int asked = a.threads * a.gpus;
  if (session == nullptr) return asked;
  const int processes = session->placement().ranks;
  const bool given = a.ranks || asked != 1;
  if (given && asked != processes) {
    throw ConfigError(
        fmt::format("collectives: {} ranks were asked for, but {} says that there are {} processes, one rank each; "
                    "leave out -t, -g and "
                    "--ranks.",
                    asked, session->placement().source, processes));
  }
  return processes;
}

void measure_collectives(const CollectivesArguments& arguments, launch::Session* session,
                         const CollectivesListener& listener) {
  const int ranks = ranks_asked_for(arguments, session);
  if (arguments.root >= ranks) {
    throw ConfigError(fmt::format("collectives --root {}: there are {} ranks, from 0.", arguments.root, ranks));
  }
  const std::int64_t buffers = CollectiveBuffers::bytes(*arguments.most_bytes);
  const std::int64_t rank_bytes = arguments.beside ? checked_sum(2 * buffers, beside_bytes(arguments)) : buffers;
  check_host_memory(arguments, session == nullptr ? ranks : session->placement().local_ranks, rank_bytes);
  backend::BackendOptions options = backend_options_for(arguments, ranks, session, rank_bytes);
  const auto backend = select_backend(arguments.backend);
  for (const int max_ctas : arguments.max_ctas) {
    if (arguments.backend == "cuda") options.set<backend::CudaOptions>().nccl.max_ctas = max_ctas;
    RankMeeting meeting(ranks, session);
    backend->run(options, [&](RankContext& context) {
      announce_places(context, meeting, listener);
      if (arguments.beside) {
        measure_beside(arguments, max_ctas, context, meeting, listener.beside);
      } else {
        CollectivesRank(arguments, context, meeting, listener).run();
      }
    });
  }
}

}  // namespace fsdpbench::app
