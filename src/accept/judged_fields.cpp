#include "accept/judged_fields.h"

#include "runs/result_fields.h"

namespace fsdpbench::app {

template <>
const Fields<accept::Interval>& fields<accept::Interval>() {
  static const auto kAll = declare<accept::Interval>(
      "Interval", "A median and how far it can be trusted.", "accept/robust.h", [](Fields<accept::Interval>& f) {
        f("median", &accept::Interval::median, "", "median of the values");
        f("ci_low", &accept::Interval::low, "", "lower end of the 95 % interval of the median");
        f("ci_high", &accept::Interval::high, "", "upper end of that interval");
        f("n", &accept::Interval::n, "", "number of values");
      });
  return kAll;
}

template <>
const Fields<accept::Judgement>& fields<accept::Judgement>() {
  using J = accept::Judgement;
  static const auto kAll =
      declare<J>("Judgement", "One rule applied to one figure.", "accept/verdict.h", [](Fields<J>& f) {
        f("rule", &J::rule, "", "name of the rule ([accept.md](accept.md))");
        f("figure", &J::figure, "", "figure that was judged");
        f("verdict", &J::verdict, "", "`pass`, `unrated`, `inconclusive` or `fail`");
        f("why", &J::sentence, "", "a sentence with the numbers");
        f("value", &J::value, "", "the figure, in `unit`; absent if it was not measured",
          {.when = When::if_any, .check = check_interval});
        f("unit", &J::unit, "", "unit of the figure", {.when = When::if_any});
        f("bound", &J::bound, "", "value that it is compared with, in `unit`");
        f("host", [](auto& j) -> auto& { return j.place.host; }, "", "name of its host, or of several",
          {.when = When::if_any});
        f("device", [](auto& j) -> auto& { return j.place.device; }, "",
          "its GPU's place on the PCI bus, or of several", {.when = When::if_any});
        f("uuid", [](auto& j) -> auto& { return j.place.uuid; }, "", "its GPU's UUID, or of several",
          {.when = When::if_any});
        f("nic", [](auto& j) -> auto& { return j.place.nic; }, "", "name of its NIC, or of several",
          {.when = When::if_any});
        f("direction", [](auto& j) -> auto& { return j.place.direction; }, "",
          "`sends` or `receives` if it is slow in this direction only", {.when = When::if_any});
      });
  return kAll;
}

template <>
const Fields<accept::ArmRound>& fields<accept::ArmRound>() {
  using R = accept::ArmRound;
  static const auto kAll = declare<R>(
      "ArmRound", "One round of the arms of a step, means of an arm's two steps.", "accept/step_arms.h",
      [](Fields<R>& f) {
        f("compute_ms", &R::computation_ms, "ms", "a step without its collectives, on the slowest rank",
          {.check = check_positive});
        f("comm_ms", &R::communication_ms, "ms", "the collectives alone, on the slowest rank",
          {.check = check_positive});
        f("step_ms", &R::whole_ms, "ms", "the whole step, on the slowest rank", {.check = check_positive});
        f("kernels_alone_ms", &R::kernels_alone_ms, "ms", "ops that compute, in the step without collectives");
        f("kernels_beside_ms", &R::kernels_beside_ms, "ms", "the same ops in the whole step");
        f("transfers_alone_ms", &R::transfers_alone_ms, "ms",
          "collectives from the arrival of their last rank, without computation");
        f("transfers_beside_ms", &R::transfers_beside_ms, "ms", "the same in the whole step");
      });
  return kAll;
}

}  // namespace fsdpbench::app
