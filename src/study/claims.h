// Who is working on what: a file per trial under way, so that several processes, and several machines with a common
// folder, share a study without doing anything twice. The owner holds a lock on its file and touches it now and
// then. A file whose owner died is taken over: on the same machine at once (the system has let go of the lock), from
// another machine when it was not touched for kStaleClaimSeconds.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace ddl {

inline constexpr double kClaimTouchSeconds = 20;
inline constexpr double kStaleClaimSeconds = 180;

class Claim {
 public:
  // Null where somebody else is at it. Throws UserError where the folder cannot be written.
  static std::unique_ptr<Claim> take(const std::string& folder, const std::string& name);
  ~Claim();  // gives it back
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  Claim(std::string path, int file);
  void keep_touching();
  std::string path_;
  int file_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread toucher_;
};

// Removes what killed processes left.
void remove_abandoned_claims(const std::string& folder);

// How many trials of the folder somebody works on now.
long claims_held(const std::string& folder);

}  // namespace ddl
