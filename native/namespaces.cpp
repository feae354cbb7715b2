#include "namespaces.hpp"

#include <algorithm>
#include <cstring>

#include "atomics.hpp"
#include "steps.hpp"

namespace kvext {

NamespaceState Namespaces::state(u16 id) const {
  return id < kMaxNamespaces ? load_acquire(region_.name_space(id).state) : NamespaceState::unused;
}

void Namespaces::count(u16 id, u64 by) const {
  if (id < kMaxNamespaces) add_relaxed(region_.name_space(id).num_extents, by);
}

bool Namespaces::is_current(u32 id, DigestView digest) const {
  const NamespaceEntry& entry = region_.name_space(id);
  const NamespaceState state = load_acquire(entry.state);
  return (state == NamespaceState::live || state == NamespaceState::quarantined) && std::memcmp(entry.digest, digest.data(), 32) == 0;
}

u32 Namespaces::find(DigestView digest) const {
  for (u32 id = 0; id < kMaxNamespaces; ++id)
    if (is_current(id, digest)) return id;
  return kUnknownNamespace;
}

u16 Namespaces::entry_of(DigestView digest) {
  if (is_current(last_, digest)) return static_cast<u16>(last_);
  u32 id = find(digest);
  for (u32 i = 0; i < kMaxNamespaces && id == kUnknownNamespace; ++i)
    if (load_acquire(region_.name_space(i).state) == NamespaceState::unused) id = take(i, digest);
  for (u32 i = 0; i < kMaxNamespaces && id == kUnknownNamespace; ++i)
    if (region_.name_space(i).num_extents == 0 && state(static_cast<u16>(i)) != NamespaceState::quarantined) id = take(i, digest);
  if (id != kUnknownNamespace) last_ = id;
  return static_cast<u16>(id);
}

u16 Namespaces::take(u32 id, DigestView digest) {
  NamespaceEntry fresh{};
  std::memcpy(fresh.digest, digest.data(), 32);
  // After a fence the new entry goes by the name of the old one.
  for (u32 i = 0; i < kMaxNamespaces; ++i) {
    const NamespaceEntry& old = region_.name_space(i);
    if (load_acquire(old.state) != NamespaceState::fenced || std::memcmp(old.digest, digest.data(), 32) != 0) continue;
    std::memcpy(fresh.model, old.model, sizeof fresh.model);
    std::memcpy(fresh.label, old.label, sizeof fresh.label);
  }
  NamespaceEntry& entry = region_.name_space(id);
  store_release(entry.state, NamespaceState::unused);
  std::memcpy(entry.digest, fresh.digest, sizeof entry.digest);
  std::memcpy(entry.model, fresh.model, sizeof entry.model);
  std::memcpy(entry.label, fresh.label, sizeof entry.label);
  store_relaxed(entry.num_extents, u64{0});
  store_release(entry.state, NamespaceState::live);
  return static_cast<u16>(id);
}

void Namespaces::describe(DigestView digest, const std::string& label, const u8* model) {
  const u16 id = entry_of(digest);
  if (id == kUnknownNamespace) return;
  NamespaceEntry& entry = region_.name_space(id);
  std::memset(entry.label, 0, sizeof entry.label);
  std::memcpy(entry.label, label.data(), std::min(label.size(), sizeof entry.label - 1));
  if (model) std::memcpy(entry.model, model, sizeof entry.model);
}

Namespaces::Fenced Namespaces::fence(DigestView model, bool all_but) {
  Fenced out;
  for (u32 i = 0; i < kMaxNamespaces; ++i) {
    NamespaceEntry& entry = region_.name_space(i);
    const bool same = std::memcmp(entry.model, model.data(), 32) == 0;
    if (load_acquire(entry.state) != NamespaceState::live || same == all_but) continue;
    store_release(entry.state, NamespaceState::fenced);
    step(Step::fence_marked);
    ++out.num_namespaces;
    out.num_records += load_relaxed(entry.num_extents);
  }
  return out;
}

bool Namespaces::turn(DigestView digest, NamespaceState from, NamespaceState to) {
  const u32 id = find(digest);
  if (id == kUnknownNamespace || state(static_cast<u16>(id)) != from) return false;
  store_release(region_.name_space(id).state, to);
  return true;
}

bool Namespaces::quarantine(DigestView digest) {
  entry_of(digest);  // also what holds nothing yet
  return turn(digest, NamespaceState::live, NamespaceState::quarantined);
}

bool Namespaces::release(DigestView digest) {
  // What was suspicious enough for a quarantine is not served again: it starts over.
  return turn(digest, NamespaceState::quarantined, NamespaceState::fenced);
}

}  // namespace kvext
