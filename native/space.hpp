// Who holds which extent: reservation, eviction, what the dead and the hung leave, recovery. Everything here
// needs the allocation lock, and every order of stores is such that a death at any point is repaired by
// recover().
#pragma once
#include <vector>

#include "index.hpp"
#include "namespaces.hpp"
#include "vigil.hpp"

namespace kvext {

struct Reaped {
  u64 num_dead = 0, num_hung = 0, num_freed = 0;
};

class Space {
 public:
  // `vigil` may be null: then nobody counts as hung.
  Space(Region& region, Membership* self, const Vigil* vigil)
      : region_(region), index_(region), namespaces_(region), self_(self), vigil_(vigil) {}

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
  bool evict(u64 extent, Counter reason);

  // Fences who is dead or hung: voids their pins, withdraws their reservations. An extent that a hung
  // process may be writing is in limbo until it is dead or back.
  Reaped reap(bool after_recovery = false);
  // Frees what this process had under an epoch, its pins included; no copy of it may be running.
  u64 abandon(u64 epoch);
  void forget_pins() const { clear_pins(self_->index()); }
  // Rebuilds the free list and the counts from the slots, after a death inside the lock.
  void recover();

  bool pinned(u64 extent) const;
  u64 num_pinned() const;
  Namespaces& namespaces() { return namespaces_; }
  const Index& index() const { return index_; }
  // Whether the process that reserved an extent in limbo may be about to write it.
  bool may_be_written(const Extent& extent) const;

 private:
  bool writer_alive(u64 slot) const;
  bool make_room();
  bool evict_one();
  bool second_chance(u64 extent) const;
  void mend_free_list();
  bool is_free(u64 extent) const;
  bool take_free(u64& extent);
  void put_free(u64 extent);
  void release(u64 extent, u64 slot);
  void fill(u64 at, u64 extent, const Key& key, u32 shape, u32 length, u16 name_space) const;
  void clear_pins(u32 row) const;
  bool withdraw(u64 extent);
  template <class Doomed> u64 withdraw_all(Doomed doomed);
  u64 free_limbo();
  void recount_slots(std::vector<bool>& used);

  Region& region_;
  Index index_;
  Namespaces namespaces_;
  Membership* self_;
  const Vigil* vigil_;
};

u32 now_tenths(const Region& region);

}  // namespace kvext
