// The part of Pool that people look through: statistics, namespaces, clearing, closing.
#include <algorithm>
#include <cstdio>
#include <new>

#include "fault.hpp"
#include "pool.hpp"
#include "steps.hpp"

namespace kvext {
namespace {

constexpr u64 kClearRun = 4096;  // extents visited under one hold of the lock
constexpr u64 kEvictRun = 512;   // records evicted under one hold

std::string hex(const u8* bytes, u64 n) {
  std::string out;
  char digits[3];
  for (u64 i = 0; i < n; ++i) {
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    out += digits;
  }
  return out;
}

template <std::size_t n> std::string text(const char (&label)[n]) { return std::string(label, ::strnlen(label, n)); }

}  // namespace

u64 Pool::extent_bytes() const {
  const Shared guard(in_use_);
  return region_ ? region_->geometry().extent_bytes : 0;
}
u64 Pool::capacity_bytes() const {
  const Shared guard(in_use_);
  return region_ ? region_->geometry().extent_bytes * region_->geometry().num_extents : 0;
}
u64 Pool::num_extents() const {
  const Shared guard(in_use_);
  return region_ ? region_->geometry().num_extents : 0;
}
u64 Pool::num_free() const {
  const Shared guard(in_use_);
  return region_ ? load_relaxed(region_->super().num_free) : 0;
}
u64 Pool::num_limbo() const {
  const Shared guard(in_use_);
  return region_ ? load_relaxed(region_->super().num_limbo) : 0;
}
u64 Pool::lease_ms() const {
  const Shared guard(in_use_);
  return region_ ? kvext::lease_ms(*region_) : 0;
}
u32 Pool::now_tenths() const {
  const Shared guard(in_use_);
  return region_ ? kvext::now_tenths(*region_) : 0;
}
u64 Pool::epoch() const {
  const Shared guard(in_use_);
  return self_ ? self_->epoch() : 0;
}
std::string Pool::uuid_hex() const {
  const Shared guard(in_use_);
  require_open();
  return hex(region_->super().uuid, sizeof region_->super().uuid);
}

PoolStat Pool::stat() {
  const Look guard = look();
  PoolStat out{};
  const Superblock& super = region_->super();
  out.region_bytes = super.region_bytes;
  out.bypassed = is_bypassed();
  out.lease_ms = kvext::lease_ms(*region_);
  for (u32 c = 0; c < kNumCounters; ++c) out.counters.push_back(load_relaxed(super.counters[c]));
  if (!space_) return out;
  const Geometry& g = region_->geometry();
  out.extent_bytes = g.extent_bytes;
  out.num_extents = g.num_extents;
  out.num_free = load_relaxed(super.num_free);
  out.num_limbo = load_relaxed(super.num_limbo);
  for (u64 at = 0; at < g.num_slots; ++at) {
    const Slot& s = region_->slot(at);
    const SlotState state = state_of(load_acquire(s.state));
    out.num_reserved += state == SlotState::reserved;
    out.num_quarantined += state == SlotState::quarantined;
    if (state != SlotState::committed) continue;
    ++out.num_committed;
    out.committed_bytes += load_relaxed(s.length);
  }
  out.num_pinned = space_->num_pinned();
  const u64 now = boottime_ms();
  for (u32 i = 0; i < kMaxProcesses; ++i) {
    const Process& p = region_->process(i);
    const bool own = self_ && self_->index() == i;
    if (load_acquire(p.epoch) == 0 || !(own || process_alive(*region_, i))) continue;
    const u64 beat = load_relaxed(p.beat_ms);
    const u64 age = beat < now ? now - beat : 0;
    out.processes.push_back({i, p.pid, p.pid_namespace, age, region_->count_pins(i), text(p.label)});
    if (load_relaxed(super.agent_epoch) != load_acquire(p.epoch)) continue;
    out.agent_label = text(p.label);
    out.agent_age_ms = age;
  }
  return out;
}

void Pool::describe_namespace(DigestView digest, const std::string& label, const u8* model) {
  const Shared guard = begin();
  const Held held = lock_or_throw();
  space_->namespaces().describe(digest, label, model);
}

std::vector<NamespaceUse> Pool::namespaces() {
  const Look guard = look();
  std::vector<NamespaceUse> out;
  if (!space_) return out;
  const Held held = lock_or_throw();
  if (!space_) return out;
  for (u32 i = 0; i < kMaxNamespaces; ++i) {
    const NamespaceEntry& entry = region_->name_space(i);
    NamespaceState state = load_acquire(entry.state);
    if (state > NamespaceState::quarantined) state = NamespaceState::fenced;  // damaged: nothing is found or stored under it
    const bool is_over = state == NamespaceState::fenced && load_relaxed(entry.num_extents) == 0;
    if (state == NamespaceState::unused || is_over) continue;
    out.push_back({hex(entry.digest, 32), text(entry.label), hex(entry.model, 32), load_relaxed(entry.num_extents), state});
  }
  return out;
}

Namespaces::Fenced Pool::fence(DigestView model, bool all_but) {
  const Look guard = look();
  if (!space_) return {};
  const Held held = lock_or_throw();
  return space_ ? space_->namespaces().fence(model, all_but) : Namespaces::Fenced{};
}

bool Pool::set_quarantine(DigestView name_space, bool on) {
  const Look guard = look();
  require_tables();
  const Held held = lock_or_throw();
  require_tables();
  Namespaces& all = space_->namespaces();
  return on ? all.quarantine(name_space) : all.release(name_space);
}

RecordTable Pool::records(u32 since_tenths) {
  const Look guard = look();
  RecordTable out;
  for (u64 at = 0; space_ && at < region_->geometry().num_slots; ++at) {
    const Slot& s = region_->slot(at);
    const u64 word = load_acquire(s.state);
    const u32 last = load_relaxed(s.last_access), extent = load_relaxed(s.extent);
    if (state_of(word) != SlotState::committed || last < since_tenths || !region_->has_extent(extent)) continue;
    Key key;
    for (int i = 0; i < 4; ++i) key.word[i] = load_relaxed(s.key.word[i]);
    const u32 length = load_relaxed(s.length), previous = load_relaxed(s.previous_access);
    const u16 id = load_relaxed(s.name_space);
    const u8 num_hits = load_relaxed(s.hits);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (load_relaxed(s.state) != word) continue;  // another record by now: it will be seen the next time
    out.refs.push_back({static_cast<u32>(at), extent, generation_of(word)});
    out.keys.push_back(key);
    out.lengths.push_back(length);
    out.last_access.push_back(last);
    out.previous_access.push_back(previous);
    out.namespaces.push_back(id);
    out.owners.push_back(load_relaxed(region_->extent(extent).owner));
    out.hits.push_back(num_hits);
  }
  return out;
}

u64 Pool::evict(const BlockRef* refs, u64 n) {
  const Shared guard = begin();
  u64 evicted = 0;
  for (u64 from = 0; from < n; from += kEvictRun) {
    if (from > 0) AllocationLock::give_others_a_turn();
    const Held held = lock_or_throw();
    for (u64 i = from; i < std::min(n, from + kEvictRun); ++i)
      evicted += names_record(refs[i]) && space_->evict(refs[i].extent, reclaims);
  }
  return evicted;
}

bool Pool::claim_agent_role() {
  const Shared guard = begin();
  const Held held = lock_or_throw();
  space_->reap();
  u64& holder = region_->super().agent_epoch;
  const u64 epoch = load_relaxed(holder);
  for (u32 i = 0; i < kMaxProcesses && epoch != 0; ++i)
    if (load_acquire(region_->process(i).epoch) == epoch) return epoch == self_->epoch();
  if (!self_->in_force()) return false;
  store_release(holder, self_->epoch());
  step(Step::role_claimed);
  return true;
}

bool Pool::holds_agent_role() const {
  const Shared guard(in_use_);
  return self_ && self_->in_force() && load_acquire(region_->super().agent_epoch) == self_->epoch();
}

void Pool::release_agent_role() {
  const Shared guard = begin();
  if (self_->in_force()) swap_if(region_->super().agent_epoch, self_->epoch(), u64{0});
}

std::pair<u64, u64> Pool::clear(const u8* name_space) {
  const Look guard = look();
  u64 dropped = 0, kept = 0;
  for (u64 from = 0; space_ && from < region_->geometry().num_extents; from += kClearRun) {
    if (from > 0) AllocationLock::give_others_a_turn();
    const Held held = lock_or_throw();
    if (!space_) break;
    if (from == 0) space_->reap();
    for (u64 e = from; e < std::min(region_->geometry().num_extents, from + kClearRun); ++e) {
      const Extent& extent = region_->extent(e);
      if (load_relaxed(extent.owner_epoch) == 0 || load_relaxed(extent.slot) == kNoSlot) continue;  // free, or in limbo
      const bool wanted = !name_space || (extent.name_space < kMaxNamespaces &&
                                          std::memcmp(region_->name_space(extent.name_space).digest, name_space, 32) == 0);
      if (!wanted) continue;
      space_->drop(e) ? ++dropped : ++kept;
      step(Step::clear_dropped);
    }
  }
  return {dropped, kept};
}

Reaped Pool::reap() {
  const Shared guard = begin();
  const Held held = lock_or_throw();
  return space_->reap();
}

FsckReport Pool::fsck(bool repair, bool verify_data) {
  const Look guard = look();
  FsckReport report;
  if (!space_) return report;
  {
    const Held held = lock_or_throw();
    if (!space_) return report;
    space_->reap();
    report = Fsck(*region_, *space_).check(repair);
  }
  if (verify_data) Fsck(*region_, *space_).verify(report, repair);
  return report;
}

void Pool::set_bypass(bool on) {
  const Shared guard(in_use_);
  require_open();
  store_relaxed(region_->super().bypass, u64{on});
}

bool Pool::bypassed() const {
  const Shared guard(in_use_);
  return region_ && is_bypassed();
}

void Pool::close() {
  if (!region_) return;  // before the lock: a forked child may inherit it taken
  const std::unique_lock<std::shared_mutex> guard(in_use_);
  if (!region_) return;
  if (self_) {
    try {
      if (const auto held = lock(lock_wait_)) {
        swap_if(region_->super().agent_epoch, self_->epoch(), u64{0});
        space_->abandon(self_->epoch());
        step(Step::detach_abandoned);
        self_->leave();
        step(Step::detach_left);
      }
    } catch (const std::exception&) {
    }
    // Without the lock our row stays behind like a dead process's: closing the file drops its sign of
    // life, and the next reaper does the rest.
  }
  vigil_.reset();  // not before: whoever repairs what a death in the lock left asks it who hangs
  prefault_.reset();
  space_.reset();
  index_.reset();
  self_.reset();
  allocation_.reset();
  region_.reset();
}

void Pool::abandon_after_fork() {
  // The child shares our open file description: closing its copy of the descriptor leaves the parent's
  // locks alone, unlocking would not. The thread of prefault_ does not exist here: leak its handle.
  static_cast<void>(prefault_.release());
  static_cast<void>(vigil_.release());
  new (&in_use_) std::shared_mutex;  // a thread that does not exist here may have held it
  space_.reset();
  index_.reset();
  self_.reset();
  allocation_.reset();
  region_.reset();
}

}  // namespace kvext
