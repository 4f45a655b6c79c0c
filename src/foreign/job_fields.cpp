#include "foreign/job_fields.h"

#include <string>

namespace fsdpbench::app {

template <>
const Fields<foreign::UnusedGathers>& fields<foreign::UnusedGathers>() {
  using U = foreign::UnusedGathers;
  static const auto kAll =
      declare<U>("JobWastedGathers", "All-gathers of a step that are wasted in the same way.",
                 "foreign/unused_gathers.h", [](Fields<U>& f) {
                   f(
                       "waste", [](const U& u) { return schedule::to_string(u.waste); }, "",
                       "`never_used`, `used_once` (gathered twice, used once) or `freed_early` (gathered again with "
                       "nothing between)");
                   f("units", &U::units, "", "labels of the units");
                   f("gathers", &U::gathers, "", "how many a step");
                   f("bytes", &U::bytes, "B", "that a rank sends for them in a step", {.when = When::if_known});
                   f("ms", &U::ms, "ms", "that they take in a step");
                   f("evidence", &U::evidence, "", "what tells it");
                   f("why", &U::why, "", "the rule that wastes them");
                   f("remedy", &U::remedy, "", "what spares them, in the words of the job's engine");
                 });
  return kAll;
}

template <>
const Fields<foreign::Exchanges>& fields<foreign::Exchanges>() {
  using X = foreign::Exchanges;
  static const auto kAll = declare<X>(
      "JobExchanges", "Exchanges of tokens between ranks that split experts: means over ranks and steps, a step.",
      "foreign/exchanges.h", [](Fields<X>& f) {
        f("a_step", &X::times, "", "how many");
        f("ms", &X::ms, "ms", "while any of them runs");
        f("exposed_ms", &X::exposed_ms, "ms", "of it, while nothing computes");
        f("attention_ms", &X::attention_ms, "ms", "of attention");
        f("beside_attention_ms", &X::beside_ms, "ms", "of attention, beside an exchange");
        f(
            "two_halves",
            [](const X& x) {
              return std::string(!x.two_halves ? "unknown" : *x.two_halves ? "yes" : "no");
            },
            "", "`yes`: two halves of a batch take turns; `no`, `unknown`");
        f(
            "imbalance", [](const X& x) { return x.imbalance; }, "",
            "rows of the busiest rank ÷ the mean, in the median exchange; absent if not told");
        f("busiest_rank", &X::busiest_rank, "", "rank that has most rows most often", {.when = When::if_known});
        f("host_syncs", &X::syncs, "", "waits of the host for the device in forward and backward, of the first rank");
        f("host_sync_ms", &X::sync_ms, "ms", "that these take");
        f(
            "said", [](const X& x) { return foreign::exchange_sentences(x); }, "", "a sentence each");
      });
  return kAll;
}

}  // namespace fsdpbench::app
