// The part of Space that puts in order what processes leave that died or stopped.
#include <algorithm>
#include <unordered_set>

#include "space.hpp"
#include "steps.hpp"

namespace kvext {
namespace {

constexpr u64 kLookAhead = 16;  // entries, while what they name is fetched

// Epochs of the processes that are neither dead nor hung; neighbouring extents mostly have one owner.
class Living {
 public:
  void insert(u64 epoch) { epochs_.insert(epoch); }
  bool contains(u64 epoch) {
    if (epoch != asked_) {
      asked_ = epoch;
      answer_ = epochs_.contains(epoch);
    }
    return answer_;
  }

 private:
  std::unordered_set<u64> epochs_;
  u64 asked_ = 0;
  bool answer_ = false;
};

}  // namespace

bool Space::may_be_written(const Extent& extent) const {
  const u32 row = load_relaxed(extent.owner);
  if (row >= kMaxProcesses || load_acquire(region_.process(row).epoch) != 0) return false;  // back, or another one's row
  return process_alive(region_, row) || (self_ && self_->index() == row);
}

void Space::clear_pins(u32 row) const {
  for (u64 i = 0; i < region_.num_pin_words(); ++i)
    if (load_relaxed(region_.pin_word(row, i)) != 0) store_relaxed(region_.pin_word(row, i), u64{0});
  store_relaxed(region_.process(row).fenced, 0u);
}

Reaped Space::reap(bool after_recovery) {
  Reaped out;
  Living living;
  for (u32 row = 0; row < kMaxProcesses; ++row) {
    Process& p = region_.process(row);
    const u64 epoch = load_acquire(p.epoch);
    if (epoch == 0) {
      if (load_relaxed(p.fenced) != 0 && !process_alive(region_, row)) clear_pins(row);
      continue;
    }
    const bool self = self_ && epoch == self_->epoch();  // who asks is not hung
    const bool alive = self || process_alive(region_, row);
    if (self || (alive && !(vigil_ && vigil_->hung(row, epoch)))) {
      living.insert(epoch);
      continue;
    }
    alive ? ++out.num_hung : ++out.num_dead;
    // First, so that a reaper that dies here leaves the row for the next one to see. A hung process may be
    // about to count another pin: it clears its row itself when it comes back.
    if (alive) store_relaxed(p.fenced, 1u);
    else clear_pins(row);
    step(Step::reap_pins_cleared);
    store_release(p.epoch, u64{0});  // from here on its pins hold nothing
    step(Step::reap_row_fenced);
  }
  add_relaxed(region_.super().counters[fenced_processes], out.num_hung);
  // A reaper may have died between fencing a row and taking back what it had reserved.
  if (after_recovery || out.num_dead + out.num_hung > 0) {
    const u64 withdrawn = withdraw_all([&](u64 owner) { return !living.contains(owner); });
    add_relaxed(region_.super().counters[reaped_reservations], withdrawn);
    out.num_freed += withdrawn;
  }
  out.num_freed += free_limbo();
  step(Step::reap_done);
  return out;
}

// Records lie in the index anywhere: without looking ahead, a pool of a million would keep the lock for a third of
// a second.
template <class Doomed> u64 Space::withdraw_all(Doomed doomed) {
  const u64 n = region_.geometry().num_extents;
  u64 freed = 0;
  for (u64 i = 0; i < n; ++i) {
    const Extent& ahead = region_.extent(std::min(i + kLookAhead, n - 1));
    if (doomed(load_relaxed(ahead.owner_epoch))) __builtin_prefetch(&region_.slot(load_relaxed(ahead.slot)));
    const Extent& e = region_.extent(i);
    const u64 owner = load_relaxed(e.owner_epoch);
    if (owner != 0 && load_relaxed(e.slot) != kNoSlot && doomed(owner)) freed += withdraw(i);
  }
  return freed;
}

// Takes a reservation back; true if its extent is free now. A hung writer may wake and commit at this very
// moment: then the record is whole, and stays.
bool Space::withdraw(u64 extent) {
  Extent& e = region_.extent(extent);
  const u32 at = load_relaxed(e.slot);
  Slot& s = region_.slot(at);
  const u64 word = load_acquire(s.state);
  if (state_of(word) != SlotState::reserved || load_relaxed(s.extent) != extent) return false;
  const bool limbo = may_be_written(e);
  if (limbo) store_release(e.slot, kNoSlot);
  step(Step::reap_limbo_marked);
  if (!swap_if(s.state, word, state_word(SlotState::tombstone, generation_of(word)))) {
    store_release(e.slot, at);
    return false;
  }
  step(Step::reap_reservation_vacated);
  if (!limbo) {
    release(extent, at);
    return true;
  }
  add_relaxed(region_.super().num_limbo, u64{1});
  index_.vacate(at);
  namespaces_.count(load_relaxed(e.name_space), ~u64{0});
  return false;
}

u64 Space::free_limbo() {
  if (load_relaxed(region_.super().num_limbo) == 0) return 0;
  u64 freed = 0, left = 0;
  for (u64 i = 0; i < region_.geometry().num_extents; ++i) {
    const Extent& e = region_.extent(i);
    if (load_relaxed(e.owner_epoch) == 0 || load_relaxed(e.slot) != kNoSlot) continue;
    if (may_be_written(e)) {
      ++left;
      continue;
    }
    put_free(i);
    ++freed;
  }
  store_relaxed(region_.super().num_limbo, left);
  return freed;
}

u64 Space::abandon(u64 epoch) {
  u64 freed = withdraw_all([&](u64 owner) { return owner == epoch; });
  for (u64 i = 0; i < region_.geometry().num_extents && load_relaxed(region_.super().num_limbo) != 0; ++i) {
    const Extent& e = region_.extent(i);
    if (load_relaxed(e.owner_epoch) != epoch || load_relaxed(e.slot) != kNoSlot) continue;
    put_free(i);
    add_relaxed(region_.super().num_limbo, ~u64{0});
    ++freed;
  }
  clear_pins(self_->index());
  return freed;
}

// Counts what the slots hold, and empties those that make no sense.
void Space::recount_slots(std::vector<bool>& used) {
  for (u64 at = 0; at < region_.geometry().num_slots; ++at) {
    region_.prefetch_extent_of(at + kLookAhead);
    Slot& s = region_.slot(at);
    const u64 word = load_acquire(s.state);
    const SlotState state = state_of(word);
    if (state == SlotState::free || state == SlotState::tombstone) continue;
    const u32 extent = load_relaxed(s.extent);
    const bool sound = state <= SlotState::quarantined && region_.has_extent(extent) && !used[extent] &&
                       load_relaxed(region_.extent(extent).name_space) == load_relaxed(s.name_space);
    if (!sound) {
      store_release(s.state, state_word(SlotState::tombstone, generation_of(word)));
      continue;
    }
    // An eviction that did not finish changed nothing but the state.
    if (state == SlotState::evicting) store_release(s.state, state_word(SlotState::committed, generation_of(word)));
    used[extent] = true;
    store_release(region_.extent(extent).slot, static_cast<u32>(at));
    namespaces_.count(load_relaxed(s.name_space), 1);
  }
}

void Space::recover() {
  Superblock& super = region_.super();
  const u64 n = region_.geometry().num_extents;
  std::vector<bool> used(n, false);
  for (u32 i = 0; i < kMaxNamespaces; ++i) store_relaxed(region_.name_space(i).num_extents, u64{0});
  step(Step::recover_counted_out);
  recount_slots(used);
  step(Step::recover_slots_scanned);
  store_relaxed(super.free_head, u64{0});
  store_relaxed(super.num_free, u64{0});
  u64 in_limbo = 0;
  for (u64 i = n; i-- > 0;) {
    const Extent& e = region_.extent(i);
    if (used[i]) continue;
    if (load_relaxed(e.owner_epoch) != 0 && load_relaxed(e.slot) == kNoSlot && may_be_written(e))
      ++in_limbo;
    else
      put_free(i);
  }
  store_relaxed(super.num_limbo, in_limbo);
  step(Step::recover_list_rebuilt);
  add_relaxed(super.counters[recoveries], u64{1});
  reap(true);
}

}  // namespace kvext
