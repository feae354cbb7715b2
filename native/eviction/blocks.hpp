// The metadata of blocks by key, and queues through it.
//
// Blocks lie in slots of one array; a slot's number stays valid until the block is forgotten.
// An entry that stands in queues derives from `Linked` and stands in one queue at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "access.hpp"

namespace kvext::eviction {

using Slot = std::uint32_t;
inline constexpr Slot no_slot = std::numeric_limits<Slot>::max();

struct Linked {
  Key key = 0;
  Slot older = no_slot;
  Slot newer = no_slot;
  std::uint32_t size = 1;
};

template <class Entry>
class Blocks {
 public:
  Entry& operator[](Slot slot) { return entries_[slot]; }
  const Entry& operator[](Slot slot) const { return entries_[slot]; }
  std::size_t count() const { return slots_.size(); }

  Slot find(Key key) const {
    const auto found = slots_.find(key);
    return found == slots_.end() ? no_slot : found->second;
  }

  // `key` must be unknown.
  Slot add(Key key) {
    Slot slot;
    if (free_.empty()) {
      slot = static_cast<Slot>(entries_.size());
      entries_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
      entries_[slot] = Entry{};
    }
    entries_[slot].key = key;
    slots_.emplace(key, slot);
    return slot;
  }

  void forget(Slot slot) {
    slots_.erase(entries_[slot].key);
    free_.push_back(slot);
  }

 private:
  std::unordered_map<Key, Slot> slots_;
  std::vector<Entry> entries_;
  std::vector<Slot> free_;
};

template <class Entry>
class Queue {
 public:
  explicit Queue(Blocks<Entry>& blocks) : blocks_(blocks) {}

  bool empty() const { return oldest_ == no_slot; }
  Slot oldest() const { return oldest_; }
  // Of all blocks in it, in units of the capacity.
  std::uint64_t size() const { return size_; }

  void push(Slot slot) {
    Entry& entry = blocks_[slot];
    entry.older = newest_;
    entry.newer = no_slot;
    (newest_ == no_slot ? oldest_ : blocks_[newest_].newer) = slot;
    newest_ = slot;
    size_ += entry.size;
  }

  void take(Slot slot) {
    Entry& entry = blocks_[slot];
    (entry.older == no_slot ? oldest_ : blocks_[entry.older].newer) = entry.newer;
    (entry.newer == no_slot ? newest_ : blocks_[entry.newer].older) = entry.older;
    size_ -= entry.size;
  }

  Slot take_oldest() {
    const Slot slot = oldest_;
    take(slot);
    return slot;
  }

 private:
  Blocks<Entry>& blocks_;
  Slot oldest_ = no_slot;
  Slot newest_ = no_slot;
  std::uint64_t size_ = 0;
};

}  // namespace kvext::eviction
