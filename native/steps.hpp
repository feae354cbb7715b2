// The core's steps by name, so that a test can kill or stop a process exactly there. A passage costs one
// relaxed load while nothing is armed, which is always but in such tests.
#pragma once
#include <array>
#include <atomic>
#include <string_view>

#include "format.hpp"

namespace kvext {

enum class Step : u32 {
  attach_locked, attach_claimed, attach_entered,
  lock_taken, lock_marked, lock_unmarked,
  format_unformatted, format_geometry_written, format_tables_written,
  reserve_extent_taken, reserve_extent_owned, reserve_slot_filled, reserve_visible,
  evict_marked, evict_vacated, evict_counted, free_owner_cleared, free_linked,
  store_reserved, store_copied, store_checksummed, store_committed,
  match_pinned, match_checked, unpin_one,
  load_copied, load_verified, load_quarantined,
  abort_locked,
  reap_row_fenced, reap_pins_cleared, reap_limbo_marked, reap_reservation_vacated, reap_done,
  recover_counted_out, recover_slots_scanned, recover_list_rebuilt,
  fence_marked, clear_dropped, detach_abandoned, detach_left, readmit_abandoned, readmit_entered,
  role_claimed, repair_begun,
  kCount,
};

inline constexpr u32 kNumSteps = static_cast<u32>(Step::kCount);
extern const std::array<std::string_view, kNumSteps> kStepLabels;

namespace steps {
inline constexpr u32 kNothing = ~0u;
extern std::atomic<u32> armed;
void pass(Step step);
// At the countdown-th passage of that step the process sends itself the signal. False: no such label.
bool arm(std::string_view label, u32 countdown, int signal);
}  // namespace steps

inline void step(Step step) {
  if (steps::armed.load(std::memory_order_relaxed) != steps::kNothing) [[unlikely]] steps::pass(step);
}

}  // namespace kvext
