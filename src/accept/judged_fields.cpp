#include "accept/judged_fields.h"

#include "runs/result_fields.h"

namespace fsdpbench::app {

// clang-format off
template <>
Fields<accept::Interval> declared() {
  return {"Interval", "A median and how far it can be trusted.", "accept/robust.h", {
    {"median", &accept::Interval::median, "", "median of the values"},
    {"ci_low", &accept::Interval::low, "", "lower end of the 95 % interval of the median"},
    {"ci_high", &accept::Interval::high, "", "upper end of that interval"},
    {"n", &accept::Interval::n, "", "number of values"},
  }};
}

template <>
Fields<accept::Place> declared() {
  using P = accept::Place;
  return {"Place", "", "accept/element.h", {
    {"host", &P::host, "", "name of its host, or of several", if_any},
    {"device", &P::device, "", "its GPU's place on the PCI bus, or of several", if_any},
    {"uuid", &P::uuid, "", "its GPU's UUID, or of several", if_any},
    {"nic", &P::nic, "", "name of its NIC, or of several", if_any},
    {"direction", &P::direction, "", "`sends` or `receives` if it is slow in this direction only", if_any},
  }};
}

template <>
Fields<accept::Judgement> declared() {
  using J = accept::Judgement;
  return {"Judgement", "One rule applied to one figure.", "accept/verdict.h", {
    {"rule", &J::rule, "", "name of the rule ([accept.md](accept.md))"},
    {"figure", &J::figure, "", "figure that was judged, named alike in each acceptance"},
    {"part", &J::part, "", "rank, node or link that it was judged for; absent: all", if_any},
    {"verdict", &J::verdict, "", "`pass`, `unrated`, `inconclusive` or `fail`"},
    {"why", &J::sentence, "", "a sentence with the numbers"},
    {"value", &J::value, "", "the figure, in `unit`; absent if it was not measured", if_any, check_interval},
    {"unit", &J::unit, "", "unit of the figure", if_any},
    {"bound", &J::bound, "", "value that it is compared with, in `unit`"},
    spread(&J::place),
  }};
}

template <>
Fields<accept::ArmRound> declared() {
  using R = accept::ArmRound;
  return {"ArmRound", "One round of the arms of a step, means of an arm's two steps.", "accept/step_arms.h", {
    {"compute_ms", &R::computation_ms, "ms", "a step without its collectives, on the slowest rank", check_positive},
    {"comm_ms", &R::communication_ms, "ms", "the collectives alone, on the slowest rank", check_positive},
    {"step_ms", &R::whole_ms, "ms", "the whole step, on the slowest rank", check_positive},
    {"kernels_alone_ms", &R::kernels_alone_ms, "ms", "ops that compute, in the step without collectives"},
    {"kernels_beside_ms", &R::kernels_beside_ms, "ms", "the same ops in the whole step"},
    {"transfers_alone_ms", &R::transfers_alone_ms, "ms", "collectives from the arrival of their last rank, without computation"},
    {"transfers_beside_ms", &R::transfers_beside_ms, "ms", "the same in the whole step"},
  }};
}
// clang-format on

}  // namespace fsdpbench::app
