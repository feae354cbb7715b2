// One process's handle of a pool: match and pin without a lock, store and load whole batches.
#pragma once
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "copy.hpp"
#include "fsck.hpp"
#include "pace.hpp"
#include "prefault.hpp"
#include "space.hpp"
#include "vigil.hpp"

namespace kvext {

struct PoolStat {
  u64 region_bytes, extent_bytes, num_extents, num_free, num_committed, num_reserved, num_quarantined, num_limbo, num_pinned, committed_bytes;
  u64 lease_ms, agent_age_ms;
  std::string agent_label;  // empty: nobody holds the role
  bool bypassed;
  std::vector<u64> counters;
  struct Attached {
    u32 index, pid;
    u64 pid_namespace, heartbeat_age_ms, num_pins;
    std::string label;
  };
  std::vector<Attached> processes;
};

struct NamespaceUse {
  std::string digest, label, model;
  u64 num_extents;
  NamespaceState state;
};

// One committed record as it was at one moment; columns rather than rows, for whoever ranks many.
struct RecordTable {
  std::vector<BlockRef> refs;
  std::vector<Key> keys;
  std::vector<u32> lengths, last_access, previous_access;
  std::vector<u16> namespaces, owners;
  std::vector<u8> hits;
};

// Milliseconds of a clock that nobody sets.
u64 steady_ms();

class LayeredLoad;

class Pool {
 public:
  // A record that is being read: valid if settle_record() says so afterwards.
  struct OpenRecord {
    const u8* bytes;
    Key key;
    u32 shape;
    u64 checksum;
  };
  // With extent_bytes: an engine; fixes the geometry if nobody has yet and enters the process table.
  // Without: an observer, which may look and clear. Throws Fault.
  Pool(const std::string& path, std::optional<u64> extent_bytes, const std::string& label, Seconds lock_wait);
  ~Pool() { close(); }

  // Longest prefix of `keys` that is committed under `shape`; each block of it pinned once, under the epoch
  // that this process has then.
  u64 match(const Key* keys, u64 n, u32 shape, BlockRef* refs, u64& epoch);
  // Without effect if the process was fenced since: the pins went with the epoch.
  void unpin(const BlockRef* refs, u64 n, u64 epoch);
  // found[i] = 1 for each committed key; pins nothing. Returns their number.
  u64 lookup(const Key* keys, u64 n, u32 shape, u8* found);

  // Copies blocks into the pool; one outcome each.
  void store(const Key* keys, u64 n, u32 shape, DigestView name_space, const Pages& pages, const u64* blocks, StoreOutcome* outcomes);
  // Copies pinned records into the engine's blocks and verifies them; one outcome each.
  void load(const BlockRef* refs, u64 n, const Pages& pages, const u64* blocks, bool verify, LoadOutcome* outcomes);

  // The same, layer after layer over all blocks (layered.cpp); no outcomes count if it was cancelled.
  void load_in_layers(const std::vector<BlockRef>& refs, const Pages& pages, const std::vector<u64>& blocks, std::vector<LoadOutcome>& outcomes, LayeredLoad& load);
  // Loads through this handle take as long as with slower memory.
  void set_pace(const Pace& pace) { pace_ = pace; }

  // The steps of store(), for callers that fill a record in another way.
  Space::Reservation reserve(const Key& key, u32 shape, u32 length, DigestView name_space);
  // Writes the record and returns its checksum; nothing if the reservation is no longer ours.
  std::optional<u64> fill(const BlockRef& ref, std::span<const u8> record);
  StoreOutcome commit(const BlockRef& ref, u64 checksum);
  // Gives a reservation back, at the latest with the next call that has the allocation lock. False: no longer ours.
  bool abort(const BlockRef& ref);
  std::span<u8> record(const BlockRef& ref);

  void describe_namespace(DigestView digest, const std::string& label, const u8* model);
  std::vector<NamespaceUse> namespaces();
  Namespaces::Fenced fence(DigestView model, bool all_but);
  bool set_quarantine(DigestView name_space, bool on);
  PoolStat stat();
  // Committed records that were accessed at or after that tenth of a second.
  RecordTable records(u32 since_tenths);
  // Drops those of the named records that still exist and that nobody pins; returns their number.
  u64 evict(const BlockRef* refs, u64 n);
  // Drops all unpinned records, or those of one namespace; returns {dropped, kept}.
  std::pair<u64, u64> clear(const u8* name_space);
  Reaped reap();
  FsckReport fsck(bool repair, bool verify_data);

  // At most one living process of a host has the agent's role; who is dead or hung loses it.
  bool claim_agent_role();
  bool holds_agent_role() const;
  void release_agent_role();

  // While a pool is bypassed, engines find nothing in it and store nothing; loads of what they pinned go on.
  // Any handle may set it, and all obey at once.
  void set_bypass(bool on);
  bool bypassed() const;

  void close();
  // In a forked child: forget everything without touching the parent's locks.
  void abandon_after_fork();
  bool closed() const { return !region_; }
  u64 extent_bytes() const;
  u64 capacity_bytes() const;
  u64 num_extents() const;
  u64 num_free() const;
  u64 num_limbo() const;
  u64 lease_ms() const;
  u32 now_tenths() const;
  u64 epoch() const;
  std::string uuid_hex() const;

 private:
  using Held = AllocationLock::Held;
  using Shared = std::shared_lock<std::shared_mutex>;
  std::optional<Held> lock(Seconds wait);
  Held lock_or_throw(Seconds wait);
  Held lock_or_throw() { return lock_or_throw(lock_wait_); }
  // Holds off close(). An observer looks alone, since it may have to adopt another geometry.
  struct Look {
    Shared with_others;
    std::unique_lock<std::shared_mutex> alone;
  };
  Shared begin();
  Look look();
  void readmit();
  bool may_beat() const;
  void enter(u64 extent_bytes);
  void claim_row();
  void settle_boot();
  void settle_geometry(u64 extent_bytes);
  bool anybody_alive() const;
  void use_tables();
  void observe();
  bool pin(const Found& found);
  void touch(u64 slot) const;
  bool store_run(const Key* keys, u64 n, u32 shape, DigestView name_space, const Pages& pages, const u64* blocks, StoreOutcome* outcomes);
  StoreOutcome write(const BlockRef& ref, const Key& key, u32 shape, const Pages& pages, u64 block);
  LoadOutcome read(const BlockRef& ref, const Pages& pages, u64 block, bool verify);
  std::optional<OpenRecord> open_record(const BlockRef& ref, u64 length) const;
  LoadOutcome settle_record(const BlockRef& ref, const OpenRecord& record, u64 checksum);
  bool is_readable(const BlockRef& ref) const;
  void count_loads(const LoadOutcome* outcomes, u64 n) const;
  void quarantine(const BlockRef& ref);
  void let_go(u64 n);
  bool is_bypassed() const { return load_relaxed(region_->super().bypass) != 0; }
  void called() { last_call_ms_.store(steady_ms(), std::memory_order_relaxed); }
  void require_open() const;
  void require_tables() const;
  void require_member() const;
  bool names_record(const BlockRef& ref) const;
  bool reserved_here(const BlockRef& ref) const;
  void pay_owed();
  StoreOutcome publish(const BlockRef& ref, u64 checksum);
  void count(u32 counter, u64 by) const { add_relaxed(region_->super().counters[counter], by); }

  Seconds lock_wait_;
  Pace pace_;
  std::string label_;
  std::mutex owed_mutex_;
  std::vector<BlockRef> owed_;          // reservations given up while the allocation lock was taken
  std::atomic<u64> num_held_{0};        // pins and reservations that callers hold
  std::atomic<u64> last_call_ms_{0};
  std::unique_ptr<Region> region_;
  std::unique_ptr<AllocationLock> allocation_;
  std::unique_ptr<Membership> self_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Space> space_;
  std::unique_ptr<Prefault> prefault_;
  std::unique_ptr<Vigil> vigil_;
  mutable std::shared_mutex in_use_;  // operations share it; close excludes them
};

}  // namespace kvext
