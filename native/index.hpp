// The open-addressing index: which slot holds which key. Readers take no lock (seqlock reads of a slot);
// writers hold the allocation lock. Load is at most one half; keys are SHA-256, hence uniform.
#pragma once
#include <cstring>

#include "atomics.hpp"
#include "region.hpp"

namespace kvext {

struct Found {
  u64 slot = 0;
  u64 word = 0;  // the slot's state word when it was read; 0: nothing found
  u32 extent = 0;
  explicit operator bool() const { return word != 0; }
};

class Index {
 public:
  explicit Index(const Region& region) : region_(region), mask_(region.geometry().num_slots - 1) {}

  void prefetch(const Key& key) const { __builtin_prefetch(&region_.slot(key.word[0] & mask_)); }

  // A committed record under that key and shape; a slot that keeps changing is a miss.
  Found find(const Key& key, u32 shape) const;

  enum class Place { present, being_written, empty, full };
  struct Probe {
    Place place = Place::full;
    u64 slot = 0;
  };
  // Where a new record would go. Needs the allocation lock.
  Probe probe(const Key& key, u32 shape) const;

  // Empties a slot and keeps probe chains intact and short. Needs the allocation lock.
  void vacate(u64 slot) const;

 private:
  bool matches(const Slot& slot, const Key& key, u32 shape) const;
  bool readable(u16 name_space) const;
  bool is(u64 at, SlotState state) const;
  bool holds_together(u64 gap) const;
  void empty_as(u64 at, SlotState state) const;
  const Region& region_;
  u64 mask_;
};

inline bool Index::matches(const Slot& s, const Key& key, u32 shape) const {
  u64 differs = load_relaxed(s.shape) ^ u64{shape};
  for (int i = 0; i < 4; ++i) differs |= load_relaxed(s.key.word[i]) ^ key.word[i];
  return differs == 0;
}

inline bool Index::readable(u16 name_space) const {
  return name_space < kMaxNamespaces && load_acquire(region_.name_space(name_space).state) == NamespaceState::live;
}

inline Found Index::find(const Key& key, u32 shape) const {
  constexpr int kReadTries = 8;
  u64 at = key.word[0] & mask_;
  for (u32 visited = 0; visited < kProbeLimit; ++visited, at = (at + 1) & mask_) {
    const Slot& s = region_.slot(at);
    for (int tries = 0; tries < kReadTries; ++tries) {
      const u64 word = load_acquire(s.state);
      if (state_of(word) == SlotState::free) return {};
      if (state_of(word) != SlotState::committed) break;
      const bool same = matches(s, key, shape);
      const u32 extent = load_relaxed(s.extent);
      const u16 name_space = load_relaxed(s.name_space);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (load_relaxed(s.state) != word) continue;
      // Behind a fenced record there may be a newer one of the same key.
      if (same && region_.has_extent(extent) && readable(name_space)) return {at, word, extent};
      break;
    }
  }
  return {};
}

inline Index::Probe Index::probe(const Key& key, u32 shape) const {
  Probe first_empty{Place::full, 0};
  u64 at = key.word[0] & mask_;
  for (u32 visited = 0; visited < kProbeLimit; ++visited, at = (at + 1) & mask_) {
    const Slot& s = region_.slot(at);
    const SlotState state = state_of(load_acquire(s.state));
    const bool empty = state == SlotState::free || state == SlotState::tombstone;
    if (empty && first_empty.place == Place::full) first_empty = {Place::empty, at};
    if (state == SlotState::free) break;
    if ((state == SlotState::committed || state == SlotState::reserved) && matches(s, key, shape) && readable(load_relaxed(s.name_space)))
      return {state == SlotState::committed ? Place::present : Place::being_written, at};
  }
  return first_empty;
}

// Does some record behind this gap have its home at or before it? Then the probe chain needs the gap.
inline bool Index::holds_together(u64 gap) const {
  for (u64 distance = 1; distance < kProbeLimit; ++distance) {
    const u64 at = (gap + distance) & mask_;
    if (is(at, SlotState::free)) return false;
    if (!is(at, SlotState::tombstone) && ((at - region_.slot(at).key.word[0]) & mask_) >= distance) return true;
  }
  return false;
}

inline bool Index::is(u64 at, SlotState state) const { return state_of(load_relaxed(region_.slot(at).state)) == state; }

inline void Index::empty_as(u64 at, SlotState state) const {
  Slot& s = region_.slot(at);
  store_release(s.state, state_word(state, generation_of(load_relaxed(s.state))));
}

inline void Index::vacate(u64 slot) const {
  empty_as(slot, SlotState::tombstone);
  // Without this, tombstones fill the table within some twenty turnovers and every miss walks to the limit.
  for (u64 at = slot, n = 0; n < kProbeLimit && is(at, SlotState::tombstone) && !holds_together(at); at = (at - 1) & mask_, ++n)
    empty_as(at, SlotState::free);
}

}  // namespace kvext
