#include "space.hpp"

#include <algorithm>
#include <ctime>

#include "steps.hpp"

namespace kvext {
namespace {

// How far the CLOCK hand honours second chances before it takes what it finds: bounds the time in the lock.
constexpr u64 kPatientSteps = 2048;
// After so many extents that cannot be had, a store is refused; the next one goes on from there.
constexpr u64 kMostSteps = 1 << 16;

}  // namespace

u32 now_tenths(const Region& region) {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &t);
  const u64 now = static_cast<u64>(t.tv_sec) * 10 + static_cast<u64>(t.tv_nsec) / 100000000;
  const u64 created = load_relaxed(region.super().created_s) * 10;
  return now > created ? static_cast<u32>(now - created) : 0;  // the clock may have been set back
}

Space::Reservation Space::reserve(const Key& key, u32 shape, u32 length, u16 name_space) {
  if (name_space == kUnknownNamespace) return {StoreOutcome::namespaces_full, {}};
  if (!self_->in_force() || !namespaces_.is_live(name_space)) return {StoreOutcome::fenced, {}};
  mend_free_list();
  Index::Probe probe = index_.probe(key, shape);
  if (probe.place == Index::Place::being_written) {
    if (writer_alive(probe.slot)) return {StoreOutcome::exists, {}};
    reap();
    probe = index_.probe(key, shape);
  }
  if (probe.place == Index::Place::present || probe.place == Index::Place::being_written) return {StoreOutcome::exists, {}};
  if (probe.place == Index::Place::full) return {StoreOutcome::index_full, {}};
  u64 extent = 0;
  if (!take_free(extent)) {
    if (!make_room() || !take_free(extent)) return {StoreOutcome::no_space, {}};
    probe = index_.probe(key, shape);  // the eviction may have moved the end of the probe chain
    if (probe.place != Index::Place::empty) {
      put_free(extent);
      return {StoreOutcome::index_full, {}};
    }
  }
  fill(probe.slot, extent, key, shape, length, name_space);
  const u64 generation = generation_of(load_relaxed(region_.slot(probe.slot).state));
  return {StoreOutcome::stored, {static_cast<u32>(probe.slot), static_cast<u32>(extent), generation}};
}

bool Space::writer_alive(u64 slot) const {
  const u64 extent = load_relaxed(region_.slot(slot).extent);
  if (!region_.has_extent(extent)) return true;
  const Extent& e = region_.extent(extent);
  const u64 epoch = load_relaxed(e.owner_epoch);
  if (epoch == self_->epoch()) return true;
  const u32 row = load_relaxed(e.owner);
  return row < kMaxProcesses && load_acquire(region_.process(row).epoch) == epoch && process_alive(region_, row) &&
         !(vigil_ && vigil_->hung(row, epoch));
}

void Space::fill(u64 at, u64 extent, const Key& key, u32 shape, u32 length, u16 name_space) const {
  Extent& e = region_.extent(extent);
  store_relaxed(e.owner_epoch, self_->epoch());
  store_relaxed(e.owner, static_cast<u16>(self_->index()));
  store_relaxed(e.name_space, name_space);
  store_relaxed(e.checksum, u64{0});
  store_release(e.slot, static_cast<u32>(at));
  step(Step::reserve_extent_owned);
  Slot& s = region_.slot(at);
  const u64 generation = generation_of(load_relaxed(s.state)) + 1;
  std::atomic_thread_fence(std::memory_order_release);
  // Readers look only at committed slots, so the fields may change as soon as the state says otherwise.
  for (int i = 0; i < 4; ++i) store_relaxed(s.key.word[i], key.word[i]);
  store_relaxed(s.extent, static_cast<u32>(extent));
  store_relaxed(s.length, length);
  store_relaxed(s.shape, shape);
  store_relaxed(s.name_space, name_space);
  store_relaxed(s.last_access, now_tenths(region_));
  store_relaxed(s.previous_access, 0u);
  store_relaxed(s.hits, u8{0});
  store_relaxed(s.reference, u8{0});
  namespaces_.count(name_space, 1);
  step(Step::reserve_slot_filled);
  store_release(s.state, state_word(SlotState::reserved, generation));
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the payload is written only after this is visible
  step(Step::reserve_visible);
}

bool Space::abort(const BlockRef& ref) {
  Slot& s = region_.slot(ref.slot);
  if (load_acquire(s.state) != state_word(SlotState::reserved, ref.generation)) return false;
  release(ref.extent, ref.slot);
  return true;
}

// A damaged list names what is in use, or nothing at all. Recovery moves slots, so this comes before a probe.
void Space::mend_free_list() {
  const u64 head = load_relaxed(region_.super().free_head);
  if (head != 0 && !is_free(head - 1)) recover();
}

bool Space::is_free(u64 extent) const { return region_.has_extent(extent) && load_relaxed(region_.extent(extent).owner_epoch) == 0; }

bool Space::take_free(u64& extent) {
  Superblock& super = region_.super();
  const u64 head = load_relaxed(super.free_head);
  if (head == 0 || !is_free(head - 1)) return false;
  extent = head - 1;
  store_relaxed(super.free_head, u64{region_.extent(extent).next_free});
  store_relaxed(super.num_free, load_relaxed(super.num_free) - 1);
  step(Step::reserve_extent_taken);
  return true;
}

void Space::put_free(u64 extent) {
  Superblock& super = region_.super();
  Extent& e = region_.extent(extent);
  store_relaxed(e.owner_epoch, u64{0});
  step(Step::free_owner_cleared);
  store_relaxed(e.next_free, static_cast<u32>(super.free_head));
  store_relaxed(super.free_head, extent + 1);
  step(Step::free_linked);
  store_relaxed(super.num_free, load_relaxed(super.num_free) + 1);
}

void Space::release(u64 extent, u64 slot) {
  index_.vacate(slot);
  step(Step::evict_vacated);
  namespaces_.count(load_relaxed(region_.extent(extent).name_space), ~u64{0});
  step(Step::evict_counted);
  put_free(extent);
}

bool Space::pinned(u64 extent) const {
  for (u32 p = 0; p < kMaxProcesses; ++p)
    if (load_ordered(region_.process(p).epoch) != 0 && load_ordered(region_.pin(p, extent)) != 0) return true;
  return false;
}

u64 Space::num_pinned() const {
  std::vector<u64> any(region_.num_pin_words());
  for (u32 p = 0; p < kMaxProcesses; ++p)
    for (u64 i = 0; i < any.size() && load_relaxed(region_.process(p).epoch) != 0; ++i) any[i] |= load_relaxed(region_.pin_word(p, i));
  u64 pinned = 0;
  for (u64 word : any)
    for (; word != 0; word >>= 16) pinned += (word & 0xffff) != 0;
  return pinned;
}

bool Space::evict(u64 extent, Counter reason) {
  const u64 at = load_acquire(region_.extent(extent).slot);
  Slot& s = region_.slot(at);
  const u64 word = load_ordered(s.state);
  if (state_of(word) != SlotState::committed || load_relaxed(s.extent) != extent || pinned(extent)) return false;
  // A reader pins first and looks at the state again after; we change the state first and look at pins after.
  if (!swap_if(s.state, word, state_word(SlotState::evicting, generation_of(word)))) return false;
  step(Step::evict_marked);
  if (pinned(extent)) {
    store_release(s.state, word);
    return false;
  }
  // Before it is gone, so that a death here leaves no record that is missing and was not counted.
  add_relaxed(region_.super().counters[reason], u64{1});
  const bool fenced = namespaces_.state(load_relaxed(s.name_space)) == NamespaceState::fenced;
  if (fenced) add_relaxed(region_.super().counters[fenced_records], u64{1});
  release(extent, at);
  return true;
}

bool Space::second_chance(u64 extent) const {
  Slot& s = region_.slot(load_relaxed(region_.extent(extent).slot));
  const u8 left = load_relaxed(s.reference);
  if (left == 0 || load_relaxed(s.extent) != extent || !namespaces_.is_live(load_relaxed(s.name_space))) return false;
  store_relaxed(s.reference, static_cast<u8>(left - 1));
  return true;
}

bool Space::make_room() {
  if (evict_one()) return true;
  const Reaped reaped = reap();
  return reaped.num_freed > 0 || (reaped.num_dead + reaped.num_hung > 0 && evict_one());
}

bool Space::evict_one() {
  const u64 n = region_.geometry().num_extents;
  u64& hand = region_.super().clock_hand;
  hand %= n;
  const u64 patient = std::min(kPatientSteps, 4 * n);
  for (u64 steps = 0; steps < patient + std::min(n, kMostSteps); ++steps) {
    const u64 extent = hand;
    hand = hand + 1 < n ? hand + 1 : 0;
    if (steps < patient && second_chance(extent)) continue;
    if (evict(extent, evictions)) return true;
  }
  return false;
}

bool Space::drop(u64 extent) {
  const u64 at = load_acquire(region_.extent(extent).slot);
  const Slot& s = region_.slot(at);
  const bool quarantined = state_of(load_acquire(s.state)) == SlotState::quarantined && load_relaxed(s.extent) == extent;
  if (!quarantined) return evict(extent, cleared);
  if (pinned(extent)) return false;
  add_relaxed(region_.super().counters[cleared], u64{1});
  release(extent, at);
  return true;
}

}  // namespace kvext
