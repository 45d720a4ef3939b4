// Options that exist only with a choice: a thing chosen by name (train.optimizer = muon) lists its own, in
// its own file, as a struct with members and their defaults.
//
//   struct MuonOptions : OptionSetOf<MuonOptions> {
//     double momentum = 0.95;
//     void describe(Options& o) override { o.add("train.momentum", momentum, "...").range(0, 0.999999); }
//   };
//
// Whoever holds the choice keeps an OptionSetPtr, which copies like a value, and lists it with
// describe_chosen.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/options.h"

namespace ddl {

class OptionSet {
 public:
  virtual ~OptionSet() = default;
  virtual std::unique_ptr<OptionSet> clone() const = 0;
  // Members are referred to: the set must outlive the options.
  virtual void describe(Options& options) = 0;
};

template <class Own>
class OptionSetOf : public OptionSet {
 public:
  std::unique_ptr<OptionSet> clone() const override {
    return std::make_unique<Own>(static_cast<const Own&>(*this));
  }
};

// For a choice without options.
struct NoOptions : OptionSetOf<NoOptions> {
  void describe(Options&) override {}
};

// Holds one set; a copy has a set of its own.
class OptionSetPtr {
 public:
  OptionSetPtr() = default;
  template <class Own>
  explicit OptionSetPtr(OptionSetOf<Own> const& set) : set_(set.clone()) {}
  OptionSetPtr(const OptionSetPtr& other) : set_(other.set_ ? other.set_->clone() : nullptr) {}
  OptionSetPtr(OptionSetPtr&&) noexcept = default;
  OptionSetPtr& operator=(OptionSetPtr other) noexcept {
    set_ = std::move(other.set_);
    return *this;
  }

  OptionSet* operator->() const { return set_.get(); }
  OptionSet& operator*() const { return *set_; }
  explicit operator bool() const { return set_ != nullptr; }

  // The members, for code that knows which set it is.
  template <class Own>
  Own& as() {
    return cast<Own>();
  }
  template <class Own>
  const Own& as() const {
    return cast<Own>();
  }

 private:
  template <class Own>
  Own& cast() const {
    Own* own = dynamic_cast<Own*>(set_.get());
    DDL_CHECK(own, "the options are those of another choice");
    return *own;
  }
  std::unique_ptr<OptionSet> set_;
};

// What one choice by name has: its name and its options with their defaults.
struct NamedOptionSet {
  std::string name;
  OptionSetPtr options;
};

// Lists the options of what was chosen under `choice_key`. Options that only others of `all` have are
// refused, with a message that says whose they are and lists what the chosen one has.
void describe_chosen(Options& options, const std::string& choice_key, const std::string& chosen,
                     OptionSet& own, const std::vector<NamedOptionSet>& all);

}  // namespace ddl
