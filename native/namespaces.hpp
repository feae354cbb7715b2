// Which namespaces hold records, and whether these may be read. Everything here but state() needs the
// allocation lock.
#pragma once
#include <span>
#include <string>

#include "region.hpp"

namespace kvext {

using DigestView = std::span<const u8, 32>;

class Namespaces {
 public:
  explicit Namespaces(const Region& region) : region_(region) {}

  // The entry that new records of a namespace belong to, made on demand; kUnknownNamespace when all are taken.
  u16 entry_of(DigestView digest);
  void describe(DigestView digest, const std::string& label, const u8* model);

  NamespaceState state(u16 id) const;
  bool is_live(u16 id) const { return state(id) == NamespaceState::live; }
  void count(u16 id, u64 by) const;

  struct Fenced {
    u64 num_namespaces = 0, num_records = 0;
  };
  // Makes all that is stored under a model, or under every other model, unreachable. A namespace whose
  // model nobody has told counts as another one.
  Fenced fence(DigestView model, bool all_but);
  // False if there is nothing to change.
  bool quarantine(DigestView digest);
  bool release(DigestView digest);

 private:
  bool is_current(u32 id, DigestView digest) const;
  u32 find(DigestView digest) const;
  bool turn(DigestView digest, NamespaceState from, NamespaceState to);
  u16 take(u32 id, DigestView digest);

  const Region& region_;
  u32 last_ = 0;  // most calls ask for the same one
};

}  // namespace kvext
