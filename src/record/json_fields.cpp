#include "record/json_fields.h"

namespace fsdpbench::app {

void check_positive(const JsonPart& number) {
  if (!(number.number() > 0)) number.refuse("a number above 0");
}

void check_not_negative(const JsonPart& number) {
  if (!(number.number() >= 0)) number.refuse("a number from 0 on");
}

}  // namespace fsdpbench::app
