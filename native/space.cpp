#include "space.hpp"

#include <algorithm>
#include <ctime>
#include <unordered_set>
#include <vector>

namespace kvext {
namespace {

// How far the CLOCK hand honours second chances before it takes what it finds: bounds the time in the lock.
constexpr u64 kPatientSteps = 2048;

}  // namespace

u32 now_tenths(const Region& region) {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &t);
  const u64 now = static_cast<u64>(t.tv_sec) * 10 + static_cast<u64>(t.tv_nsec) / 100000000;
  return static_cast<u32>(now - region.super().created_s * 10);
}

Space::Reservation Space::reserve(const Key& key, u32 shape, u32 length, u16 name_space) {
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
    if (!evict_one() && reap() == 0 && !evict_one()) return {StoreOutcome::no_space, {}};
    if (!take_free(extent)) return {StoreOutcome::no_space, {}};
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
  const u64 extent = region_.slot(slot).extent;
  if (!region_.has_extent(extent)) return true;
  const Extent& e = region_.extent(extent);
  if (e.owner_epoch == self_->epoch()) return true;
  return e.owner < kMaxProcesses && load_acquire(region_.process(e.owner).epoch) == e.owner_epoch && process_alive(region_, e.owner);
}

void Space::fill(u64 at, u64 extent, const Key& key, u32 shape, u32 length, u16 name_space) const {
  Extent& e = region_.extent(extent);
  e.owner_epoch = self_->epoch();
  e.owner = static_cast<u16>(self_->index());
  e.name_space = name_space;
  e.checksum = 0;
  store_release(e.slot, static_cast<u32>(at));
  Slot& s = region_.slot(at);
  const u64 generation = generation_of(load_relaxed(s.state)) + 1;
  std::atomic_thread_fence(std::memory_order_release);
  // Readers look only at committed slots, so the fields may change as soon as the state says otherwise.
  for (int i = 0; i < 4; ++i) store_relaxed(s.key.word[i], key.word[i]);
  store_relaxed(s.extent, static_cast<u32>(extent));
  store_relaxed(s.length, length);
  store_relaxed(s.shape, shape);
  store_relaxed(s.last_access, now_tenths(region_));
  store_relaxed(s.previous_access, 0u);
  store_relaxed(s.hits, u16{0});
  store_relaxed(s.reference, u8{0});
  count(name_space, 1);
  store_release(s.state, state_word(SlotState::reserved, generation));
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the payload is written only after this is visible
}

bool Space::abort(const BlockRef& ref) {
  Slot& s = region_.slot(ref.slot);
  if (load_acquire(s.state) != state_word(SlotState::reserved, ref.generation)) return false;
  release(ref.extent, ref.slot);
  return true;
}

bool Space::take_free(u64& extent) {
  Superblock& super = region_.super();
  if (super.free_head == 0) return false;
  extent = super.free_head - 1;
  if (!region_.has_extent(extent)) {  // damaged: what hangs on it is lost until a recovery
    super.free_head = 0;
    return false;
  }
  super.free_head = region_.extent(extent).next_free;
  store_relaxed(super.num_free, super.num_free - 1);
  return true;
}

void Space::put_free(u64 extent) {
  Superblock& super = region_.super();
  region_.extent(extent).owner_epoch = 0;
  region_.extent(extent).next_free = static_cast<u32>(super.free_head);
  super.free_head = extent + 1;
  store_relaxed(super.num_free, super.num_free + 1);
}

void Space::release(u64 extent, u64 slot) {
  index_.vacate(slot);
  count(region_.extent(extent).name_space, ~u64{0});
  put_free(extent);
}

void Space::count(u16 name_space, u64 by) const {
  if (name_space < kMaxNamespaces) add_relaxed(region_.name_space(name_space).num_extents, by);
}

bool Space::pinned(u64 extent) const {
  for (u32 p = 0; p < kMaxProcesses; ++p)
    if (load_ordered(region_.process(p).epoch) != 0 && load_ordered(region_.pin(p, extent)) != 0) return true;
  return false;
}

bool Space::evict(u64 extent) {
  const u64 at = load_acquire(region_.extent(extent).slot);
  Slot& s = region_.slot(at);
  const u64 word = load_ordered(s.state);
  if (state_of(word) != SlotState::committed || load_relaxed(s.extent) != extent || pinned(extent)) return false;
  // A reader pins first and looks at the state again after; we change the state first and look at pins after.
  if (!swap_if(s.state, word, state_word(SlotState::evicting, generation_of(word)))) return false;
  if (pinned(extent)) {
    store_release(s.state, word);
    return false;
  }
  release(extent, at);
  return true;
}

bool Space::second_chance(u64 extent) const {
  Slot& s = region_.slot(load_relaxed(region_.extent(extent).slot));
  const u8 left = load_relaxed(s.reference);
  if (left == 0 || load_relaxed(s.extent) != extent) return false;
  store_relaxed(s.reference, static_cast<u8>(left - 1));
  return true;
}

bool Space::evict_one() {
  const u64 n = region_.geometry().num_extents;
  u64& hand = region_.super().clock_hand;
  hand %= n;
  const u64 patient = std::min(kPatientSteps, 4 * n);
  for (u64 step = 0; step < patient + n; ++step) {
    const u64 extent = hand;
    hand = hand + 1 < n ? hand + 1 : 0;
    if (step < patient && second_chance(extent)) continue;
    if (!evict(extent)) continue;
    add_relaxed(region_.super().counters[evictions], u64{1});
    return true;
  }
  return false;
}

bool Space::drop(u64 extent) {
  const u64 at = load_acquire(region_.extent(extent).slot);
  const Slot& s = region_.slot(at);
  const bool quarantined = state_of(load_acquire(s.state)) == SlotState::quarantined && load_relaxed(s.extent) == extent;
  if (!quarantined) return evict(extent);
  if (pinned(extent)) return false;
  release(extent, at);
  return true;
}

template <class Doomed> u64 Space::free_reservations(Doomed doomed) {
  u64 freed = 0;
  for (u64 i = 0; i < region_.geometry().num_extents; ++i) {
    const Extent& e = region_.extent(i);
    if (e.owner_epoch == 0 || !doomed(e.owner_epoch)) continue;
    const Slot& s = region_.slot(e.slot);
    if (state_of(load_acquire(s.state)) != SlotState::reserved || s.extent != i) continue;
    release(i, e.slot);
    ++freed;
  }
  return freed;
}

u64 Space::reap() {
  std::unordered_set<u64> living;
  if (self_) living.insert(self_->epoch());
  bool anybody_died = false;
  for (u32 p = 0; p < kMaxProcesses; ++p) {
    Process& row = region_.process(p);
    const u64 epoch = load_acquire(row.epoch);
    if (epoch == 0 || (self_ && epoch == self_->epoch())) continue;
    if (process_alive(region_, p)) {
      living.insert(epoch);
      continue;
    }
    anybody_died = true;
    const u64 row_words = region_.geometry().pin_row_bytes / sizeof(u16);
    std::fill_n(&region_.pin(p, 0), row_words, u16{0});
    store_release(row.epoch, u64{0});
  }
  if (!anybody_died) return 0;
  const u64 freed = free_reservations([&](u64 epoch) { return !living.contains(epoch); });
  add_relaxed(region_.super().counters[reaped_reservations], freed);
  return freed;
}

void Space::abandon_own() {
  free_reservations([&](u64 epoch) { return epoch == self_->epoch(); });
  std::fill_n(&region_.pin(self_->index(), 0), region_.geometry().pin_row_bytes / sizeof(u16), u16{0});
}

void Space::recover() {
  Superblock& super = region_.super();
  const u64 n = region_.geometry().num_extents;
  std::vector<bool> used(n, false);
  for (u32 i = 0; i < kMaxNamespaces; ++i) region_.name_space(i).num_extents = 0;
  for (u64 at = 0; at < region_.geometry().num_slots; ++at) {
    Slot& s = region_.slot(at);
    const u64 word = load_acquire(s.state);
    const SlotState state = state_of(word);
    if (state == SlotState::free || state == SlotState::tombstone) continue;
    if (!region_.has_extent(s.extent) || used[s.extent]) {
      store_release(s.state, state_word(SlotState::tombstone, generation_of(word)));
      continue;
    }
    // An eviction that did not finish changed nothing but the state.
    if (state == SlotState::evicting) store_release(s.state, state_word(SlotState::committed, generation_of(word)));
    Extent& e = region_.extent(s.extent);
    used[s.extent] = true;
    store_release(e.slot, static_cast<u32>(at));
    count(e.name_space, 1);
  }
  super.free_head = 0;
  store_relaxed(super.num_free, u64{0});
  for (u64 i = n; i-- > 0;)
    if (!used[i]) put_free(i);
  add_relaxed(super.counters[recoveries], u64{1});
  reap();
}

u16 Space::name_space(std::span<const u8, 32> digest, const char* label) {
  u32 empty = kUnknownNamespace;
  for (u32 i = 0; i < kMaxNamespaces; ++i) {
    NamespaceEntry& entry = region_.name_space(i);
    if (load_acquire(entry.used) == 0) {
      empty = i;
      break;  // entries are handed out in order: nothing lies behind the first unused one
    }
    if (std::memcmp(entry.digest, digest.data(), 32) == 0) return static_cast<u16>(i);
    if (entry.num_extents == 0 && empty == kUnknownNamespace) empty = i;
  }
  if (empty == kUnknownNamespace) return kUnknownNamespace;
  NamespaceEntry& entry = region_.name_space(empty);
  std::memcpy(entry.digest, digest.data(), 32);
  std::memset(entry.label, 0, sizeof entry.label);
  std::strncpy(entry.label, label, sizeof entry.label - 1);
  entry.num_extents = 0;
  store_release(entry.used, u64{1});
  return static_cast<u16>(empty);
}

}  // namespace kvext
