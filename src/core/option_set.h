// Options that come with a choice, such as those of a residual rule or of an optimizer: the choice brings an
// OptionSet of its own type, and whoever holds the choice copies it as a value.
#pragma once

#include <memory>
#include <utility>

#include "core/options.h"

namespace ddl {

class OptionSet {
 public:
  virtual ~OptionSet() = default;
  virtual std::unique_ptr<OptionSet> clone() const = 0;
  virtual void describe(Options& options) = 0;  // refers to the set's members
};

// An OptionSet as a value: a copy is a clone.
class OptionSetPtr {
 public:
  OptionSetPtr() = default;
  OptionSetPtr(std::unique_ptr<OptionSet> set) : set_(std::move(set)) {}  // NOLINT: implicit by design
  OptionSetPtr(const OptionSetPtr& other) : set_(other.set_ ? other.set_->clone() : nullptr) {}
  OptionSetPtr(OptionSetPtr&&) noexcept = default;
  OptionSetPtr& operator=(OptionSetPtr other) noexcept {
    set_ = std::move(other.set_);
    return *this;
  }

  explicit operator bool() const { return set_ != nullptr; }
  OptionSet* operator->() const { return set_.get(); }
  OptionSet& operator*() const { return *set_; }

 private:
  std::unique_ptr<OptionSet> set_;
};

}  // namespace ddl
