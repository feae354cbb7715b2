#include "fsck.hpp"

#include "atomics.hpp"
#include "copy.hpp"
#include "steps.hpp"

namespace kvext {
namespace {

constexpr u64 kLookAhead = 16;  // slots, while their extents are fetched

std::string numbered(const char* what, u64 n) { return std::string(what) + " " + std::to_string(n); }

Key key_at(const Slot& s) {
  Key key;
  for (int i = 0; i < 4; ++i) key.word[i] = load_relaxed(s.key.word[i]);
  return key;
}

}  // namespace

FsckReport Fsck::check(bool repair) {
  FsckReport found = find();
  if (!repair || found.problems.empty()) return found;
  step(Step::repair_begun);
  drop_bad_records();
  for (u32 row = 0; row < kMaxProcesses; ++row) {
    const u64 epoch = load_acquire(region_.process(row).epoch);
    if (epoch > load_relaxed(region_.super().epoch)) store_release(region_.super().epoch, epoch);
    if (epoch != 0 || process_alive(region_, row)) continue;
    for (u64 i = 0; i < region_.num_pin_words(); ++i) store_relaxed(region_.pin_word(row, i), u64{0});
  }
  for (u32 i = 0; i < kMaxNamespaces; ++i) {
    NamespaceEntry& entry = region_.name_space(i);
    if (load_acquire(entry.state) > NamespaceState::quarantined) store_release(entry.state, NamespaceState::fenced);
  }
  space_.recover();
  const u64 left = find().problems.size();
  found.num_repaired = found.problems.size() - std::min<u64>(left, found.problems.size());
  return found;
}

FsckReport Fsck::find() {
  report_ = {};
  bad_slots_.clear();
  slot_of_.assign(region_.geometry().num_extents, 0);
  uses_.assign(kMaxNamespaces, 0);
  num_limbo_ = 0;
  for (u64 at = 0; at < region_.geometry().num_slots; ++at) {
    region_.prefetch_extent_of(at + kLookAhead);
    check_slot(at);
  }
  check_extents();
  check_free_list();
  check_counts();
  check_processes();
  return report_;
}

void Fsck::check_slot(u64 at) {
  const Slot& s = region_.slot(at);
  const u64 word = load_acquire(s.state);
  const SlotState state = state_of(word);
  if (state == SlotState::free || state == SlotState::tombstone) return;
  const auto bad = [&](ProblemKind kind, std::string detail) {
    tell(kind, numbered("slot", at), std::move(detail));
    bad_slots_.push_back(at);
  };
  if (state > SlotState::quarantined || state == SlotState::evicting)
    return bad(ProblemKind::bad_state, numbered("state", static_cast<u64>(state)));
  const u32 extent = load_relaxed(s.extent);
  if (!region_.has_extent(extent)) return bad(ProblemKind::bad_extent, numbered("names extent", extent) + " of " + std::to_string(region_.geometry().num_extents));
  if (slot_of_[extent] != 0) return bad(ProblemKind::bad_extent, numbered("names extent", extent) + numbered(", which has slot", slot_of_[extent] - 1));
  const Extent& e = region_.extent(extent);
  const u16 id = load_relaxed(s.name_space);
  if (load_relaxed(s.length) > region_.geometry().extent_bytes) return bad(ProblemKind::bad_length, std::to_string(load_relaxed(s.length)) + " bytes");
  if (id != load_relaxed(e.name_space) || space_.namespaces().state(id) == NamespaceState::unused || space_.namespaces().state(id) > NamespaceState::quarantined)
    return bad(ProblemKind::bad_namespace, numbered("namespace", id) + numbered(", its extent says", load_relaxed(e.name_space)));
  if (load_relaxed(e.owner_epoch) == 0) return bad(ProblemKind::free_list, numbered("its extent", extent) + " counts as free");
  slot_of_[extent] = at + 1;
  ++uses_[id];
  ++report_.num_records;
  if (load_relaxed(e.slot) != at) tell(ProblemKind::back_reference, numbered("extent", extent), numbered("names slot", load_relaxed(e.slot)) + numbered(", not", at));
  const bool live = space_.namespaces().is_live(id);
  if (state == SlotState::committed && live) {
    const Found found = space_.index().find(key_at(s), load_relaxed(s.shape));
    if (!found) return bad(ProblemKind::unreachable, "a lookup of its key misses it");
    if (found.slot != at) return bad(ProblemKind::duplicate, numbered("slot", found.slot) + " has the same key");
  }
}

void Fsck::check_extents() {
  for (u64 i = 0; i < region_.geometry().num_extents; ++i) {
    const Extent& e = region_.extent(i);
    if (load_relaxed(e.owner_epoch) == 0 || slot_of_[i] != 0) continue;
    const bool limbo = load_relaxed(e.slot) == kNoSlot;
    num_limbo_ += limbo;
    if (limbo && !space_.may_be_written(e)) tell(ProblemKind::orphan, numbered("extent", i), "in limbo, but its writer is gone");
    if (!limbo) tell(ProblemKind::leaked, numbered("extent", i), "neither free nor named by any slot");
  }
}

void Fsck::check_free_list() {
  const u64 n = region_.geometry().num_extents;
  std::vector<bool> listed(n, false);
  u64 length = 0;
  for (u64 next = load_relaxed(region_.super().free_head); next != 0;) {
    const u64 extent = next - 1;
    if (!region_.has_extent(extent)) return tell(ProblemKind::free_list, "free list", numbered("names extent", extent) + " of " + std::to_string(n));
    if (listed[extent]) return tell(ProblemKind::free_list, "free list", numbered("runs in a circle at extent", extent));
    if (load_relaxed(region_.extent(extent).owner_epoch) != 0) return tell(ProblemKind::free_list, "free list", numbered("names extent", extent) + ", which is in use");
    listed[extent] = true;
    ++length;
    next = region_.extent(extent).next_free;
  }
  for (u64 i = 0; i < n; ++i)
    if (load_relaxed(region_.extent(i).owner_epoch) == 0 && !listed[i]) tell(ProblemKind::leaked, numbered("extent", i), "free, but not on the list");
  const u64 counted = load_relaxed(region_.super().num_free);
  if (counted != length) tell(ProblemKind::count, "superblock", numbered("num_free is", counted) + numbered(", the list has", length));
}

void Fsck::check_counts() {
  const u64 counted = load_relaxed(region_.super().num_limbo);
  if (counted != num_limbo_) tell(ProblemKind::count, "superblock", numbered("num_limbo is", counted) + numbered(", there are", num_limbo_));
  for (u32 i = 0; i < kMaxNamespaces; ++i) {
    const u64 held = load_relaxed(region_.name_space(i).num_extents);
    const auto state = load_acquire(region_.name_space(i).state);
    if (state > NamespaceState::quarantined) tell(ProblemKind::bad_namespace, numbered("namespace", i), numbered("state", static_cast<u64>(state)));
    if (held != uses_[i]) tell(ProblemKind::count, numbered("namespace", i), numbered("counts", held) + numbered(" records, has", uses_[i]));
  }
}

void Fsck::check_processes() {
  for (u32 row = 0; row < kMaxProcesses; ++row) {
    const u64 epoch = load_acquire(region_.process(row).epoch);
    if (epoch > load_relaxed(region_.super().epoch)) tell(ProblemKind::epoch, numbered("process", row), numbered("has epoch", epoch));
    // A fenced process that lives clears its pins itself when it comes back.
    if (epoch != 0 || process_alive(region_, row)) continue;
    const u64 pins = region_.count_pins(row);
    if (pins > 0) tell(ProblemKind::void_pins, numbered("process", row), std::to_string(pins) + " pins of nobody");
  }
}

void Fsck::drop_bad_records() {
  for (u64 at : bad_slots_) space_.index().vacate(at);
}

void Fsck::verify(FsckReport& report, bool repair) const {
  for (u64 at = 0; at < region_.geometry().num_slots; ++at) {
    Slot& s = region_.slot(at);
    const u64 word = load_acquire(s.state);
    const u32 extent = load_relaxed(s.extent), length = load_relaxed(s.length);
    if (state_of(word) != SlotState::committed || !region_.has_extent(extent) || length > region_.geometry().extent_bytes) continue;
    const u64 wanted = load_relaxed(region_.extent(extent).checksum);
    const u64 actual = record_checksum(key_at(s), load_relaxed(s.shape), region_.payload(extent), length);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (load_relaxed(s.state) != word || actual == wanted) continue;
    report.problems.push_back({ProblemKind::checksum, numbered("slot", at), numbered("the bytes in extent", extent) + " do not match their checksum"});
    report.num_repaired += repair && swap_if(s.state, word, state_word(SlotState::quarantined, generation_of(word)));
  }
}

}  // namespace kvext
