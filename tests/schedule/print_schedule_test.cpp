// One default step, whole: FSDP2's defaults on two blocks and four ranks, with every wait, allocation and free.
#include "schedule/print_schedule.h"

#include <gtest/gtest.h>

#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

constexpr const char* kDefaultStep = R"(
    0  forward    compute         load_batch                      +batch_inputs 1.00 KiB  +batch_targets 1.00 KiB
    1  forward    copy            copy_in R                       after optimizer 1  +gathered 16.12 KiB
    2  forward    all_gather      all_gather R                    after optimizer 1, copy_in R
    3  forward    compute         copy_out R                      after all_gather R  +unsharded 16.12 KiB
    4  forward    compute         forward embedding               +boundary 4.00 KiB  +workspace 2.93 KiB  -workspace 2.93 KiB
    5  forward    copy            copy_in 0                       +gathered 36.25 KiB
    6  forward    all_gather      all_gather 0                    after copy_in 0
    7  forward    copy            release R                       after copy_out R  -gathered 16.12 KiB
    8  forward    compute         copy_out 0                      after all_gather 0  +unsharded 36.25 KiB
    9  forward    compute         forward blocks.0                +saved 20.03 KiB  +boundary 4.00 KiB  +workspace 2.93 KiB  -workspace 2.93 KiB
   10  forward    compute         reshard 0                       -unsharded 36.25 KiB
   11  forward    copy            copy_in 1                       +gathered 36.25 KiB
   12  forward    all_gather      all_gather 1                    after copy_in 1
   13  forward    copy            release 0                       after copy_out 0  -gathered 36.25 KiB
   14  forward    compute         copy_out 1                      after all_gather 1  +unsharded 36.25 KiB
   15  forward    compute         forward blocks.1                +saved 20.53 KiB  +boundary 4.00 KiB  +workspace 2.93 KiB  -workspace 2.93 KiB
   16  forward    compute         reshard 1                       -unsharded 36.25 KiB
   17  forward    compute         forward head                    +saved 21.03 KiB  +workspace 2.93 KiB  -workspace 2.93 KiB
   18  forward    copy            release 1                       after copy_out 1  -gathered 36.25 KiB
   19  backward   copy            copy_in 1*                      +gathered 36.25 KiB
   20  backward   all_gather      all_gather 1*                   after copy_in 1*
   21  backward   compute         backward head                   +gradients 16.12 KiB  +workspace 4.88 KiB  +d_stream 4.00 KiB  -workspace 4.88 KiB  -saved 21.03 KiB  -boundary 4.00 KiB
   22  backward   compute         copy_out 1                      after all_gather 1*  +unsharded 36.25 KiB
   23  backward   copy            release 1                       after copy_out 1  -gathered 36.25 KiB
   24  backward   copy            copy_in 0*                      +gathered 36.25 KiB
   25  backward   all_gather      all_gather 0*                   after copy_in 0*
   26  backward   compute         backward blocks.1               +gradients 36.25 KiB  +workspace 4.88 KiB  -workspace 4.88 KiB  -saved 20.53 KiB  -boundary 4.00 KiB
   27  backward   compute         reshard 1                       -unsharded 36.25 KiB
   28  backward   compute         post_backward 1
   29  backward   compute         reduce_copy_in 1                +reduce_input 36.25 KiB  -gradients 36.25 KiB
   30  backward   reduce_scatter  reduce_scatter 1                after reduce_copy_in 1  +gradient_shard 9.06 KiB
   31  backward   compute         copy_out 0                      after all_gather 0*  +unsharded 36.25 KiB
   32  backward   copy            release 0                       after copy_out 0  -gathered 36.25 KiB
   33  backward   compute         backward blocks.0               +gradients 36.25 KiB  +workspace 4.88 KiB  -workspace 4.88 KiB  -saved 20.03 KiB  -boundary 4.00 KiB
   34  backward   compute         reshard 0                       -unsharded 36.25 KiB
   35  backward   compute         post_backward 0
   36  backward   compute         release 1                       after reduce_scatter 1  -reduce_input 36.25 KiB
   37  backward   compute         reduce_copy_in 0                +reduce_input 36.25 KiB  -gradients 36.25 KiB
   38  backward   reduce_scatter  reduce_scatter 0                after reduce_copy_in 0  +gradient_shard 9.06 KiB
   39  backward   compute         backward embedding              +workspace 4.88 KiB  -workspace 4.88 KiB  -d_stream 4.00 KiB  -batch_inputs 1.00 KiB  -batch_targets 1.00 KiB
   40  backward   compute         reshard R                       -unsharded 16.12 KiB
   41  backward   compute         post_backward R
   42  backward   compute         release 0                       after reduce_scatter 0  -reduce_input 36.25 KiB
   43  backward   compute         reduce_copy_in R                +reduce_input 16.12 KiB  -gradients 16.12 KiB
   44  backward   reduce_scatter  reduce_scatter R                after reduce_copy_in R  +gradient_shard 4.03 KiB
   45  optimizer  compute         release R                       after reduce_scatter R, reduce_scatter 0, reduce_scatter 1  -reduce_input 16.12 KiB
   46  optimizer  compute         optimizer R                     -gradient_shard 4.03 KiB
   47  optimizer  compute         optimizer 0                     -gradient_shard 9.06 KiB
   48  optimizer  compute         optimizer 1                     -gradient_shard 9.06 KiB
)";

TEST(OpList, OfOneDefaultStep) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(2, 4));
  EXPECT_EQ('\n' + op_list(c.plan, c.schedules.steady()), kDefaultStep);
}

}  // namespace
}  // namespace fsdpbench::schedule
