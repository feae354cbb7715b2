// What requests use of a pool: match and pin, store and load whole batches, and the steps of a single writer.
#include <algorithm>
#include <thread>

#include "fault.hpp"
#include "pool.hpp"
#include "steps.hpp"

namespace kvext {
namespace {

constexpr u64 kReserveRun = 32;   // records reserved under one hold of the lock
constexpr u64 kPrefetchAhead = 16;
constexpr u8 kMostSecondChances = 3;

}  // namespace

bool Pool::names_record(const BlockRef& ref) const {
  const Geometry& g = region_->geometry();
  if (ref.slot >= g.num_slots || ref.extent >= g.num_extents) return false;
  const Slot& s = region_->slot(ref.slot);
  return load_relaxed(s.extent) == ref.extent && load_relaxed(s.length) <= g.extent_bytes &&
         generation_of(load_acquire(s.state)) == ref.generation;
}

bool Pool::reserved_here(const BlockRef& ref) const {
  return names_record(ref) && self_->in_force() && load_acquire(region_->slot(ref.slot).state) == state_word(SlotState::reserved, ref.generation) &&
         load_relaxed(region_->extent(ref.extent).owner_epoch) == self_->epoch();
}

void Pool::touch(u64 slot) const {
  Slot& s = region_->slot(slot);
  const u32 now = kvext::now_tenths(*region_);
  const u32 last = load_relaxed(s.last_access);
  if (last != now) {
    store_relaxed(s.previous_access, last);
    store_relaxed(s.last_access, now);
  }
  const u8 hits_before = load_relaxed(s.hits);
  if (hits_before != 0xff) store_relaxed(s.hits, static_cast<u8>(hits_before + 1));
  const u8 chances = load_relaxed(s.reference);
  if (chances < kMostSecondChances) store_relaxed(s.reference, static_cast<u8>(chances + 1));
}

bool Pool::pin(const Found& found) {
  u16& count = region_->pin(self_->index(), found.extent);
  if (load_relaxed(count) == 0xffff) return false;
  add_ordered(count, u16{1});
  step(Step::match_pinned);
  if (load_ordered(region_->slot(found.slot).state) == found.word) return true;
  add_ordered(count, static_cast<u16>(-1));
  return false;
}

u64 Pool::match(const Key* keys, u64 n, u32 shape, BlockRef* refs, u64& epoch) {
  const Shared guard = begin();
  epoch = self_->epoch();
  if (is_bypassed() || !self_->in_force()) {
    count(bypassed_lookups, is_bypassed() ? n : 0);
    return 0;
  }
  u64 matched = 0;
  for (u64 i = 0; i < std::min(n, kPrefetchAhead); ++i) index_->prefetch(keys[i]);
  for (; matched < n; ++matched) {
    if (matched + kPrefetchAhead < n) index_->prefetch(keys[matched + kPrefetchAhead]);
    const Found found = index_->find(keys[matched], shape);
    if (!found || !pin(found)) break;
    touch(found.slot);
    refs[matched] = {static_cast<u32>(found.slot), found.extent, generation_of(found.word)};
  }
  step(Step::match_checked);
  num_held_.fetch_add(matched, std::memory_order_relaxed);
  count(lookups, n);
  count(hits, matched);
  return matched;
}

void Pool::unpin(const BlockRef* refs, u64 n, u64 epoch) {
  const Shared guard(in_use_);
  if (!self_ || self_->epoch() != epoch) return;
  called();
  for (u64 i = 0; i < n; ++i) {
    if (!region_->has_extent(refs[i].extent)) continue;
    u16& count = region_->pin(self_->index(), refs[i].extent);
    if (load_relaxed(count) > 0) add_ordered(count, static_cast<u16>(-1));
    step(Step::unpin_one);
  }
  let_go(n);
}

u64 Pool::lookup(const Key* keys, u64 n, u32 shape, u8* found) {
  const Look guard = look();
  require_tables();
  u64 num_found = 0;
  for (u64 i = 0; i < std::min(n, kPrefetchAhead); ++i) index_->prefetch(keys[i]);
  for (u64 i = 0; i < n; ++i) {
    if (i + kPrefetchAhead < n) index_->prefetch(keys[i + kPrefetchAhead]);
    found[i] = static_cast<bool>(index_->find(keys[i], shape));
    num_found += found[i];
  }
  return num_found;
}

void Pool::store(const Key* keys, u64 n, u32 shape, DigestView name_space, const Pages& pages, const u64* blocks, StoreOutcome* outcomes) {
  const Shared guard = begin();
  const bool off = is_bypassed();
  std::fill_n(outcomes, n, off ? StoreOutcome::bypassed : StoreOutcome::lock_timeout);
  for (u64 at = 0; at < n && !off; at += kReserveRun) {
    const u64 run = std::min(kReserveRun, n - at);
    if (store_run(keys + at, run, shape, name_space, pages, blocks + at, outcomes + at)) continue;
    // One wait a call is enough: what held the lock that long will hold it longer. One search for room, too.
    std::fill(outcomes + at + run, outcomes + n, outcomes[at + run - 1]);
    break;
  }
  u64 tally[kNumStoreOutcomes] = {};
  for (u64 i = 0; i < n; ++i) ++tally[static_cast<u8>(outcomes[i])];
  for (u8 outcome = 0; outcome < kNumStoreOutcomes; ++outcome)
    if (tally[outcome]) count(counter_of(static_cast<StoreOutcome>(outcome)), tally[outcome]);
}

bool Pool::store_run(const Key* keys, u64 n, u32 shape, DigestView name_space, const Pages& pages, const u64* blocks, StoreOutcome* outcomes) {
  BlockRef refs[kReserveRun];
  bool any_missing = false;
  for (u64 i = 0; i < n; ++i) {
    const Found found = index_->find(keys[i], shape);
    if (found) touch(found.slot);
    outcomes[i] = found ? StoreOutcome::exists : pages.record_bytes > region_->geometry().extent_bytes ? StoreOutcome::too_large : StoreOutcome::lock_timeout;
    any_missing |= outcomes[i] == StoreOutcome::lock_timeout;
  }
  if (!any_missing) return true;
  bool full = false;
  {
    const auto held = lock(lock_wait_);
    if (!held) return false;
    const u16 id = space_->namespaces().entry_of(name_space);
    for (u64 i = 0; i < n; ++i) {
      if (outcomes[i] != StoreOutcome::lock_timeout) continue;
      if (full) {
        outcomes[i] = StoreOutcome::no_space;
        continue;
      }
      const auto reservation = space_->reserve(keys[i], shape, static_cast<u32>(pages.record_bytes), id);
      outcomes[i] = reservation.outcome;
      refs[i] = reservation.ref;
      full = reservation.outcome == StoreOutcome::no_space;
    }
  }
  step(Step::store_reserved);
  for (u64 i = 0; i < n; ++i)
    if (outcomes[i] == StoreOutcome::stored) outcomes[i] = write(refs[i], keys[i], shape, pages, blocks[i]);
  return !full;
}

StoreOutcome Pool::write(const BlockRef& ref, const Key& key, u32 shape, const Pages& pages, u64 block) {
  const u64 checksum = gather(pages, block, key, shape, region_->payload(ref.extent));
  step(Step::store_copied);
  return publish(ref, checksum);
}

std::optional<u64> Pool::fill(const BlockRef& ref, std::span<const u8> record) {
  const Shared guard = begin();
  if (!reserved_here(ref)) return std::nullopt;
  const Slot& s = region_->slot(ref.slot);
  if (record.size() != s.length)
    throw Fault("value", "the record has " + std::to_string(record.size()) + " bytes, " + std::to_string(s.length) + " were reserved");
  std::memcpy(region_->payload(ref.extent), record.data(), record.size());
  return record_checksum(s.key, s.shape, record.data(), record.size());
}

StoreOutcome Pool::commit(const BlockRef& ref, u64 checksum) {
  const Shared guard = begin();
  if (reserved_here(ref)) let_go(1);
  const StoreOutcome outcome = publish(ref, checksum);
  count(counter_of(outcome), 1);
  return outcome;
}

StoreOutcome Pool::publish(const BlockRef& ref, u64 checksum) {
  if (!reserved_here(ref)) return StoreOutcome::fenced;
  store_relaxed(region_->extent(ref.extent).checksum, checksum);
  step(Step::store_checksummed);
  const bool ours = swap_if(region_->slot(ref.slot).state, state_word(SlotState::reserved, ref.generation),
                            state_word(SlotState::committed, ref.generation));
  step(Step::store_committed);
  return ours ? StoreOutcome::stored : StoreOutcome::fenced;
}

Space::Reservation Pool::reserve(const Key& key, u32 shape, u32 length, DigestView name_space) {
  const Shared guard = begin();
  Space::Reservation made{is_bypassed() ? StoreOutcome::bypassed : StoreOutcome::too_large, {}};
  if (!is_bypassed() && length <= region_->geometry().extent_bytes) {
    const auto held = lock(lock_wait_);
    made = held ? space_->reserve(key, shape, length, space_->namespaces().entry_of(name_space)) : Space::Reservation{StoreOutcome::lock_timeout, {}};
  }
  if (made.outcome == StoreOutcome::stored)
    num_held_.fetch_add(1, std::memory_order_relaxed);
  else
    count(counter_of(made.outcome), 1);
  return made;
}

// What was taken under an epoch that is over is not in the count any more.
void Pool::let_go(u64 n) {
  u64 held = num_held_.load(std::memory_order_relaxed);
  while (!num_held_.compare_exchange_weak(held, held - std::min(n, held), std::memory_order_relaxed)) {
  }
}

bool Pool::abort(const BlockRef& ref) {
  const Shared guard = begin();
  if (!reserved_here(ref)) return false;
  let_go(1);
  {
    const std::lock_guard<std::mutex> owed(owed_mutex_);
    owed_.push_back(ref);
  }
  static_cast<void>(lock(lock_wait_));  // if it stays taken, whichever call has it next pays
  return true;
}

void Pool::pay_owed() {
  std::vector<BlockRef> refs;
  {
    const std::lock_guard<std::mutex> owed(owed_mutex_);
    refs.swap(owed_);
  }
  for (const BlockRef& ref : refs) {
    step(Step::abort_locked);
    if (reserved_here(ref)) space_->abort(ref);
  }
}

std::span<u8> Pool::record(const BlockRef& ref) {
  const Look guard = look();
  require_tables();
  if (!names_record(ref)) throw Fault("value", "the reference names no record of this pool; it may have been evicted");
  const u64 length = load_relaxed(region_->slot(ref.slot).length);
  return {region_->payload(ref.extent), std::min(length, region_->geometry().extent_bytes)};
}

void Pool::load(const BlockRef* refs, u64 n, const Pages& pages, const u64* blocks, bool verify, LoadOutcome* outcomes) {
  const Shared guard = begin();
  const SteadyTime begun = std::chrono::steady_clock::now();
  for (u64 i = 0; i < n; ++i) outcomes[i] = read(refs[i], pages, blocks[i], verify);
  count_loads(outcomes, n);
  std::this_thread::sleep_until(pace_.due(begun, n * pages.record_bytes));
}

void Pool::count_loads(const LoadOutcome* outcomes, u64 n) const {
  u64 tally[3] = {};
  for (u64 i = 0; i < n; ++i) ++tally[static_cast<u8>(outcomes[i])];
  for (u32 outcome = 0; outcome < 3; ++outcome)
    if (tally[outcome]) count(loads + outcome, tally[outcome]);
}

LoadOutcome Pool::read(const BlockRef& ref, const Pages& pages, u64 block, bool verify) {
  const auto record = open_record(ref, pages.record_bytes);
  if (!record) return LoadOutcome::stale;
  u64 actual = record->checksum;
  if (verify)
    actual = scatter(pages, block, record->key, record->shape, record->bytes);
  else
    scatter_unverified(pages, block, record->bytes);
  return settle_record(ref, *record, actual);
}

// An evictor that looks for pins, and will find ours, has changed nothing but the state.
bool Pool::is_readable(const BlockRef& ref) const {
  const u64 word = load_acquire(region_->slot(ref.slot).state);
  return word == state_word(SlotState::committed, ref.generation) || word == state_word(SlotState::evicting, ref.generation);
}

std::optional<Pool::OpenRecord> Pool::open_record(const BlockRef& ref, u64 length) const {
  if (!names_record(ref)) return std::nullopt;
  const Slot& s = region_->slot(ref.slot);
  if (!is_readable(ref) || load_relaxed(s.length) != length || length > region_->geometry().extent_bytes) return std::nullopt;
  OpenRecord record{region_->payload(ref.extent), {}, load_relaxed(s.shape), load_relaxed(region_->extent(ref.extent).checksum)};
  for (int i = 0; i < 4; ++i) record.key.word[i] = load_relaxed(s.key.word[i]);
  return record;
}

LoadOutcome Pool::settle_record(const BlockRef& ref, const OpenRecord& record, u64 checksum) {
  step(Step::load_copied);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!is_readable(ref)) return LoadOutcome::stale;
  step(Step::load_verified);
  if (checksum == record.checksum) return LoadOutcome::loaded;
  quarantine(ref);
  step(Step::load_quarantined);
  return LoadOutcome::corrupt;
}

void Pool::quarantine(const BlockRef& ref) {
  swap_if(region_->slot(ref.slot).state, state_word(SlotState::committed, ref.generation), state_word(SlotState::quarantined, ref.generation));
}

}  // namespace kvext
