// Signals while this thread computes. oneDNN's generated products point the stack's register into their work
// space on the heap while they run, and the frame of a signal would overwrite what lies in front of it. (Seen
// with its AVX-512 code: "corrupted size vs. prev_size" after one Ctrl-C in three.) While a SignalStack
// lives, a handler that asks for a stack of its own (SA_ONSTACK, as Python's and StopSignals' do) has one on
// this thread. A signal to the process is the main thread's, so the threads of a team need none.
#pragma once

#include <cstddef>
#include <memory>

namespace ddl {

class SignalStack {
 public:
  SignalStack();   // a thread that has such a stack keeps it
  ~SignalStack();  // as it was before
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace ddl
