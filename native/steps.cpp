#include "steps.hpp"

#include <csignal>

namespace kvext {

const std::array<std::string_view, kNumSteps> kStepLabels = {
    "attach.locked", "attach.claimed", "attach.entered",
    "lock.taken", "lock.marked", "lock.unmarked",
    "format.unformatted", "format.geometry_written", "format.tables_written",
    "reserve.extent_taken", "reserve.extent_owned", "reserve.slot_filled", "reserve.visible",
    "evict.marked", "evict.vacated", "evict.counted", "free.owner_cleared", "free.linked",
    "store.reserved", "store.copied", "store.checksummed", "store.committed",
    "match.pinned", "match.checked", "unpin.one",
    "load.copied", "load.verified", "load.quarantined",
    "abort.locked",
    "reap.row_fenced", "reap.pins_cleared", "reap.limbo_marked", "reap.reservation_vacated", "reap.done",
    "recover.counted_out", "recover.slots_scanned", "recover.list_rebuilt",
    "fence.marked", "clear.dropped", "detach.abandoned", "detach.left", "readmit.abandoned", "readmit.entered",
    "role.claimed", "repair.begun",
};

namespace steps {

std::atomic<u32> armed{kNothing};

namespace {
std::atomic<u32> left{0};
std::atomic<int> deadly{0};
}  // namespace

void pass(Step step) {
  if (armed.load(std::memory_order_acquire) != static_cast<u32>(step) || left.fetch_sub(1) != 1) return;
  armed.store(kNothing);
  std::raise(deadly.load());
}

bool arm(std::string_view label, u32 countdown, int signal) {
  for (u32 i = 0; i < kNumSteps; ++i) {
    if (kStepLabels[i] != label) continue;
    left.store(countdown);
    deadly.store(signal);
    armed.store(i, std::memory_order_release);
    return true;
  }
  return false;
}

}  // namespace steps
}  // namespace kvext
