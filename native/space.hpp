// Who holds which extent: reservation, eviction, reaping of the dead, recovery. Everything here needs the
// allocation lock, and every order of stores is such that a death at any point is repaired by recover().
#pragma once
#include <span>

#include "index.hpp"
#include "liveness.hpp"

namespace kvext {

class Space {
 public:
  Space(Region& region, Membership* self) : region_(region), index_(region), self_(self) {}

  struct Reservation {
    StoreOutcome outcome = StoreOutcome::no_space;
    BlockRef ref{};
  };
  // Takes a slot and an extent for a new record, evicting if need be. First writer wins.
  Reservation reserve(const Key& key, u32 shape, u32 length, u16 name_space);
  // Gives a reservation back; false if it is no longer ours.
  bool abort(const BlockRef& ref);
  // Drops one record that nobody pins (and quarantined ones); false if it stays.
  bool drop(u64 extent);
  // Frees what dead processes left: their pins, their reservations. Returns freed reservations.
  u64 reap();
  // Frees this process's own reservations (at detach).
  void abandon_own();
  // Rebuilds the free list and the counts from the slots, after a death inside the lock.
  void recover();

  // The entry of a namespace, created on demand; kUnknownNamespace when the table is full.
  u16 name_space(std::span<const u8, 32> digest, const char* label);

  bool pinned(u64 extent) const;

 private:
  bool evict(u64 extent);
  bool writer_alive(u64 slot) const;
  bool evict_one();
  bool second_chance(u64 extent) const;
  bool take_free(u64& extent);
  void put_free(u64 extent);
  void release(u64 extent, u64 slot);
  void count(u16 name_space, u64 by) const;
  void fill(u64 at, u64 extent, const Key& key, u32 shape, u32 length, u16 name_space) const;
  template <class Doomed> u64 free_reservations(Doomed doomed);

  Region& region_;
  Index index_;
  Membership* self_;
};

u32 now_tenths(const Region& region);

}  // namespace kvext
